"""The demo's chapters about operands: one is switched on, while a node lacks what it needs, and off."""

from typing import TYPE_CHECKING, Any, Final

import yaml

from api.foreign.core import Pod
from api.names import OPERAND_LABEL
from demo.node_programs import VALIDATOR
from demo.objects import NODES, SLICED_NODE
from demo.observed_node import conditions_of, inventory_of, is_condition, operand_rows
from demo.run import DemoRun
from kube.resources import PODS
from manifests.constants import DEFAULT_NAMESPACE
from reconciler.node_software.objects import BUILT_IN_RESOURCES
from reconciler.node_software.policy_controller import RECHECK_S
from reconciler.runtime.live_objects import list_objects
from telemetry.conditions import InventoryCondition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from api.kinds.gpunodeinventory import GPUNodeInventory, OperandStatus

BROKEN_NODE: Final = SLICED_NODE
GFD: Final = "gfd"
_STATE: Final = "gpu-feature-discovery"
_READY: Final = InventoryCondition.READY_FOR_POOLING
SETTINGS: "Final[Mapping[str, Any]]" = {
    GFD: {
        "enabled": True,
        "image": "registry.example.com/nvidia/k8s-device-plugin:v0.19.0",
    }
}


async def switched_on(run: DemoRun) -> None:
    """Take the toolkit from a node, switch an operand on, and show what is not ready; then put it back."""
    cluster = run.cluster
    run.title("An operand is switched on, GPU feature discovery, while a node lacks what it needs")
    run.say(f"  NVIDIA's container toolkit is removed from node {BROKEN_NODE}.")
    cluster.programs.remove_toolkit(BROKEN_NODE)
    cluster.kubelet.restart(
        await run.pod(f"{VALIDATOR}-{BROKEN_NODE}", namespace=DEFAULT_NAMESPACE)
    )
    found = await _until_nodes(run, "the node without toolkit is not ready", _is_broken)
    ready = conditions_of(found[NODES.index(BROKEN_NODE)])[_READY.value]
    run.claim(
        f"node {BROKEN_NODE}: {ready.type}={ready.status} ({ready.reason}); the others stay ready"
    )
    run.say("  Settings of the server:")
    for line in yaml.safe_dump({"bootstrap": SETTINGS}, sort_keys=False).splitlines():
        run.say(f"      {line}")
    await _switch(run, SETTINGS)
    found = await _until_nodes(run, "only that node has operands that are not ready", _are_waiting)
    run.table(operand_rows(found))
    for node, operand in _operands(found):
        if not operand.ready:
            run.say(f"  {operand.name} on node {node}:")
            run.quote(operand.message)
    run.claim(f"no other node has to wait for node {BROKEN_NODE}")
    run.say("  the toolkit is installed again")
    since = cluster.clock.monotonic()
    cluster.programs.install_toolkit(BROKEN_NODE)
    await _until_nodes(run, "all nodes are ready", _are_ready)
    elapsed_s = cluster.clock.monotonic() - since
    run.claim(
        f"{elapsed_s:.1f} s later every operand is ready on every node, and every node for pooling"
    )


async def switched_off(run: DemoRun) -> None:
    """Switch the operand off; its objects and its pods go."""
    run.title("The operand is switched off again")
    await _switch(run, {})
    await run.until(
        "the pods of GPU feature discovery are gone",
        lambda: _pods(run),
        lambda names: not names,
    )
    found = await _until_nodes(
        run,
        "GPU feature discovery is no operand of the nodes any more",
        lambda found: _are_ready(found) and all(item.name != GFD for _, item in _operands(found)),
    )
    run.claim("so are its pods; no node needs them any more, and every node stays ready:")
    run.table(operand_rows(found))


async def _switch(
    run: DemoRun,
    bootstrap: "Mapping[str, Any]",
) -> None:
    """Run the server with these settings, and tell how soon the objects of the operand are right."""
    what = "are there" if bootstrap else "are gone"
    clock = run.cluster.clock
    changed = clock.monotonic()
    before = await _objects(run)
    await run.cluster.server.restart(bootstrap)
    served = clock.monotonic()
    # The DaemonSet is the last to be applied.
    after = await run.until(
        f"the objects of the operand {what}",
        lambda: _objects(run),
        lambda kinds: "DaemonSet" in kinds if bootstrap else not kinds,
    )
    now = clock.monotonic()
    run.check(
        f"the server has restarted after {served - changed:.1f} s, and {now - served:.1f} s later the"
        f" operand's objects {what}:",
        holds=now - served < RECHECK_S,
    )
    run.quote(f"{', '.join(after or before)} gpu-feature-discovery")


async def _objects(run: DemoRun) -> list[str]:
    """Return the kinds of the objects of GPU feature discovery."""
    live = await list_objects(
        run.cluster.client,
        BUILT_IN_RESOURCES,
        namespace=DEFAULT_NAMESPACE,
        label_selector=OPERAND_LABEL,
    )
    return [
        kind
        for (kind, _), item in live.objects.items()
        if item["metadata"]["labels"][OPERAND_LABEL] == _STATE
    ]


async def _pods(run: DemoRun) -> "list[str]":
    found = await run.cluster.client.list_(
        PODS, Pod, namespace=DEFAULT_NAMESPACE, label_selector=f"{OPERAND_LABEL}={_STATE}"
    )
    return [item.metadata.name for item in found.items]


async def _until_nodes(
    run: DemoRun, subject: str, holds: "Callable[[Sequence[GPUNodeInventory]], bool]"
) -> "list[GPUNodeInventory]":
    """Return the inventories of all nodes, in the nodes' order, once they satisfy the condition."""

    async def read() -> "list[GPUNodeInventory]":
        return [await inventory_of(run.cluster, node) for node in NODES]

    return await run.until(subject, read, holds)


def _operands(
    found: "Sequence[GPUNodeInventory]",
) -> "list[tuple[str, OperandStatus]]":
    return [
        (item.metadata.name, operand) for item in found for operand in item.status.operands or ()
    ]


def _is_broken(found: "Sequence[GPUNodeInventory]") -> bool:
    return _not_ready(found) == [BROKEN_NODE]


def _are_waiting(found: "Sequence[GPUNodeInventory]") -> bool:
    """Return whether both operands run on every node, and neither is ready on the broken one."""
    ready = {(node, item.name): item.ready for node, item in _operands(found)}
    broken = found[NODES.index(BROKEN_NODE)]
    return (
        ready
        == {(node, name): node != BROKEN_NODE for node in NODES for name in ("validator", GFD)}
        and all(item.ready or _has_cause(item) for _, item in _operands(found))
        and is_condition(broken, InventoryCondition.GFD_READY, "False")
        and _is_broken(found)
    )


def _has_cause(operand: "OperandStatus") -> bool:
    """Return whether the message has more than the name of pod and container."""
    return operand.message.count(": ") > 1


def _are_ready(found: "Sequence[GPUNodeInventory]") -> bool:
    return not _not_ready(found) and all(item.ready for _, item in _operands(found))


def _not_ready(found: "Sequence[GPUNodeInventory]") -> list[str]:
    return [
        node
        for node, item in zip(NODES, found, strict=True)
        if not is_condition(item, _READY, "True")
    ]
