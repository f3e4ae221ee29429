"""A fleet gets another driver: nodes with the taints of pools, nodes of Karpenter with mounted caches, and much that goes wrong.

Static nodes are in the pools `train`, which has a taint, and `batch`, which gets one in the middle; Karpenter's are in `llm`.
Each of the first static nodes has something of its own, see `Roles`. The pods of `llm` use all of its devices, so those that
the upgrade evicts have no place until units return.
"""

import asyncio
import dataclasses
import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from api.foreign.karpenter import DO_NOT_DISRUPT_ANNOTATION
from api.names import RESOURCE_PREFIX
from api.well_known_labels import HOSTNAME_LABEL, INSTANCE_TYPE_LABEL
from tests.cluster.environment import karpenter, nodes, pods, polling
from tests.cluster.environment.driver_fleet import (
    FAILED,
    DriverFleet,
    Json,
    Observer,
    is_cordoned,
)
from tests.cluster.environment.gpu_nodes import STATIC_LABEL
from tests.cluster.joints import from_zero
from tests.cluster.system.installation import CLUSTER_POLICIES, NVIDIA_DRIVERS, SERVER_USER
from tests.cluster.system.objects import POOLS, a_pool_object

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from pathlib import Path

    from tests.cluster.environment.audit import AuditLog
    from tests.cluster.environment.whole_cluster import WholeCluster

POLICY: Final = "cluster-policy"
TRAIN, BATCH, LLM, WEB, HELD = "fleet-train", "fleet-batch", from_zero.POOL, "web", "held"
DRIVER_OBJECT: Final = "second"
FIRST, SECOND = "595.91.07", "595.91.08"
EVENTS: Final = "/apis/events.k8s.io/v1/namespaces"
PATIENCE_S: Final = 600.0


class Roles(NamedTuple):
    """Static nodes with something of their own, all of pool `train`."""

    small: str
    """It has too little CPU for the second driver."""
    full: str
    """It takes no pod, and so never had a driver."""
    held: str
    """A disruption budget lets its pod not go."""
    cordoned: str
    """An admin cordoned it before."""
    leaving: str
    """It is deleted while its driver is upgraded."""


@dataclass(kw_only=True)
class FleetUpgrade:
    """The story, in one namespace of a cluster without a node."""

    cluster: "WholeCluster"
    namespace: str
    folder: "Path"
    audit: "AuditLog"
    create_nodes: "Callable[..., Awaitable[list[str]]]"
    static: int
    """Nodes that no autoscaler added."""
    bought: int
    """Nodes of Karpenter."""
    max_unavailable: int
    """In percent."""
    tag: str = ""
    """Part of the second driver's version, which crashes on some nodes."""
    names: list[str] = field(default_factory=list)
    claims: dict[str, str] = field(default_factory=dict)
    """Karpenter's nodes, and the UIDs of their NodeClaims."""

    async def begin(self) -> None:
        """Give every node its first driver, and pods."""
        self.fleet = DriverFleet(api=self.cluster.api, policy=f"{CLUSTER_POLICIES}/{POLICY}")
        basis = from_zero.FromZero(
            cluster=self.cluster, namespace=self.namespace, folder=self.folder, say=lambda _: None
        )
        await basis.apply_all()
        upgrades = {
            "maxParallelUpgrades": 0,
            "maxUnavailable": f"{self.max_unavailable}%",
            # The budget of one node holds for as long as all others take.
            "podDeletion": {"timeoutSeconds": 1200},
        }
        await self._change_driver(FIRST, upgradePolicy=upgrades)
        for name, taints in ((TRAIN, [_taint(TRAIN)]), (BATCH, [])):
            pool = a_pool_object(
                name,
                nodeSelector={"matchLabels": {"example.com/gpu-pool": name}},
                assignment={"requireAnnotation": False},
                scheduling={"taints": taints},
            )
            await self.cluster.api.create(POOLS, pool)
        await self._deploy(from_zero.POD, self.bought, from_zero.a_pod(self.namespace)["spec"])
        await self._join()
        await self._run_pods()
        self.claims = {
            item["status"]["nodeName"]: item["metadata"]["uid"]
            for item in await karpenter.claims_of(self.cluster.api, LLM)
        }
        assert len(self.claims) == self.bought, f"{self.claims}"
        driven = {*self.names, *self.claims} - {self.roles.full}
        await self.fleet.until_driven(driven, FIRST, within=PATIENCE_S)
        cordoned = f"{nodes.NODES}/{self.roles.cordoned}"
        await self.cluster.api.patch(cordoned, {"spec": {"unschedulable": True}})
        # From now on Karpenter takes a node away as soon as it is empty.
        await self.cluster.api.patch(
            f"{karpenter.NODE_POOLS}/{LLM}", {"spec": {"disruption": {"consolidateAfter": "0s"}}}
        )

    async def play(self) -> Observer:
        """Upgrade all nodes, with what goes wrong meanwhile; return what the nodes went through."""
        web = await self._uids(WEB)
        mark = await self.audit.mark()
        driven = {*self.names, *self.claims}
        self.version = f"{SECOND}{self.tag}-broken"
        async with self.fleet.observed(driven) as observer:
            await self._change_driver(self.version, resources={"requests": {"cpu": "5"}})
            async with asyncio.TaskGroup() as group:
                for task in (
                    self._karpenter_is_away(),
                    self._node_leaves(),
                    self._pool_gets_a_taint(),
                    self._driver_object_claims_nodes(),
                    self._karpenters_nodes_are_kept(),
                ):
                    group.create_task(task)
            named = {self.roles.small, self.roles.full, self.roles.held}
            driven -= {self.roles.leaving, *self.broken}
            await self.fleet.until_driven(driven - named, self.version, within=PATIENCE_S)
            await self._named()
            await self._mend()
            await self.fleet.until_driven(driven, self.version, within=PATIENCE_S)
        left = await self.fleet.nodes(driven)
        assert {name for name, item in left.items() if is_cordoned(item)} == {self.roles.cordoned}
        failed = {name for name, states in observer.states.items() if FAILED in states}
        assert failed == set(self.broken)
        limit = math.ceil(len(observer.names) * self.max_unavailable / 100)
        assert observer.most_away <= limit, f"{observer.most_away} of {limit}"
        await self._evicted(mark, web)
        await self._bought(mark)
        accusing = "object changed by another client"
        accused = [line for line in self.cluster.system.log() if line.get("event") == accusing]
        assert not accused, f"{accused}"
        return observer

    async def _change_driver(self, version: str, **driver: Any) -> None:
        body = {"spec": {"driver": {"version": version} | driver}}
        await self.cluster.api.patch(self.fleet.policy, body)

    async def _join(self) -> None:
        """Let the static nodes join; half of those without a role are in each pool."""
        self.cluster.nodes[""] = dataclasses.replace(self.cluster.agent, beside_report=None)
        roles: list[dict[str, int]] = [{"cpu": 4}, {"pods": 0}, {}, {}, {}]
        broken = math.ceil(self.static / 10)
        plain = self.static - len(roles) - broken
        found: list[list[str]] = []
        groups = [
            *((f"fleet-{number}", TRAIN, 1, resources) for number, resources in enumerate(roles)),
            ("broken-fleet", TRAIN, broken, {}),
            ("train", TRAIN, plain // 2, {}),
            ("batch", BATCH, plain - plain // 2, {}),
        ]
        for prefix, pool, count, resources in groups:
            labels = {STATIC_LABEL: "true", "example.com/gpu-pool": pool}
            labels[INSTANCE_TYPE_LABEL] = "gpu-2x"
            options = {"prefix": prefix, "resources": resources, "labels": labels}
            found.append(await self.create_nodes(count, **options))
        self.names = [name for names in found for name in names]
        self.roles = Roles(*self.names[: len(roles)])
        self.broken, self.batch = found[-3], found[-1]

    async def _run_pods(self) -> None:
        """Run pods with units on some static nodes, and pods without on all of them."""
        where = {"nodeSelector": {HOSTNAME_LABEL: self.roles.held}}
        await self._deploy(HELD, 1, _using(TRAIN) | where)
        # Before others take the units of its node.
        await self._until_running({from_zero.POD: self.bought, HELD: 1})
        await self._deploy(TRAIN, len(self.names) // 4, _using(TRAIN))
        await self._deploy(BATCH, len(self.batch) // 2, _using(BATCH))
        budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": HELD}}}
        await self.cluster.api.create(self._budgets, {"metadata": {"name": HELD}, "spec": budget})
        container = {"name": "main", "image": "registry.example.com/web:1"}
        spec = {"nodeSelector": {STATIC_LABEL: "true"}, "tolerations": [{"operator": "Exists"}]}
        await self._deploy(WEB, self.static, spec | {"containers": [container]})
        await self._until_running(
            {
                from_zero.POD: self.bought,
                TRAIN: len(self.names) // 4,
                BATCH: len(self.batch) // 2,
                HELD: 1,
                WEB: self.static,
            }
        )

    async def _until_running(self, expected: dict[str, int]) -> None:
        async def run() -> bool:
            found = Counter([app for app, _ in (await self._running()).values()])
            assert found == expected, f"{found}"
            return True

        await polling.eventually(run, what=f"{expected} run", within=PATIENCE_S, every=1)

    async def _deploy(self, app: str, replicas: int, spec: Json) -> None:
        labels = {"app": app}
        template = {"metadata": {"labels": labels}, "spec": spec}
        body = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
        path = f"/apis/apps/v1/namespaces/{self.namespace}/deployments"
        await self.cluster.api.create(path, {"metadata": {"name": app}, "spec": body})

    async def _running(self) -> dict[str, tuple[str, str]]:
        """Return app and node of the pods that run, by UID."""
        listed = (await self.cluster.api.get(pods.collection(self.namespace)))["items"]
        return {
            item["metadata"]["uid"]: (item["metadata"]["labels"]["app"], item["spec"]["nodeName"])
            for item in listed
            if pods.is_running(item) and "app" in item["metadata"].get("labels", {})
        }

    async def _uids(self, app: str) -> set[str]:
        """Return the UIDs of the pods of an app, but for those on the node that leaves."""
        found = await self._running()
        return {
            uid for uid, item in found.items() if item[0] == app and item[1] != self.roles.leaving
        }

    @property
    def _budgets(self) -> str:
        return f"/apis/policy/v1/namespaces/{self.namespace}/poddisruptionbudgets"

    async def _upgraded(self) -> "list[str]":
        return [
            name for name, found in (await self.fleet.drivers()).items() if found == self.version
        ]

    async def _begun(self, names: "Iterable[str]") -> str:
        """Return the first of these nodes that an upgrade has cordoned."""
        expected = list(names)

        async def is_begun() -> str:
            found = await self.fleet.nodes(expected)
            return next((name for name in expected if is_cordoned(found[name])), "")

        return await polling.eventually(
            is_begun, what=f"one of {expected} is cordoned", within=PATIENCE_S
        )

    async def _karpenter_is_away(self) -> None:
        """Stop Karpenter until some nodes are upgraded, and the server, too; a pod comes that no returning unit can serve."""
        await self.cluster.autoscaler.stop()
        pair = from_zero.a_pod(self.namespace, "pair", units=2)
        await self.cluster.api.create(pods.collection(self.namespace), pair)

        async def are_done() -> bool:
            return len(await self._upgraded()) >= 2

        await polling.eventually(are_done, what="two nodes are upgraded", within=PATIENCE_S)
        await self.cluster.system.crash_server()
        await self.cluster.system.server.start()
        await self.cluster.autoscaler.start()

    async def _node_leaves(self) -> None:
        await self._begun([self.roles.leaving])
        await nodes.delete_nodes(self.cluster.api, [self.roles.leaving])

    async def _pool_gets_a_taint(self) -> None:
        await self._begun(self.batch)
        taints = {"spec": {"scheduling": {"taints": [_taint(BATCH)]}}}
        await self.cluster.api.patch(f"{POOLS}/{BATCH}", taints)

        async def have_it() -> bool:
            found = await self.fleet.nodes(self.batch)
            odd = [
                name for name in found if _taint(BATCH) not in found[name]["spec"].get("taints", ())
            ]
            assert not odd, f"{odd}"
            return True

        await polling.eventually(have_it, what=f"the taint of {BATCH}")

    async def _driver_object_claims_nodes(self) -> None:
        """Create an NVIDIADriver for the nodes of the ClusterPolicy: it says that they have a driver, and changes nothing."""
        body = {
            "apiVersion": "nvidia.com/v1alpha1",
            "kind": "NVIDIADriver",
            "metadata": {"name": DRIVER_OBJECT},
            "spec": {
                "driverType": "gpu",
                "repository": "nvcr.io/nvidia",
                "image": "driver",
                "version": "590.1",
                "nodeSelector": {STATIC_LABEL: "true"},
            },
        }
        await self.cluster.api.create(NVIDIA_DRIVERS, body)
        path = f"{NVIDIA_DRIVERS}/{DRIVER_OBJECT}"

        async def is_off() -> bool:
            status = await self.cluster.api.status(path)
            assert status.get("state") == "disabled", f"{status}"
            texts = [item["message"] for item in status["conditions"]]
            expected = f"ClusterPolicy {POLICY} describes the driver of all nodes"
            assert any(expected in text for text in texts), f"{texts}"
            return True

        await polling.eventually(is_off, what=f"NVIDIADriver {DRIVER_OBJECT} says why it is off")

    async def _karpenters_nodes_are_kept(self) -> None:
        node = await self._begun(self.claims)

        async def is_kept() -> bool:
            item = (await self.fleet.nodes([node]))[node]
            return bool(item["metadata"]["annotations"].get(DO_NOT_DISRUPT_ANNOTATION) == "true")

        await polling.eventually(is_kept, what=f"{node} is kept from Karpenter")

    async def _named(self) -> None:
        """Check what the nodes say that have not got the driver."""
        texts = {
            "small": ("DriverKeptAway", "its pod requests 5000m of cpu"),
            "full": ("NoDriverPod", "Too many pods"),
            "held": ("EvictionRefused", f"budget {HELD} allows no disruption now"),
        }
        for role, (reason, text) in texts.items():
            entry = await self.fleet.entry(getattr(self.roles, role), reason)
            assert text in entry["message"], f"{entry}"
        await self.fleet.until(self.broken, FAILED)
        for name in self.broken:
            entry = await self.fleet.entry(name, "DriverCrashes")
            assert "restarted 11 times" in entry["message"], f"{entry}"
        named = {*self.broken, *(getattr(self.roles, role) for role in texts)}
        odd = (await self.fleet.entries()).keys() - named
        assert not odd, f"{odd}"
        small, held = self.roles.small, self.roles.held
        assert (await self.fleet.drivers())[small] == FIRST
        found = await self.fleet.nodes([small, held])
        assert (is_cordoned(found[small]), is_cordoned(found[held])) == (False, True)
        events = await self.fleet.events(small)
        assert any("5000m of cpu" in event["note"] for event in events), f"{events}"

    async def _mend(self) -> None:
        """Do what the messages ask for."""
        api = self.cluster.api
        await nodes.set_extended_resources(api, self.roles.small, {"cpu": 64})
        await nodes.set_extended_resources(api, self.roles.full, {"pods": 110})
        await api.patch(f"{self._budgets}/{HELD}", {"spec": {"minAvailable": 0}})

    async def _evicted(self, mark: int, web: set[str]) -> None:
        """Check that only users of the driver were evicted, and only by the upgrade; and that they run again."""
        tried = await self.audit.writes(mark, resource="pods/eviction")
        assert not [item for item in tried if item.status == 429], "the budget was read before"
        evictions = [item for item in tried if item.succeeded]
        odd = [
            item
            for item in evictions
            if item.user != SERVER_USER or not item.name.startswith(USERS)
        ]
        assert not odd, f"{odd}"
        assert await self._uids(WEB) >= web
        self.evictions = len(evictions)

        async def run_again() -> bool:
            found = Counter(app for app, _ in (await self._running()).values())
            assert found[from_zero.POD] == self.bought, f"{found}"
            return True

        await polling.eventually(run_again, what="the evicted pods run")

    async def _bought(self, mark: int) -> None:
        """Check that no node was bought but the one of the pair, and that pods waited for units that return."""
        await pods.wait_for_pod(self.cluster.api, self.namespace, "pair", pods.is_running)
        found = await karpenter.claims_of(self.cluster.api, LLM)
        kept = {
            item["metadata"]["uid"] for item in found if "deletionTimestamp" not in item["metadata"]
        }
        assert kept >= set(self.claims.values())
        writes = await self.audit.writes(mark, resource="nodeclaims")
        made = Counter(item.verb for item in writes if item.succeeded and not item.dry_run)
        assert (made["create"], made["delete"]) == (1, 0), f"{made}"
        listed = await self.cluster.api.get(f"{EVENTS}/{self.namespace}/events")
        waited = {
            item["regarding"]["name"]
            for item in listed["items"]
            if "DriverUpgrade" in item.get("note", "")
        }
        assert any(name.startswith(from_zero.POD) for name in waited), f"{waited}"


USERS: Final = (TRAIN, BATCH, HELD, from_zero.POD)
"""Apps whose pods have devices."""


def _using(pool: str) -> Json:
    """Return the spec of a pod with a unit of a pool."""
    limits = {"limits": {f"{RESOURCE_PREFIX}{pool}": "1"}}
    container = {"name": "main", "image": "registry.example.com/train:1", "resources": limits}
    return {"containers": [container]}


def _taint(pool: str) -> Json:
    return {"key": f"pool.gpu.deckhouse.io/{pool}", "effect": "NoSchedule"}
