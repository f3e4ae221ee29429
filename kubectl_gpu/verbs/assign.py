"""`kubectl gpu approve`, `release`, `move` and `drain`: an operator's decision on devices, as a PATCH with the user's rights.

`inventory.assignment.device_decisions` says what is written. Every PATCH is made as a dry run first, so that either all
devices change or none does.
"""

from typing import TYPE_CHECKING, Final

from api.kinds.gpudevice import GPUDevice
from api.kinds.gpunodeinventory import GPUNodeInventory
from api.status_conditions import find_condition
from cli.command_parser import CommandLineError, CommandParser
from inventory.assignment.device_decisions import (
    DevicePatch,
    approval,
    drain,
    move,
    pools_by_device,
    release,
)
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
            assigned = find_condition(device.status.conditions, DeviceCondition.ASSIGNED)
            return approval(device, given.pool, candidates, assigned=assigned)

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
