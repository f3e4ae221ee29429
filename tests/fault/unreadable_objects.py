"""Objects of the next version: its definitions know a value that the models of ours do not.

Such an object can be written, kept and listed, and our server cannot read it, as after a rollback.
"""

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final, final

import yaml

from tests.cluster.environment import client
from tests.cluster.system.installation import CLUSTER_POLICIES, NVIDIA_DRIVERS
from tests.cluster.system.objects import DEVICES, POOLS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    Insist = Callable[..., Awaitable[Any]]

NEXT: Final = "OfTheNextVersion"
FIELDS: "Final[Mapping[str, tuple[str, str, tuple[str, ...]]]]" = {
    "gpupools": (POOLS, "", ("spec", "scheduling", "strategy")),
    "gpudevices": (DEVICES, "/status", ("status", "state")),
    "clusterpolicies": (CLUSTER_POLICIES, "", ("spec", "daemonsets", "updateStrategy")),
    "nvidiadrivers": (NVIDIA_DRIVERS, "", ("spec", "kernelModuleType")),
}
"""Resource -> collection, subresource, and the field that gets the value."""
_POOLS_WEBHOOK: Final = "gpupools.gpu.deckhouse.io"


def with_next_values(manifests: str) -> str:
    """Return the manifests with definitions of the next version, whose own webhook took the pools with its values."""
    documents = [document for document in yaml.safe_load_all(manifests) if document]
    for document in documents:
        if document["kind"] == "CustomResourceDefinition":
            _add_next_value(document["spec"])
        for webhook in document.get("webhooks", ()):
            if webhook["name"] == _POOLS_WEBHOOK:
                is_ours = f"object.spec.?scheduling.?strategy.orValue('') != '{NEXT}'"
                webhook["matchConditions"].append(
                    {"name": "of-this-version", "expression": is_ours}
                )
    return yaml.safe_dump_all(documents)


def _add_next_value(part: Any) -> None:
    if isinstance(part, dict):
        if part.get("type") == "string" and isinstance(part.get("enum"), list):
            part["enum"].append(NEXT)
        part = list(part.values())
    if isinstance(part, list):
        for inner in part:
            _add_next_value(inner)


@final
class UnreadableObjects:
    """Those of one arena that may become unreadable: resource -> names."""

    def __init__(self, api: client.ApiClient, names: "Mapping[str, Sequence[str]]") -> None:
        self._api = api
        self._names = names

    async def build(self, insist: "Insist") -> None:
        """Create NVIDIADrivers, which the arena has for this alone: they select no node."""
        for name in self._names["nvidiadrivers"]:
            body = {
                "apiVersion": "nvidia.com/v1alpha1",
                "kind": "NVIDIADriver",
                "metadata": {"name": name},
                "spec": {
                    "driverType": "gpu",
                    "repository": "registry.test",
                    "image": "driver",
                    "version": "580.1",
                    "nodeSelector": {"example.test/no-node": "true"},
                },
            }
            await insist(lambda body=body: self._api.create(NVIDIA_DRIVERS, body))

    async def release(self) -> None:
        for name in self._names["nvidiadrivers"]:
            with contextlib.suppress(client.ApiRefusedError):
                await self._api.delete(f"{NVIDIA_DRIVERS}/{name}")
                await self._api.patch(
                    f"{NVIDIA_DRIVERS}/{name}", {"metadata": {"finalizers": None}}
                )

    async def write(self, insist: "Insist", resource: str, number: int) -> str:
        """Make an object unreadable; return its name."""
        names = self._names[resource]
        name = names[number % len(names)]
        await self._set(insist, resource, name, NEXT)
        return name

    async def put_back_after(
        self, insist: "Insist", resource: str, name: str, for_s: float
    ) -> None:
        await asyncio.sleep(for_s)
        await self._put_back(insist, resource, name)

    async def put_back(self, insist: "Insist") -> None:
        """Write every object in the form of this version."""
        for resource, names in self._names.items():
            for name in names:
                await self._put_back(insist, resource, name)

    async def _put_back(self, insist: "Insist", resource: str, name: str) -> None:
        collection, _, field = FIELDS[resource]
        found = await insist(lambda: self._api.find(f"{collection}/{name}"))
        for part in field:
            found = (found or {}).get(part)
        if found == NEXT:
            await self._set(insist, resource, name, None)

    async def _set(self, insist: "Insist", resource: str, name: str, value: str | None) -> None:
        collection, subresource, field = FIELDS[resource]
        body: Any = value
        for part in reversed(field):
            body = {part: body}
        path = f"{collection}/{name}{subresource}"
        await insist(lambda: self._api.patch(path, body), missing_is_done=True)
