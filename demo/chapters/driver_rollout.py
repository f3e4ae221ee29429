"""The demo's last chapters: a ClusterPolicy brings the software of nodes that differ, and a new driver goes over them."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final

from api.driver_upgrade import UNITS_WITHHELD_ANNOTATION, UPGRADE_STATE_LABEL, UpgradeState
from api.foreign.core import Node, Pod
from api.kinds.nvidia.clusterpolicy import ClusterPolicy, ClusterPolicyState
from api.kinds.nvidia.operator_status import StateReadiness
from demo.node_programs import NAME_LABEL
from demo.objects import a_pod
from demo.policy_objects import (
    DEVICES_PER_NODE,
    FLEET,
    NEW_VERSION,
    NODES,
    OLD_VERSION,
    POLICY,
    POOL,
    cluster_policy,
    new_driver,
    pool,
    wait_for_pool,
)
from demo.run import LINE, DemoRun
from kube.resources import CLUSTER_POLICIES, DAEMON_SETS, GPU_POOLS, PODS
from kube.resources import NODES as NODE_RESOURCE
from manifests.constants import DEFAULT_NAMESPACE, NODE_AGENT
from operands.nvidia.states import driver

if TYPE_CHECKING:
    from api.kinds.nvidia.operator_status import StateStatus

Json = dict[str, Any]

POD: Final = "train"
DRIVER_SETS: Final = "nvidia-driver-daemonset-"
WIDTH: Final = LINE - 2
"""Characters of a line with a message."""


async def one_policy(run: DemoRun) -> None:
    """Apply a ClusterPolicy, and show its states until all are ready."""
    run.title("Beside it, in another cluster, one ClusterPolicy brings the software of two systems")
    run.say("  It has run beside the chapters above. Seconds are those that passed there.")
    for node in NODES:
        system = FLEET.systems[node]
        run.say(f"  node {node}: {system.os}, kernel {system.kernel}, {system.runtime}")
        await run.cluster.join(node)
    await run.cluster.client.create(CLUSTER_POLICIES, cluster_policy())
    run.say(f"  $ kubectl apply -f {POLICY}.yaml    # driver {OLD_VERSION}")
    began = run.cluster.clock.monotonic()
    waiting = ClusterPolicy()

    def is_ready(policy: ClusterPolicy) -> bool:
        nonlocal waiting
        if _not_ready(policy) and (not _names_node(waiting) or _names_node(policy)):
            waiting = policy
        # Before a node is known the policy is ready, too.
        return policy.status.state is ClusterPolicyState.READY and _nodes_ready(policy) == len(
            NODES
        )

    ready = await run.until("the ClusterPolicy is ready", lambda: _policy(run), is_ready)
    seconds = run.cluster.clock.monotonic() - began
    run.check(
        "while states came up the status said what was missing, and where:",
        holds=bool(_not_ready(waiting)),
    )
    first = _not_ready(waiting)[0]
    run.say(f"  $ kubectl get clusterpolicy {POLICY} -o wide")
    state = waiting.status.state or ClusterPolicyState.NOT_READY
    run.table([("NAME", "STATUS", "NOT-READY"), (POLICY, state.value, first.name)])
    run.quote(_cut(_without_namespace(first.message), 3 * WIDTH))
    run.claim(f"{seconds:.1f} s after it was applied every state is ready:")
    running = [
        item for item in ready.status.states or () if item.state is not StateReadiness.DISABLED
    ]
    run.table([("STATE", "READY", "OBJECTS", "NODES"), *map(_state_row, running)])
    images = await _drivers(run)
    run.check(
        "the driver has a DaemonSet for each system, with the image of that system:",
        holds=len(images) == len(NODES),
    )
    for name, image in images.items():
        run.say(f"      {name}   {image}")
    run.check(
        "each node has loaded its driver",
        holds={node: f"{OLD_VERSION}-{tag}" for node, tag in _tags().items()} == _loaded(run),
    )


async def new_driver_version(run: DemoRun) -> None:
    """Change the version of the driver while a pod of a pool runs, and tell how it reaches both nodes."""
    cluster = run.cluster
    run.title(f"A new driver, {NEW_VERSION}, goes over the nodes, one at a time")
    await cluster.client.create(GPU_POOLS, pool())
    await cluster.client.merge_patch(CLUSTER_POLICIES, wait_for_pool(), name=POLICY)
    count = len(NODES) * DEVICES_PER_NODE
    await run.until_pool("has all units", POOL, lambda item: item.status.capacity.total == count)
    await cluster.create_pod(a_pod(POD, POOL, 1))
    busy = (await run.bind(POD)).spec.node_name
    run.say(f"  Pods of pool {POOL} are not evicted: an upgrade waits for their end.")
    change = f'{{"spec":{{"driver":{{"version":"{NEW_VERSION}"}}}}}}'
    run.say(f"  $ kubectl patch clusterpolicy {POLICY} --type merge -p '{change}'")
    await cluster.client.merge_patch(CLUSTER_POLICIES, new_driver(), name=POLICY)
    rollout = _Rollout(run)
    await run.until("an upgrade waits for the pod", rollout.observe, lambda _: rollout.is_waiting)
    run.check(
        f"the upgrade of node {busy} waits for the end of pod {POD}, which still runs there",
        holds=busy not in rollout.finished and (await run.pod(POD)).status.phase == "Running",
    )
    await run.finish(POD)
    await run.until("both nodes are done", rollout.observe, lambda _: len(rollout.finished) == 2)
    run.check(
        "never more than one node was away; each was withheld from placement, then cordoned",
        holds=rollout.most_away == 1
        and all(seen[:2] == ["withheld", "cordoned"] for seen in rollout.order.values()),
    )
    run.check(
        f"the node agent left each node, nothing held a replaced driver, and pod {POD} was not evicted",
        holds=rollout.left == set(NODES) and not cluster.software.held,
    )
    run.check(
        f"both nodes run driver {NEW_VERSION}, take pods again, and have their agent back",
        holds={node: f"{NEW_VERSION}-{tag}" for node, tag in _tags().items()} == _loaded(run)
        and not rollout.away
        and set(NODES) == await _agent_nodes(run),
    )


@final
@dataclass(slots=True)
class _Rollout:
    """What is seen of an upgrade; each step is reported once."""

    run: DemoRun
    finished: list[str] = field(default_factory=list)
    """Nodes with the new driver, in the order in which they came back."""
    order: dict[str, list[str]] = field(default_factory=lambda: {node: [] for node in NODES})
    """Marks by node: `withheld` and `cordoned`, in the order in which they came."""
    left: set[str] = field(default_factory=set)
    """Nodes that were seen without the node agent."""
    away: set[str] = field(default_factory=set)
    most_away: int = 0
    is_waiting: bool = False
    """Whether the end of the pod is waited for."""
    began: float = 0.0
    _reported: set[tuple[str, str, str]] = field(default_factory=set)

    async def observe(self) -> None:
        client = self.run.cluster.client
        self.began = self.began or self.run.cluster.clock.monotonic()
        agents = await _agent_nodes(self.run)
        self.left |= set(NODES) - agents
        for node in NODES:
            self._see(node, await client.get(NODE_RESOURCE, Node, node))
        self.most_away = max(self.most_away, len(self.away))
        policy = await _policy(self.run)
        for entry in policy.status.upgrade or ():
            if POD in entry.message and entry.state == "wait-for-jobs-required":
                self.is_waiting = True
            self._print_state(entry.node, entry.state, f"{entry.reason}: {entry.message}")

    def _see(self, name: str, node: Node) -> None:
        is_withheld = UNITS_WITHHELD_ANNOTATION in (node.metadata.annotations or {})
        is_cordoned = bool(node.spec.unschedulable)
        seen = ["withheld"] * is_withheld + ["cordoned"] * is_cordoned
        self.order[name] += [item for item in seen if item not in self.order[name]]
        (self.away.add if seen else self.away.discard)(name)
        is_done = node.metadata.label(UPGRADE_STATE_LABEL) == UpgradeState.UPGRADE_DONE.value
        if is_done and self.order[name] and not seen and name not in self.finished:
            self.finished.append(name)
            self._print_state(name, UpgradeState.UPGRADE_DONE.value, "the node takes pods again")

    def _print_state(self, node: str, state: str, cause: str) -> None:
        if (node, state, cause) in self._reported:
            return
        self._reported.add((node, state, cause))
        seconds = self.run.cluster.clock.monotonic() - self.began
        text = f"{seconds:4.1f} s  {node}  {state:<22}  {_without_namespace(cause)}"
        self.run.say(f"  {_cut(text, WIDTH)}")


async def _policy(run: DemoRun) -> ClusterPolicy:
    return await run.cluster.client.get(CLUSTER_POLICIES, ClusterPolicy, POLICY)


def _not_ready(policy: ClusterPolicy) -> "list[StateStatus]":
    return [item for item in policy.status.states or () if item.state is StateReadiness.NOT_READY]


def _state_row(status: "StateStatus") -> tuple[str, ...]:
    nodes = f"{status.nodes_ready} of {status.nodes_total}" if status.nodes_total else "-"
    return status.name, status.state.value, str(status.objects), nodes


async def _drivers(run: DemoRun) -> dict[str, str]:
    """Return the image of every DaemonSet of the driver, by name."""
    found = await run.cluster.client.list_(DAEMON_SETS, Json, namespace=DEFAULT_NAMESPACE)
    return {
        item["metadata"]["name"]: item["spec"]["template"]["spec"]["containers"][0]["image"]
        for item in found.items
        if item["metadata"]["name"].startswith(DRIVER_SETS)
    }


def _tags() -> dict[str, str]:
    """Return the system of each node as images are tagged."""
    return {"r1": "rhel9", "u1": "ubuntu22.04"}


def _loaded(run: DemoRun) -> dict[str, str]:
    """Return the tag of the driver that each node has loaded."""
    return {node: image.rpartition(":")[2] for node, image in run.cluster.software.drivers.items()}


async def _agent_nodes(run: DemoRun) -> set[str]:
    """Return the nodes with a pod of the node agent."""
    found = await run.cluster.client.list_(
        PODS, Pod, namespace=DEFAULT_NAMESPACE, label_selector=f"{NAME_LABEL}={NODE_AGENT}"
    )
    return {item.spec.node_name for item in found.items}


def _nodes_ready(policy: ClusterPolicy) -> int:
    """Return the nodes on which the driver is ready."""
    states = policy.status.states or ()
    return sum(state.nodes_ready for state in states if state.name == driver.NAME)


def _names_node(policy: ClusterPolicy) -> bool:
    found = _not_ready(policy)
    return bool(found) and "; node " in found[0].message


def _without_namespace(text: str) -> str:
    """Return a message without the namespace that is the same everywhere."""
    return text.replace(f"{DEFAULT_NAMESPACE}/", "")


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
