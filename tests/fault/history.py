"""The history: every change of pods, devices, pools and nodes, and of what upgrades drivers, watched at the API server itself.

A watch that breaks goes on from its last version. One that cannot (410, after a restart of the API
server) begins again with a list; what was missed between is compared with that list, so that only what
came and went within the gap stays unseen.

A restored etcd goes back in time: `hold` before it, and `go_back` after it, which lists everything again.
"""

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final, NoReturn, final

import aiohttp

from tests.cluster.environment import client
from tests.cluster.system.installation import CLUSTER_POLICIES, NAMESPACE
from tests.fault.growing_pool import NODE_CLAIMS
from tests.fault.observations import (
    Claim,
    Device,
    Node,
    Observation,
    ObservedObject,
    Pod,
    Pool,
    observed_object,
)
from tests.fault.upgrades.upgrade_observations import DRIVERS, DriverPod, DriverSet, Policy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_RETRY_S: Final = 0.2
API: Final = "/apis/gpu.deckhouse.io/v1alpha1"


@final
class History:
    """Watches from `follow` on; `observations` grows."""

    def __init__(
        self,
        api: client.ApiClient,
        namespace: str,
        is_ours: "Callable[[ObservedObject], bool]",
        on_view: "Callable[[Observation], None]",
    ) -> None:
        """Watch pods of one namespace, and of the rest what is ours."""
        self.observations: list[Observation] = []
        self._api = api
        self._is_ours = is_ours
        self._on_view = on_view
        self._paths = {
            "pods": f"/api/v1/namespaces/{namespace}/pods",
            "nodes": "/api/v1/nodes",
            "gpudevices": f"{API}/gpudevices",
            "gpupools": f"{API}/gpupools",
            "nodeclaims": NODE_CLAIMS,
            "drivers": f"/api/v1/namespaces/{NAMESPACE}/pods",
            "driversets": f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets",
            "policies": CLUSTER_POLICIES,
        }
        self._selectors = {kind: {"labelSelector": DRIVERS} for kind in ("drivers", "driversets")}
        self._versions: dict[str, str] = {}
        self._recorded: dict[str, dict[str, ObservedObject]] = {kind: {} for kind in self._paths}
        # kind -> uid -> what was seen last
        self._began = asyncio.get_running_loop().time()
        self._may_ask = asyncio.Event()
        self._may_ask.set()

    def now(self) -> float:
        """Return the seconds since the beginning."""
        return asyncio.get_running_loop().time() - self._began

    async def follow(self) -> NoReturn:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            for kind in self._paths:
                group.create_task(self._follow(kind), name=f"history of {kind}")
        raise AssertionError("a watch of the history ended")

    def hold(self) -> None:
        """Begin no list and no watch; those that are open end with the API server."""
        self._may_ask.clear()

    async def go_back(self) -> None:
        """Take what the API server has now as all that ever was, and follow it."""
        for kind in self._paths:
            self._versions.pop(kind, None)
            self._recorded[kind].clear()
            await self._list(kind)
        self._may_ask.set()

    async def caught_up(self) -> None:
        """Return once all that is stored has been seen; the caller bounds the time."""
        for kind in self._paths:
            while not await self._is_level(kind):  # noqa: ASYNC110  # the API server is asked
                await asyncio.sleep(_RETRY_S)

    async def _is_level(self, kind: str) -> bool:
        listing = await self._api.get(self._paths[kind], **self._selectors.get(kind, {}))
        reported = {}
        for item in listing["items"]:
            subject = observed_object(kind, item)
            if subject is not None and self._is_ours(subject):
                reported[item["metadata"]["uid"]] = subject
        return reported == self._recorded[kind]

    async def _follow(self, kind: str) -> NoReturn:
        while True:
            await self._may_ask.wait()
            try:
                if kind not in self._versions:
                    await self._list(kind)
                await self._watch(kind)
            except client.ApiRefusedError as refused:
                if refused.status == 410:
                    self._versions.pop(kind, None)
                elif refused.status < 500 and refused.status not in {403, 404, 429}:
                    raise
            except (aiohttp.ClientError, TimeoutError):
                pass
            await asyncio.sleep(_RETRY_S)

    async def _list(self, kind: str) -> None:
        listing = await self._api.get(self._paths[kind], **self._selectors.get(kind, {}))
        version = int(listing["metadata"]["resourceVersion"])
        uids = {item["metadata"]["uid"] for item in listing["items"]}
        for uid, subject in list(self._recorded[kind].items()):
            if uid not in uids:
                self._note(kind, uid, subject, version=version, is_gone=True, is_exact=False)
        for item in sorted(listing["items"], key=_version_of):
            current = observed_object(kind, item)
            uid = item["metadata"]["uid"]
            if current is not None and self._recorded[kind].get(uid) != current:
                version_now = _version_of(item)
                self._note(kind, uid, current, version=version_now, is_gone=False, is_exact=False)
        self._versions[kind] = str(version)

    async def _watch(self, kind: str) -> None:
        selected = self._selectors.get(kind, {})
        events = self._api.watch(
            self._paths[kind], resourceVersion=self._versions[kind], **selected
        )
        async with contextlib.aclosing(events) as stream:
            async for event in stream:
                item = event["object"]
                if event["type"] != "BOOKMARK":
                    subject = observed_object(kind, item)
                    if subject is not None:
                        is_gone = event["type"] == "DELETED"
                        uid = item["metadata"]["uid"]
                        self._note(kind, uid, subject, version=_version_of(item), is_gone=is_gone)
                self._versions[kind] = item["metadata"]["resourceVersion"]

    def _note(
        self,
        kind: str,
        uid: str,
        subject: ObservedObject,
        *,
        version: int,
        is_gone: bool,
        is_exact: bool = True,
    ) -> None:
        if not self._is_ours(subject):
            return
        current = self._recorded[kind]
        if is_gone:
            current.pop(uid, None)
        elif current.get(uid) == subject:
            return
        else:
            current[uid] = subject
        observation = Observation(
            at=self.now(), version=version, is_gone=is_gone, subject=subject, is_exact=is_exact
        )
        self.observations.append(observation)
        self._on_view(observation)


def describe(observation: Observation) -> str:
    """Return one line."""
    gone = "gone: " if observation.is_gone else ""
    return f"{observation.at:8.3f} v{observation.version} {gone}{_text_of(observation.subject)}"


def _text_of(subject: ObservedObject) -> str:
    match subject:
        case Pod():
            state = f"{subject.phase} node={subject.node or '-'} devices={subject.devices or '-'}"
            deleting = " deleting" if subject.is_deleted else ""
            return f"pod {subject.name} ({subject.uid[:8]}) {state}{deleting}"
        case Device():
            faulty = " faulty" if subject.is_faulty else ""
            where = f"in {subject.pool or 'no pool'}"
            return f"device {subject.name} {subject.uuid} {where}{faulty} {subject.state} {subject.reported}"
        case Pool():
            return f"pool {subject.name} {dict(subject.reported)}"
        case Node():
            marks = "" if subject.upgrade is None else f" {subject.upgrade}"
            is_open = "open" if subject.is_open else "closed"
            return f"node {subject.name} {is_open} {dict(subject.offers)}{marks}"
        case Claim() | DriverSet():
            return str(subject)
        case DriverPod():
            state = (
                f"{'ready' if subject.is_ready else 'not ready'}{' deleting' * subject.is_deleted}"
            )
            return (
                f"driver pod {subject.name} of {subject.version} on {subject.node or '-'} {state}"
            )
        case Policy():
            return f"policy {subject}"


def _version_of(item: "Mapping[str, Any]") -> int:
    return int(item["metadata"]["resourceVersion"])
