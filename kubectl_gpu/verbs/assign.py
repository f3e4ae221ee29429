"""`kubectl gpu approve`, `release`, `move` and `drain`: an operator's decision on devices, as a PATCH with the user's rights.

The rules are those of the control plane's admission: every PATCH is made as a dry run first, so that either all devices
change or none does. Only what admission lets through on purpose is refused here: approval of a device of another pool.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import msgspec

from api.kinds.gpudevice import GPUDevice
from api.kinds.gpunodeinventory import GPUNodeInventory
from api.names import ASSIGNMENT_ANNOTATION, IGNORE_LABEL
from api.status_conditions import find_condition
from api.text import listed
from cli.command_parser import CommandLineError, CommandParser
from kube.resources import GPU_DEVICES, GPU_NODE_INVENTORIES
from kubectl_gpu import answer_forms, verb_flags
from kubectl_gpu.cluster_lists import ClusterLists, read_object
from kubectl_gpu.cluster_source import ListQuery
from kubectl_gpu.errors import ChangeRefusedError, NotFoundError
from kubectl_gpu.exit_codes import ANSWERED, NO
from kubectl_gpu.terminal import PROGRAM
from telemetry.conditions import DeviceCondition

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Sequence

    from kubectl_gpu.kubectl import KubectlProxy
    from kubectl_gpu.terminal import Terminal

_QUEUE: Final = (
    answer_forms.TableColumn("DEVICE"),
    answer_forms.TableColumn("NODE"),
    answer_forms.TableColumn("PRODUCT", sacrifice=1),
    answer_forms.TableColumn("POOLS"),
)


@final
@dataclass(frozen=True, slots=True)
class DevicePatch:
    """Metadata of a device to merge, and what it brings about."""

    device: str
    metadata: dict[str, dict[str, str | None]]
    text: str

    @property
    def body(self) -> bytes:
        return msgspec.json.encode({"metadata": self.metadata})


def approval(device: GPUDevice, pool: str, candidates: "Sequence[str]") -> DevicePatch | str:
    """Return the change by which a device joins a pool, or why there is none.

    Args:
        device: the device.
        pool: that the user named; empty where the only candidate is meant.
        candidates: pools that the device may join by a decision.
    """
    ref = device.status.pool_ref
    if ref is not None and ref.name == pool:
        return f"it is in pool {pool} already"
    if ref is not None:
        to = pool or "POOL"
        return f"it is in pool {ref.name}{_use(device)}: `{PROGRAM} move {device.name} {to}`"
    if not pool and len(candidates) > 1:
        return f"pools {listed(candidates)} select it: name one of them behind it"
    if not pool and not candidates:
        condition = find_condition(device.status.conditions, DeviceCondition.ASSIGNED)
        return f"it waits for no decision: {condition.message if condition else 'no pool was matched yet'}"
    name = pool or candidates[0]
    metadata: dict[str, dict[str, str | None]] = {"annotations": {ASSIGNMENT_ANNOTATION: name}}
    if device.is_ignored:
        metadata["labels"] = {IGNORE_LABEL: None}
    return DevicePatch(device.name, metadata, f"approved for pool {name}")


def move(device: GPUDevice, pool: str) -> DevicePatch | str:
    """Return the change by which a device of one pool comes into another one, or why there is none."""
    ref = device.status.pool_ref
    if ref is None:
        return f"it is in no pool: `{PROGRAM} approve {device.name} {pool}`"
    if ref.name == pool:
        return f"it is in pool {pool} already"
    text = f"leaves pool {ref.name} once no pod uses it{_use(device)}, and joins pool {pool}"
    return DevicePatch(device.name, {"annotations": {ASSIGNMENT_ANNOTATION: pool}}, text)


def release(device: GPUDevice) -> DevicePatch | str:
    """Return the change by which a device loses its approval, or why there is none."""
    if device.assignment is None:
        ref = device.status.pool_ref
        if ref is None:
            return "it has no approval"
        return f"pool {ref.name} takes it without approval: `{PROGRAM} drain {device.name}` keeps it out"
    text = f"no longer approved for pool {device.assignment}{_leaving(device)}"
    return DevicePatch(device.name, {"annotations": {ASSIGNMENT_ANNOTATION: None}}, text)


def drain(device: GPUDevice) -> DevicePatch | str:
    """Return the change by which a device leaves its pool and joins none, or why there is none."""
    if device.is_ignored:
        return f"it is out of all pools already: `{PROGRAM} approve {device.name} POOL` ends that"
    text = f"kept out of all pools{_leaving(device)}"
    return DevicePatch(device.name, {"labels": {IGNORE_LABEL: "true"}}, text)


def _leaving(device: GPUDevice) -> str:
    ref = device.status.pool_ref
    return f": leaves pool {ref.name} once no pod uses it{_use(device)}" if ref is not None else ""


def _use(device: GPUDevice) -> str:
    units = device.status.units
    used = units.allocated + units.reserved
    return f" ({used} of {units.capacity} units are in use)" if used else ""


def run_approve(arguments: "Sequence[str]", terminal: "Terminal") -> int:
    """Let devices join a pool; without arguments, list those that wait for a decision."""
    parser = _parser("approve", "Let a device, or those of a node, join a pool.", is_optional=True)
    parser.add_argument("pool", nargs="?", default="", metavar="POOL", help="that it is to join")
    given = parser.parse_flags(arguments)
    with verb_flags.open_cluster(given) as cluster:
        if given.target is None:
            terminal.write(_queue(ClusterLists(cluster), terminal))
            return ANSWERED
        devices = _devices(cluster, given.target)
        of_node: dict[str, dict[str, list[str]]] = {}
        if not given.pool:
            of_node = {node: _candidates(cluster, node) for node in {item.node for item in devices}}

        def decide(device: GPUDevice) -> DevicePatch | str:
            candidates = of_node.get(device.node, {}).get(device.name, [])
            return approval(device, given.pool, candidates)

        return _apply(cluster, terminal, given, decided=_decided(devices, decide))


def run_move(arguments: "Sequence[str]", terminal: "Terminal") -> int:
    """Let devices of one pool come into another one."""
    parser = _parser("move", "Let a device, or those of a node, come from one pool into another.")
    parser.add_argument("pool", metavar="POOL", help="that it is to join")
    given = parser.parse_flags(arguments)
    return _run(given, terminal, lambda device: move(device, given.pool))


def run_release(arguments: "Sequence[str]", terminal: "Terminal") -> int:
    """Take the approval of devices away."""
    text = "Take the approval of a device, or of those of a node, away."
    return _run(_parser("release", text).parse_flags(arguments), terminal, release)


def run_drain(arguments: "Sequence[str]", terminal: "Terminal") -> int:
    """Keep devices out of all pools."""
    text = "Let a device, or those of a node, leave their pool, and join none before approval."
    return _run(_parser("drain", text).parse_flags(arguments), terminal, drain)


def _decided(
    devices: "Iterable[GPUDevice]", decide: "Callable[[GPUDevice], DevicePatch | str]"
) -> "dict[str, DevicePatch | str]":
    return {device.name: decide(device) for device in devices}


def _parser(verb: str, description: str, *, is_optional: bool = False) -> CommandParser:
    parser = CommandParser(verb, description, program=PROGRAM)
    parser.add_argument(
        "target",
        nargs="?" if is_optional else None,
        metavar="DEVICE|NODE",
        help="a GPUDevice, or a node with all of its devices",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="let the API server check the PATCH, and print it"
    )
    verb_flags.add_cluster_flags(parser)
    return parser


def _run(
    given: "argparse.Namespace",
    terminal: "Terminal",
    decide: "Callable[[GPUDevice], DevicePatch | str]",
) -> int:
    with verb_flags.open_cluster(given) as cluster:
        devices = _devices(cluster, given.target)
        return _apply(cluster, terminal, given, decided=_decided(devices, decide))


def _apply(
    cluster: "KubectlProxy",
    terminal: "Terminal",
    given: "argparse.Namespace",
    *,
    decided: "dict[str, DevicePatch | str]",
) -> int:
    """Make the changes, all or none; devices of a node for which there is none are named and left alone."""
    changes = [item for item in decided.values() if isinstance(item, DevicePatch)]
    for name, item in decided.items():
        if isinstance(item, str):
            terminal.print_error(f"{name} is left as it is: {item}")
    try:
        for change in changes:
            cluster.patch(GPU_DEVICES, change.device, change.body, is_dry=True)
        for change in changes:
            if given.dry_run:
                path = GPU_DEVICES.path(None, change.device)
                terminal.write(f"dry run: PATCH {path} {change.body.decode()}\n")
            else:
                cluster.patch(GPU_DEVICES, change.device, change.body, is_dry=False)
            terminal.write(f"{change.device}: {change.text}\n")
    except ChangeRefusedError as error:
        terminal.print_error(error)
        return NO
    return ANSWERED if changes else NO


def _devices(cluster: "KubectlProxy", target: str) -> "list[GPUDevice]":
    """Read the device of this name, or those of the node of this name.

    Raises:
        NotFoundError: there is neither.
    """
    try:
        body = cluster.object(GPU_DEVICES, target)
        return [read_object(body, GPUDevice, subject=f"GPUDevice {target}")]
    except NotFoundError:
        query = ListQuery(GPU_DEVICES)
    lists = ClusterLists(cluster)
    found = lists.read(query, GPUDevice, lambda item: item if item.node == target else None)
    if not found:
        raise NotFoundError(
            f"there is no device {target}, and none on a node of this name; `{PROGRAM} nodes` lists them"
        )
    return sorted(found, key=lambda device: device.status.pci.address)


def _candidates(cluster: "KubectlProxy", node: str) -> "dict[str, list[str]]":
    """Return device -> pools that it may join by a decision, as the leader last wrote them."""
    try:
        body = cluster.object(GPU_NODE_INVENTORIES, node)
    except NotFoundError as error:
        raise CommandLineError(f"node {node} has no GPUNodeInventory: name the pool") from error
    return pools_by_device(read_object(body, GPUNodeInventory, subject=f"GPUNodeInventory {node}"))


def pools_by_device(inventory: GPUNodeInventory) -> "dict[str, list[str]]":
    found: dict[str, list[str]] = {}
    for entry in inventory.status.pools.candidates or ():
        for device in entry.devices:
            found.setdefault(device, []).append(entry.pool)
    return found


def _queue(lists: ClusterLists, terminal: "Terminal") -> str:
    """Return the table of all devices that wait for a decision."""
    query = ListQuery(GPU_NODE_INVENTORIES)
    waiting: dict[str, list[str]] = {}
    for found in lists.read(query, GPUNodeInventory, pools_by_device):
        waiting |= found
    if not waiting:
        return "No device waits for a decision.\n"
    table = answer_forms.Table(_QUEUE)
    devices = lists.read(ListQuery(GPU_DEVICES), GPUDevice, lambda item: item)
    for device in sorted(devices, key=lambda item: (item.node, item.status.pci.address)):
        if pools := waiting.get(device.name):
            table.rows.append((device.name, device.node, device.status.product, ", ".join(pools)))
    layout = answer_forms.TableLayout(is_wide=False, has_header=True)
    return answer_forms.table_text(table, terminal, layout)
