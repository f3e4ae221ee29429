"""The server: constructor, life cycle, and the objects that exist from the start."""

from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self, final

from aiohttp import web

from simulator.apiserver.apply.ownership import Ownership
from simulator.apiserver.exchange import MAX_BODY_BYTES
from simulator.apiserver.frontend import Backend, Frontend
from simulator.apiserver.http import HttpHandler
from simulator.apiserver.in_process import InProcessTransport
from simulator.apiserver.metadata import fill_new, timestamp
from simulator.apiserver.resource_types import NAMESPACES, PRIORITY_CLASSES, Registry
from simulator.apiserver.reviews import Reviewer
from simulator.apiserver.store.objects import ObjectStore, StoreBackup
from simulator.apiserver.strategies.table import strategy_of
from simulator.apiserver.webhooks.chain import AdmissionChain
from simulator.apiserver.write.binding import PodBinder
from simulator.apiserver.write.delete import Deleter
from simulator.apiserver.write.effects import Effects
from simulator.apiserver.write.eviction_subresource import Evictor
from simulator.apiserver.write.object_writer import Writer

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from api.clock import Clock
    from simulator.apiserver.injection import ErrorInjection
    from simulator.apiserver.requestlog import RequestLog
    from simulator.apiserver.resource_types import ResourceType
    from simulator.apiserver.webhooks.chain import User

Json = dict[str, Any]

DEFAULT_HISTORY: Final = 10_000
"""Changes of a kind that watches can resume behind; each keeps an old version in memory."""
DEFAULT_BOOKMARK_INTERVAL_S: Final = 60.0
_NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", "kube-system")
_PRIORITY_CLASSES: Final = (
    ("system-cluster-critical", 2_000_000_000),
    ("system-node-critical", 2_000_001_000),
)


@final
class InMemoryApiServer:
    """An API server on a loopback port.

    Stopping keeps the objects and the port: started again, it behaves like the same server after a
    restart, with every watch ended.
    """

    def __init__(
        self,
        clock: "Clock",
        *,
        tokens: "Mapping[str, User] | None" = None,
        ssl_context: "ssl.SSLContext | None" = None,
        services: "Mapping[str, str] | None" = None,
        history_limit: int = DEFAULT_HISTORY,
        bookmark_interval_s: float = DEFAULT_BOOKMARK_INTERVAL_S,
    ) -> None:
        """Create the server; it stores and serves nothing before the first `start`.

        Args:
            clock: dates objects.
            tokens: bearer token -> user; a request without one of them gets 401. Without it, every
                request is an administrator's.
            ssl_context: serves https.
            services: `<namespace>/<name>` -> base URL, for webhooks that are configured by service.
            history_limit: changes of each kind that are kept for watches, at least.
            bookmark_interval_s: how often a watch that wants bookmarks gets one.
        """
        self._clock = clock
        self._ssl_context = ssl_context
        self._store = ObjectStore(history_limit=history_limit)
        registry = Registry()
        effects = Effects(self._store, registry)
        self._admission = AdmissionChain(self._store, services or {})
        deleter = Deleter(self._store, self._admission, effects=effects, clock=clock)
        self.reviewer = Reviewer(tokens or {})
        """Answers reviews of tokens and of access to non-resource URLs."""
        self._frontend = Frontend(
            Backend(
                store=self._store,
                registry=registry,
                writer=Writer(self._store, self._admission, effects=effects, clock=clock),
                deleter=deleter,
                binder=PodBinder(self._store, self._admission, clock),
                evictor=Evictor(self._store, self._admission, deleter=deleter, clock=clock),
                reviewer=self.reviewer,
                tokens=tokens,
                bookmark_interval_s=bookmark_interval_s,
            )
        )
        self._is_seeded = False
        self._runner: web.AppRunner | None = None
        self._port = 0

    def _seed_cluster(self) -> None:
        for name in _NAMESPACES:
            self._seed(NAMESPACES, name, {})
        for name, value in _PRIORITY_CLASSES:
            self._seed(PRIORITY_CLASSES, name, {"value": value})

    def _seed(self, resource: "ResourceType", name: str, content: Json) -> None:
        body = {
            "kind": resource.kind,
            "apiVersion": resource.api_version,
            "metadata": {"name": name},
            **content,
        }
        now = timestamp(self._clock.utc_now())
        strategy = strategy_of(resource)
        strategy.default(body)
        fill_new(body, resource, now)
        strategy.begin(body, now)
        self._store.collection(resource).add(resource, body, Ownership())

    @property
    def url(self) -> str:
        """Return the base URL; the port is known once the server was started."""
        scheme = "http" if self._ssl_context is None else "https"
        return f"{scheme}://127.0.0.1:{self._port}"

    @property
    def requests(self) -> "RequestLog":
        return self._frontend.requests

    @property
    def faults(self) -> "ErrorInjection":
        return self._frontend.faults

    @property
    def version(self) -> dict[str, str]:
        """The answer of `/version`."""
        return self._frontend.version

    @property
    def in_process(self) -> "Callable[..., InProcessTransport]":
        """Makes transports of clients that reach the server without HTTP while it is started."""
        return partial(InProcessTransport, self._frontend)

    def drop_watches(self) -> None:
        """Cut the connections of all open watches; the server keeps running."""
        self._frontend.drop_watches()

    def stored(self, resource: "ResourceType") -> list[Json]:
        """Return the objects of a kind, without a request; not to be changed."""
        return [item.body for item in self._store.collection(resource).all()]

    def snapshot(self) -> StoreBackup:
        """Return a backup of all objects."""
        return self._store.snapshot()

    def restore(self, backup: StoreBackup) -> None:
        """Go back to a backup: objects and versions; watches stay open."""
        self._store.restore(backup)

    def forget_history(self) -> None:
        """Forget every change, as a compaction does: resumed watches get 410."""
        for collection in self._store.collections():
            collection.history.forget()

    async def start(self, *, listens: bool = True) -> None:
        """Serve. The first start creates the objects of every cluster, and the first to listen picks a port.

        Without `listens` there are clients of `in_process` alone.
        """
        if self._frontend.is_serving:
            raise RuntimeError("the API server is started already")
        if not self._is_seeded:
            self._is_seeded = True
            self._seed_cluster()
        self._admission.open()
        if listens:
            await self._listen()
        self._frontend.start()

    async def _listen(self) -> None:
        application = web.Application(client_max_size=MAX_BODY_BYTES)
        application.router.add_route("*", "/{path:.*}", HttpHandler(self._frontend).handle)
        self._runner = web.AppRunner(
            application, access_log=None, handler_cancellation=True, shutdown_timeout=1.0
        )
        await self._runner.setup()
        site = web.TCPSite(
            self._runner, "127.0.0.1", self._port, ssl_context=self._ssl_context, reuse_address=True
        )
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """End watches, finish requests and stop listening; no effect if not started."""
        if not self._frontend.is_serving:
            return
        self._frontend.stop()
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()
        await self._admission.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: "TracebackType | None",
    ) -> None:
        await self.stop()
