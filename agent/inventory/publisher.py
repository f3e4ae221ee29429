"""Publisher of the node's NodeFeature: the agent's findings, and its heartbeat.

One object a node, in our namespace, owned by the Node, so that it is deleted with it. Changed content is written
whole, by server-side apply; without a change, one annotation is written every `heartbeat_s`, and this is all that
a quiet node costs: a JSON patch of 200 bytes a minute. Readers take two silent minutes for a dead agent.
nfd-master processes a node again for each write of a NodeFeature, heartbeats too (its own rules over the node's
features, and no write where labels stay).

The heartbeat's patch tests that the object is the written one: uid, generation (which any change of the spec
moves, and no change of metadata) and the node's label. If a test fails, or the object is gone, the whole is
written again: so a deletion or a foreign change is undone within a minute.

A failure is logged once for its kind, counted, and retried with backoff; the content to publish is kept.
"""

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final, NoReturn, Protocol, TypeVar, final

import msgspec
import structlog

from agent.inventory.node_feature import feature_body, feature_name, feature_shows, heartbeat_patch
from api.foreign.core import Node
from api.foreign.nodefeature import NodeFeature
from api.meta import ObjectMeta
from kube.backoff import Backoff
from kube.errors import ApiError, Conflict, Forbidden, Invalid, KubeError, NotFound, one_line
from kube.resources import NODE_FEATURES, NODES
from telemetry.agent_metrics import PUBLISHED
from telemetry.conditions import AgentDegraded
from telemetry.metrics import TASK_FAILURES

if TYPE_CHECKING:
    import random

    from agent.inventory.node_devices import PublishedFeatures
    from agent.problems.registry import ProblemRegistry
    from api.clock import Clock
    from api.names import NodeName
    from kube.client import WriteResponse
    from kube.resources import Resource

FIELD_MANAGER: Final = "gpu-control-plane/agent"
TASK: Final = "agent.features"
SOURCE: Final = "features"
"""Source of the problem in the registry."""
FEATURES: Final = "features"
HEARTBEAT: Final = "heartbeat"
"""Kinds of writes, in metrics."""
HEARTBEAT_S: Final = 60.0
GATHER_S: Final = 0.1
"""A node's devices change together, as when a driver comes back."""
_CAP_S: Final = 30.0
"""Two tries in a minute at least: readers wait for two."""

_log = structlog.get_logger()

T = TypeVar("T")


class FeatureApi(Protocol):
    """Access to the API server; `kube.client.KubeClient`."""

    async def get(
        self, resource: "Resource", type_: type[T], name: str, *, namespace: str | None = None
    ) -> T:
        """Return the object."""

    async def apply(
        self, resource: "Resource", body: object, *, field_manager: str
    ) -> "WriteResponse":
        """Apply server-side, with force."""

    async def json_patch(
        self, resource: "Resource", body: object, *, name: str, namespace: str | None = None
    ) -> None:
        """Apply all operations or none; a failed test raises Invalid."""


class _Stamp(msgspec.Struct, frozen=True):
    """Identity of the written object, and of its spec."""

    metadata: ObjectMeta


@final
class FeaturePublisher:
    """Publishes the last content with a heartbeat; silent before the first content."""

    def __init__(  # noqa: PLR0913  # each is set alone by settings or tests
        self,
        client: FeatureApi,
        problems: "ProblemRegistry",
        clock: "Clock",
        *,
        node: "NodeName",
        namespace: str,
        heartbeat_s: float = HEARTBEAT_S,
        rng: "random.Random | None" = None,
    ) -> None:
        self._client = client
        self._problems = problems
        self._clock = clock
        self._node = node
        self._namespace = namespace
        self._heartbeat_s = heartbeat_s
        self._backoff = Backoff(cap_s=_CAP_S, rng=rng)
        self._desired: PublishedFeatures | None = None
        self._written: PublishedFeatures | None = None
        self._stamp: ObjectMeta | None = None
        """Stamp of the written object; None where the whole is to be written."""
        self._owner_uid = ""
        self._beat_at = 0.0
        self._changed = asyncio.Event()
        self._last_error = ""
        self._attempted = FEATURES
        TASK_FAILURES.labels(TASK)
        for what in (FEATURES, HEARTBEAT):
            for outcome in ("written", "failed"):
                PUBLISHED.labels(what, outcome)

    def publish(self, published: "PublishedFeatures") -> None:
        """Publish this from now on."""
        if published != self._desired:
            self._desired = published
            self._changed.set()

    async def run(self) -> NoReturn:
        """Write until cancelled."""
        await self._changed.wait()
        while True:
            self._changed.clear()
            try:
                await self.reconcile()
            except KubeError as error:
                await asyncio.sleep(self._failed(error))
                continue
            self._succeeded()
            await self._until_changed(self._beat_at - self._clock.monotonic())

    async def reconcile(self) -> None:
        """Write what is due: the whole object, the heartbeat, or nothing.

        Raises:
            KubeError: it could not be written.
        """
        desired = self._desired
        if desired is None:
            return
        if self._stamp is None:
            await self._adopt(desired)
        if desired != self._written or not await self._is_alive():
            await self._write(desired)

    async def _adopt(self, desired: "PublishedFeatures") -> None:
        """Adopt the object of the last agent if it has the same content: it needs no write."""
        if self._written is not None:
            return
        try:
            current = await self._client.get(
                NODE_FEATURES, NodeFeature, feature_name(self._node), namespace=self._namespace
            )
        except (NotFound, Forbidden):
            return
        if feature_shows(current, desired, self._node):
            self._stamp, self._written = current.metadata, desired
            owners = current.metadata.owner_references or ()
            self._owner_uid = next((owner.uid for owner in owners if owner.kind == NODES.kind), "")

    async def _is_alive(self) -> bool:
        """Write the heartbeat where it is due; return whether the object is still the written one."""
        stamp, now = self._stamp, self._clock.utc_now()
        if stamp is None:
            return False
        if self._clock.monotonic() < self._beat_at:
            return True
        self._attempted = HEARTBEAT
        try:
            await self._client.json_patch(
                NODE_FEATURES,
                heartbeat_patch(stamp, self._node, now),
                name=feature_name(self._node),
                namespace=self._namespace,
            )
        except (NotFound, Invalid, Conflict) as error:
            _log.info("NodeFeature was changed or deleted", error=one_line(str(error)))
            self._stamp = None
            return False
        self._count(HEARTBEAT)
        return True

    async def _write(self, desired: "PublishedFeatures") -> None:
        self._attempted = FEATURES
        if self._stamp is None:
            self._owner_uid = await self._node_uid()
        now = self._clock.utc_now()
        body = feature_body(
            desired,
            node=self._node,
            namespace=self._namespace,
            owner_uid=self._owner_uid,
            now=now,
        )
        # A write that fails may have been carried out: only an answer makes a stamp.
        self._stamp = None
        answer = await self._client.apply(NODE_FEATURES, body, field_manager=FIELD_MANAGER)
        self._stamp, self._written = answer.decode(_Stamp).metadata, desired
        self._count(FEATURES)
        _log.info("NodeFeature written", devices=len(desired.devices))

    async def _node_uid(self) -> str:
        """Return the Node's uid; empty where there is none, or access is forbidden."""
        try:
            node = await self._client.get(NODES, Node, self._node)
        except (NotFound, Forbidden) as error:
            _log.warning(
                "NodeFeature without an owner", node=self._node, error=one_line(str(error))
            )
            return ""
        return node.metadata.uid

    def _count(self, subject: str) -> None:
        PUBLISHED.labels(subject, "written").inc()
        self._beat_at = self._clock.monotonic() + self._heartbeat_s

    def _failed(self, error: KubeError) -> float:
        TASK_FAILURES.labels(TASK).inc()
        PUBLISHED.labels(self._attempted, "failed").inc()
        error_text = type(error).__name__
        if error_text != self._last_error:
            self._last_error = error_text
            _log.warning("NodeFeature not written", name=feature_name(self._node), error=str(error))
            self._problems.set(SOURCE, AgentDegraded.NOT_PUBLISHED, self._text_of(error))
        retry_after_s = error.retry_after_s if isinstance(error, ApiError) else None
        return self._backoff.fail(retry_after_s)

    def _text_of(self, error: KubeError) -> str:
        where = f"NodeFeature {self._namespace}/{feature_name(self._node)}"
        if isinstance(error, NotFound):
            return f"{where}: is Node Feature Discovery installed, and does the namespace exist? {error}"
        return f"{where} cannot be written: {error}"

    def _succeeded(self) -> None:
        self._backoff.succeed()
        self._last_error = ""
        self._problems.clear(SOURCE)

    async def _until_changed(self, within_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._changed.wait()
            await asyncio.sleep(GATHER_S)
