"""Discovery: whether the API server serves a kind. A 404 about an object does not say so, because proxies answer so, too."""

from typing import TYPE_CHECKING

import msgspec

from kube.decoding import decode
from kube.errors import NotFound, UnexpectedStatus
from kube.transport import ApiRequest

if TYPE_CHECKING:
    from kube.resources import Resource
    from kube.transport import RequestTransport


class _DiscoveredResource(msgspec.Struct):
    name: str


class _Discovered(msgspec.Struct):
    """`APIResourceList` of a group version."""

    resources: list[_DiscoveredResource]


async def is_served(resource: "Resource", transport: "RequestTransport") -> bool:
    """Return whether discovery names the resource.

    Raises:
        KubeError: discovery says nothing: it fails, may not be read, or answers 404 for a group version that it has.
    """
    path = f"/apis/{resource.api_version}" if resource.group else f"/api/{resource.version}"
    body = await _discovered(path, transport)
    if body is not None:
        found = decode(body, _Discovered, resource)
        return any(item.name == resource.plural for item in found.resources)
    # A proxy, or an API server that starts, answers so, too: it counts where the list of groups lacks this one.
    groups = await _discovered("/apis", transport) or b""
    is_named = f'"{resource.api_version}"'.encode() in groups
    if is_named or b'"groupVersion"' not in groups or not resource.group:
        raise UnexpectedStatus(404, "NotFound", f"discovery does not answer {path}")
    return False


async def _discovered(path: str, transport: "RequestTransport") -> bytes | None:
    try:
        return await transport.call(ApiRequest(method="GET", path=path, label="discovery"))
    except NotFound:
        return None
