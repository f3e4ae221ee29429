"""Keys of ConfigMaps that a spec names, which DaemonSets mount one by one."""

from typing import TYPE_CHECKING, final

from api.meta import Model, ObjectMeta
from kube.resources import CONFIG_MAPS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kube.client import KubeClient


class _ConfigMap(Model, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] | None = None
    binary_data: dict[str, str] | None = None


@final
class ConfigMapKeys:
    """Reads ConfigMaps of one namespace by name, under the right to list them."""

    def __init__(self, client: "KubeClient", namespace: str) -> None:
        self._client = client
        self._namespace = namespace

    async def of(self, names: "Iterable[str]") -> "Mapping[str, tuple[str, ...]]":
        """Return the keys of each that is there, sorted.

        Raises:
            KubeError: one cannot be read.
        """
        found: dict[str, tuple[str, ...]] = {}
        for name in sorted(names):
            listing = await self._client.list_(
                CONFIG_MAPS,
                _ConfigMap,
                namespace=self._namespace,
                field_selector=f"metadata.name={name}",
            )
            for item in listing.items:
                found[name] = tuple(sorted({*(item.data or ()), *(item.binary_data or ())}))
        return found
