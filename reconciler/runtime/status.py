"""Server-side apply of an object's status."""

from typing import TYPE_CHECKING, final

from api.meta import PartialObjectMetadata
from kube.errors import NotFound

if TYPE_CHECKING:
    from api.meta import ObjectMeta
    from kube.client import KubeClient
    from kube.resources import Resource


@final
class StatusWriter:
    """Applies the part of a status that one field manager owns; a field that is left out is given up."""

    def __init__(self, client: "KubeClient", resource: "Resource", field_manager: str) -> None:
        self._client = client
        self._resource = resource
        self._field_manager = field_manager

    async def apply(
        self,
        name: str,
        status: object,
        *,
        namespace: str | None = None,
        version: str | None = None,
        uid: str | None = None,
    ) -> "ObjectMeta | None":
        """Write the fields; return the metadata that this made, or None where the object is gone.

        Args:
            name: of the object.
            status: every field that the manager owns.
            namespace: of the object, where its kind has one.
            version: the resourceVersion that was judged; of another one nothing is written.
            uid: the object's; of another object of the name nothing is written.

        Raises:
            Conflict: the object has another version or uid.
            KubeError: it is not known whether the status was written.
        """
        metadata = {
            "name": name,
            "namespace": namespace,
            "resourceVersion": version,
            "uid": uid,
        }
        body = {
            "apiVersion": self._resource.api_version,
            "kind": self._resource.kind,
            "metadata": {key: value for key, value in metadata.items() if value is not None},
            "status": status,
        }
        try:
            written = await self._client.apply(
                self._resource,
                body,
                field_manager=self._field_manager,
                subresource="status",
            )
        except NotFound:
            return None
        return written.decode(PartialObjectMetadata).metadata
