"""`kubectl gpu nodes`: a row of devices for each node, as the leader last wrote their states."""

from collections import defaultdict
from enum import Enum
from typing import TYPE_CHECKING, Final, final

from api.foreign.core import Node
from api.kinds.gpudevice import GPUDevice, LastXid
from api.names import PoolName, pool_node_label
from inventory.display_state import DisplayState, display_state_of
from kube.resources import GPU_DEVICES, NODES
from kubectl_gpu import verb_flags
from kubectl_gpu.answer_forms import (
    Cell,
    Document,
    Entry,
    Table,
    TableColumn,
    TableLayout,
    Tone,
    structured,
    table_text,
    wrapped,
)
from kubectl_gpu.cluster_source import ListQuery
from kubectl_gpu.errors import NotFoundError
from kubectl_gpu.exit_codes import ANSWERED
from kubectl_gpu.waiting.pool_reading import read_devices
from kubectl_gpu.watching import Entries

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from kubectl_gpu.cluster_lists import ClusterLists
    from kubectl_gpu.terminal import Terminal

_COLUMNS: Final = (
    TableColumn("NODE"),
    TableColumn("DEVICES"),
    TableColumn("TOTAL", is_number=True, sacrifice=3),
    TableColumn("USED", is_number=True, sacrifice=4),
    TableColumn("RESERVED", is_number=True, sacrifice=5),
    TableColumn("FREE", is_number=True, sacrifice=1),
    TableColumn("STATE", sacrifice=2),
    TableColumn("POOLS", sacrifice=6),
    TableColumn("PRODUCTS", is_wide=True),
)


_READY: Final = "Ready"


class DeviceGlyph(Enum):
    """How a device is drawn in a row, and the same in ASCII; the names are those of `DisplayState`."""

    FREE = ("□", ".")
    RESERVED = ("◇", "r")
    PARTLY_USED = ("◧", "+")
    USED = ("■", "#")
    DRAINING = ("▽", "d")
    FAULTED = ("✗", "x")
    NOT_IN_A_POOL = ("·", "-")

    def text(self, terminal: "Terminal") -> str:
        return self.value[0] if terminal.has_unicode else self.value[1]


_ALLOCATING: Final = frozenset(
    state.word
    for state in (
        DisplayState.FREE,
        DisplayState.RESERVED,
        DisplayState.PARTLY_USED,
        DisplayState.USED,
    )
)
"""Devices whose free units pods get."""


@final
class ListedDevice(Entry, frozen=True, kw_only=True):
    """A device of a node."""

    name: str
    look: str
    """free, reserved, partly used, used, draining, faulted, or in no pool."""
    pool: str
    product: str
    uuid: str
    address: str
    units: int
    used: int
    reserved: int
    last_xid: LastXid | None


@final
class ListedNode(Entry, frozen=True, kw_only=True):
    """A node with its devices, in the order of their PCI addresses."""

    name: str
    state: str
    """Ready, NotReady, Cordoned, or Unknown where nodes may not be listed; in words of kubectl."""
    total: int
    """Units of the devices that are in a pool."""
    used: int
    reserved: int
    free: int
    """Units that pods may get; none of a node that is not ready, or cordoned."""
    pools: tuple[str, ...]
    devices: tuple[ListedDevice, ...]


@final
class NodeDevicesList(Document, frozen=True, kw_only=True):
    """Document of the verb `nodes`."""

    items: tuple[ListedNode, ...]


def run_nodes(arguments: "Sequence[str]", terminal: "Terminal") -> int:
    """List nodes and their devices."""
    parser = verb_flags.verb_parser("nodes", "List nodes with the state of each device.")
    parser.add_argument("nodes", nargs="*", metavar="NODE", help="these nodes alone")
    parser.add_argument("--pool", metavar="POOL", help="devices of this pool alone")
    verb_flags.add_selector_flag(parser, "nodes")
    verb_flags.add_watch_flag(parser)
    given = verb_flags.parse_verb(parser, arguments)
    return verb_flags.run_on_cluster(given, terminal, lambda lists: _answer(lists, given, terminal))


def _answer(lists: "ClusterLists", given: "argparse.Namespace", terminal: "Terminal") -> Entries:
    answer = NodeDevicesList(items=_nodes(lists, given))
    text = structured(answer, (f"node/{item.name}" for item in answer.items), form=given.output)
    return Entries(text if text is not None else _table(answer, given, terminal), ANSWERED)


def _nodes(lists: "ClusterLists", given: "argparse.Namespace") -> tuple[ListedNode, ...]:
    """Read devices and nodes.

    Raises:
        ForbiddenError: devices may not be listed.
        NotFoundError: there is no node of a given name that has a device.
    """
    devices = _devices(lists, pool=given.pool)
    states = _states(lists, pool=given.pool, labels=given.selector)
    if given.selector:
        # Labels are the Node's: without its list no device can be chosen by them.
        devices = {name: item for name, item in devices.items() if name in (states or ())}
    missing = set(given.nodes) - devices.keys()
    if missing:
        raise NotFoundError(
            f"no device is on node {', '.join(sorted(missing))}; `kubectl gpu nodes` lists the nodes"
        )
    return tuple(
        listed_node(name, item, state=_state_of(name, states))
        for name, item in sorted(devices.items())
        if not given.nodes or name in given.nodes
    )


def _devices(lists: "ClusterLists", *, pool: str | None) -> "dict[str, list[ListedDevice]]":
    found: defaultdict[str, list[ListedDevice]] = defaultdict(list)

    def take(device: GPUDevice) -> None:
        found[device.node].append(listed_device(device))

    if pool is None:
        lists.read(ListQuery(GPU_DEVICES), GPUDevice, take)
    else:
        read_devices(lists, pool, take)
    return found


def _states(lists: "ClusterLists", *, pool: str | None, labels: str) -> "dict[str, str] | None":
    """Return the state of each node; None where nodes may not be listed."""
    selector = [] if pool is None else [pool_node_label(PoolName(pool))]
    selector += [labels] if labels else []
    query = ListQuery(NODES, labels=",".join(selector))

    def name_and_state(node: Node) -> tuple[str, str]:
        return node.metadata.name, _state(node)

    listed = lists.read_if_allowed(query, Node, name_and_state, without="their states are unknown")
    return None if listed is None else dict(listed)


def _state(node: Node) -> str:
    if not node.is_ready:
        return "NotReady"
    return "Cordoned" if node.spec.unschedulable else _READY


def _state_of(name: str, states: "dict[str, str] | None") -> str:
    return "Unknown" if states is None else states.get(name, "Missing")


def listed_device(device: GPUDevice) -> ListedDevice:
    status = device.status
    return ListedDevice(
        name=device.name,
        look=display_state_of(device).word,
        pool=status.pool_ref.name if status.pool_ref is not None else "",
        product=status.product,
        uuid=status.uuid,
        address=status.pci.address,
        units=status.units.capacity,
        used=status.units.allocated,
        reserved=status.units.reserved,
        last_xid=status.last_xid,
    )


def listed_node(name: str, devices: "Sequence[ListedDevice]", *, state: str) -> ListedNode:
    pooled = [device for device in devices if device.pool]
    is_open = state in {_READY, "Unknown"}
    return ListedNode(
        name=name,
        state=state,
        total=sum(item.units for item in pooled),
        used=sum(item.used for item in pooled),
        reserved=sum(item.reserved for item in pooled),
        free=sum(
            item.units - item.used - item.reserved for item in pooled if item.look in _ALLOCATING
        )
        if is_open
        else 0,
        pools=tuple(sorted({item.pool for item in pooled})),
        devices=tuple(sorted(devices, key=lambda device: (device.address, device.name))),
    )


def _table(answer: NodeDevicesList, given: "argparse.Namespace", terminal: "Terminal") -> str:
    if not answer.items:
        return "There is no node with a device.\n"
    glyphs = {state.word: DeviceGlyph[state.name].text(terminal) for state in DisplayState}
    table = Table(_COLUMNS)
    for item in answer.items:
        row = "".join(glyphs[device.look] for device in item.devices)
        products = sorted({device.product for device in item.devices if device.product})
        table.rows.append(
            (
                item.name,
                row,
                str(item.total),
                str(item.used),
                str(item.reserved),
                Cell(str(item.free), Tone.GOOD if item.free else Tone.PLAIN),
                Cell(item.state, Tone.PLAIN if item.state == _READY else Tone.WARNING),
                ",".join(item.pools) or "-",
                ", ".join(products),
            )
        )
    layout = TableLayout(is_wide=given.output == "wide", has_header=not given.no_headers)
    printed = {device.look for item in answer.items for device in item.devices}
    legend = "  ".join(
        f"{glyphs[state.word]} {state.word}" for state in DisplayState if state.word in printed
    )
    lines = wrapped(f"DEVICES by PCI address: {legend}", terminal, hang="  ")
    return table_text(table, terminal, layout) + "".join(f"{line}\n" for line in lines)
