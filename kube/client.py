"""The verbs of the API server: what is asked in msgspec types, what comes back decoded.

kubernetes-asyncio reads kubeconfigs; its call machinery is not used, because it costs half a
millisecond a call and keeps objects as dicts (docs/design/0001-models.md).
Nothing is retried but reads whose kept-alive connection turned out closed: the caller knows
whether a second write is harmless. Following a watch, with its reconnects, is `kube.informer`'s.
"""

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Self, TypeVar, final

import msgspec

from kube.api_discovery import is_served
from kube.decoding import Listing, decode, decode_items, decode_page, identity_of
from kube.errors import Forbidden, NotFound, UnexpectedStatus
from kube.server_version import ServerVersion, decode_server_version
from kube.transport import ApiRequest, Transport

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from types import TracebackType

    from api.clock import Clock
    from kube.config.connection import Connection
    from kube.resources import Resource
    from kube.transport import TransportFactory
    from kube.unread_objects import UnreadObject

T = TypeVar("T")
P = TypeVar("P")
Body = object
"""What msgspec.json encodes, or bytes that are JSON already."""
Propagation = Literal["Background", "Foreground", "Orphan"]

MERGE_PATCH: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"
"""JSON is YAML; `apply-patch+json` is answered with 415."""


@final
@dataclass(frozen=True, slots=True)
class WriteResponse:
    """The object as the API server stored it."""

    body: bytes
    resource: "Resource"

    def decode(self, type_: type[T]) -> T:
        """Raises Undecodable."""
        return decode(self.body, type_, self.resource)


@final
class KubeClient:
    """Everything that we ask of the API server; an async context manager that opens and closes it.

    Every method raises from `kube.errors` and nothing else, but for arguments that make no request
    (ValueError) and bodies that cannot be encoded (TypeError). Cancellation passes through.
    Where the body is a whole object, its metadata says name and namespace unless they are given.
    The answer to a write is decoded only if the caller asks for it.
    """

    def __init__(
        self,
        configuration: "Connection",
        clock: "Clock",
        *,
        user_agent: str = "gpu-control-plane",
        timeout_s: float = 10.0,
        list_timeout_s: float = 60.0,
        make_transport: "TransportFactory" = Transport,
    ) -> None:
        """Take the settings; nothing is opened yet.

        Args:
            configuration: address, TLS and credentials (`kube.config.discovery`).
            clock: measures the requests.
            user_agent: as the API server's audit log shows it.
            timeout_s: bound of a request from its start to the last byte of the answer.
            list_timeout_s: the same for a list, or a page of one; 10,000 pods are 72 MB.
            make_transport: HTTP, or what stands in for it.
        """
        self._transport = make_transport(
            configuration, clock, user_agent=user_agent, timeout_s=timeout_s
        )
        self._list_timeout_s = list_timeout_s

    async def __aenter__(self) -> Self:
        await self._transport.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: "TracebackType | None",
    ) -> None:
        """Close all connections; requests under way end as Unreachable."""
        await self._transport.close()

    async def server_version(self) -> ServerVersion:
        """Return the API server's version, which every account may read."""
        request = ApiRequest(method="GET", path="/version", label="version")
        return decode_server_version(await self._transport.call(request))

    async def serves(self, resource: "Resource") -> bool:
        """Return whether the API server's discovery names the resource: a 404 alone does not prove that it does not exist.

        Raises:
            KubeError: discovery says nothing (`kube.api_discovery`).
        """
        return await is_served(resource, self._transport)

    async def _call(self, request: ApiRequest, resource: "Resource") -> bytes:
        """Send a request about one object.

        Raises:
            NotFound: there is no such object: the API server names it, or discovery knows no such kind.
            UnexpectedStatus: another 404, as a proxy's.
        """
        try:
            return await self._transport.call(request)
        except NotFound as error:
            if error.names_object or not await self.serves(resource):
                raise
            raise UnexpectedStatus(error.status, error.reason, error.message) from None

    async def get(
        self, resource: "Resource", type_: type[T], name: str, *, namespace: str | None = None
    ) -> T:
        """Return the object; the read is consistent (quorum)."""
        path = resource.path(namespace, name)
        body = await self._call(
            ApiRequest(method="GET", path=path, label=resource.plural), resource
        )
        return decode(body, type_, resource)

    async def list_(
        self,
        resource: "Resource",
        item_type: type[T],
        *,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        page_size: int | None = None,
    ) -> Listing[T]:
        """Return all objects, as of one moment: `list_as` with the items as they are."""
        return await self.list_as(
            resource,
            item_type,
            _identity,
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            page_size=page_size,
        )

    async def list_as(  # noqa: PLR0913  # the parameters of the API's list
        self,
        resource: "Resource",
        item_type: type[T],
        project: "Callable[[T], P | None]",
        *,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        page_size: int | None = None,
    ) -> Listing[P]:
        """Return what a projection makes of all objects, as of one moment.

        Each item is decoded by itself: one that does not fit is counted, logged, and named as unread.
        The loop gets its turn between every hundred items.

        Args:
            resource: what to list.
            item_type: what an item is decoded as.
            project: what is kept of an item; None leaves it out.
            namespace: of all namespaces where None.
            label_selector: in the API's text form.
            field_selector: in the API's text form.
            page_size: where given, the list is fetched in pages; a continue token that expires
                between two of them raises Gone.
        """
        query = {
            "labelSelector": label_selector,
            "fieldSelector": field_selector,
            "limit": None if page_size is None else str(page_size),
        }
        request = ApiRequest(
            method="GET", path=resource.path(namespace), label=resource.plural, query=query
        )
        items: list[P] = []
        unread: list[UnreadObject] = []
        while True:
            body = await self._transport.call(request, timeout_s=self._list_timeout_s)
            page = decode_page(body, resource)
            # A page is decoded and dropped before the next is asked for.
            del body
            found, skipped = await decode_items(
                page.items or (), item_type, resource=resource, project=project
            )
            items += found
            unread += skipped
            if not page.metadata.continue_:
                break
            query["continue"] = page.metadata.continue_
        return Listing(
            items=items,
            resource_version=page.metadata.resource_version,
            unread=unread,
        )

    async def can_list(
        self,
        resource: "Resource",
        *,
        namespace: str | None = None,
        label_selector: str | None = None,
    ) -> bool:
        """Say whether the objects may be listed, by asking for the first of them."""
        query = {"limit": "1", "labelSelector": label_selector}
        path = resource.path(namespace)
        try:
            await self._transport.call(
                ApiRequest(method="GET", path=path, label=resource.plural, query=query)
            )
        except Forbidden:
            return False
        return True

    async def create(
        self,
        resource: "Resource",
        body: Body,
        *,
        namespace: str | None = None,
        name: str | None = None,
        subresource: str | None = None,
    ) -> WriteResponse:
        """POST an object, or with `subresource` one of an object's, as `binding` of a pod."""
        content = _encode(body)
        namespace, name = identity_of(resource, content, namespace=namespace, name=name)
        if resource.namespaced and namespace is None:
            raise ValueError(f"a {resource.kind} is created in a namespace; none is given")
        path = resource.path(namespace, name if subresource else None, subresource)
        request = ApiRequest(
            method="POST", path=path, label=_label(resource, subresource), body=content
        )
        return WriteResponse(await self._call(request, resource), resource)

    async def replace(
        self,
        resource: "Resource",
        body: Body,
        *,
        namespace: str | None = None,
        name: str | None = None,
        subresource: str | None = None,
    ) -> WriteResponse:
        """PUT the whole object; with a resourceVersion in it, a stale one raises Conflict."""
        content = _encode(body)
        namespace, name = identity_of(resource, content, namespace=namespace, name=name)
        request = ApiRequest(
            method="PUT",
            path=resource.path(namespace, _named(name, resource), subresource),
            label=_label(resource, subresource),
            body=content,
        )
        return WriteResponse(await self._call(request, resource), resource)

    async def apply(
        self,
        resource: "Resource",
        body: Body,
        *,
        field_manager: str,
        force: bool = True,
        subresource: str | None = None,
    ) -> WriteResponse:
        """Apply on the server's side: own the fields in the body, drop those left out since.

        The body needs apiVersion, kind and metadata.name. It creates the object where there is none,
        but for a subresource (NotFound). Without `force` a field of another manager is a Conflict.
        A field that the schema does not know is answered with 500, which no waiting cures.
        """
        content = _encode(body)
        namespace, name = identity_of(resource, content, namespace=None, name=None)
        request = ApiRequest(
            method="PATCH",
            path=resource.path(namespace, _named(name, resource), subresource),
            label=_label(resource, subresource),
            query={"fieldManager": field_manager, "force": "true" if force else None},
            body=content,
            content_type=APPLY_PATCH,
        )
        return WriteResponse(await self._call(request, resource), resource)

    async def merge_patch(  # noqa: PLR0913  # the parameters of the API's patch
        self,
        resource: "Resource",
        body: Body,
        *,
        name: str,
        namespace: str | None = None,
        subresource: str | None = None,
        field_manager: str | None = None,
        is_dry: bool = False,
    ) -> None:
        """Merge the body in (RFC 7386): null deletes a key, a list replaces the list.

        A dry run passes through authorization and admission, and writes nothing.
        """
        request = ApiRequest(
            method="PATCH",
            path=resource.path(namespace, name, subresource),
            label=_label(resource, subresource),
            query={"fieldManager": field_manager, "dryRun": "All" if is_dry else None},
            body=_encode(body),
            content_type=MERGE_PATCH,
        )
        await self._call(request, resource)

    async def json_patch(
        self,
        resource: "Resource",
        body: Body,
        *,
        name: str,
        namespace: str | None = None,
        subresource: str | None = None,
    ) -> None:
        """Carry out the operations (RFC 6902), all or none; a failing `test` raises Invalid."""
        request = ApiRequest(
            method="PATCH",
            path=resource.path(namespace, name, subresource),
            label=_label(resource, subresource),
            body=_encode(body),
            content_type=JSON_PATCH,
        )
        await self._call(request, resource)

    async def delete(
        self,
        resource: "Resource",
        name: str,
        *,
        namespace: str | None = None,
        uid: str | None = None,
        propagation: Propagation | None = None,
        grace_period_s: int | None = None,
    ) -> None:
        """Delete the object; with `uid` another one of the same name raises Conflict."""
        options: dict[str, object] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        if propagation is not None:
            options["propagationPolicy"] = propagation
        if grace_period_s is not None:
            options["gracePeriodSeconds"] = grace_period_s
        request = ApiRequest(
            method="DELETE",
            path=resource.path(namespace, name),
            label=resource.plural,
            body=msgspec.json.encode(options),
        )
        await self._call(request, resource)

    def watch(  # noqa: PLR0913  # the parameters of the API's watch
        self,
        resource: "Resource",
        *,
        resource_version: str,
        timeout_s: int,
        idle_timeout_s: float,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
    ) -> AbstractAsyncContextManager["AsyncIterator[bytes]"]:
        """Open a watch; the context's value iterates over its lines, one JSON event each.

        The iteration ends when the server ends the stream properly; whatever else ends it raises.
        The loop gets its turn after every read, however fast events come.

        Args:
            resource: what to watch.
            resource_version: events after this one.
            timeout_s: after which the server ends the stream.
            idle_timeout_s: raise Unreachable after so long without a byte, since a half-open
                connection is silent for ever.
            namespace: of all namespaces where None.
            label_selector: in the API's text form.
            field_selector: in the API's text form.
        """
        request = ApiRequest(
            method="GET",
            path=resource.path(namespace),
            label=resource.plural,
            query={
                "watch": "true",
                "allowWatchBookmarks": "true",
                "resourceVersion": resource_version,
                "timeoutSeconds": str(timeout_s),
                "labelSelector": label_selector,
                "fieldSelector": field_selector,
            },
        )
        return self._transport.stream(request, idle_timeout_s=idle_timeout_s)


def _label(resource: "Resource", subresource: str | None) -> str:
    return f"{resource.plural}/{subresource}" if subresource else resource.plural


def _encode(body: Body) -> bytes:
    return body if isinstance(body, bytes) else msgspec.json.encode(body)


def _named(name: str | None, resource: "Resource") -> str:
    if name is None:
        raise ValueError(f"which {resource.kind}? The body has no metadata.name and none is given")
    return name


def _identity(item: T) -> T:
    return item
