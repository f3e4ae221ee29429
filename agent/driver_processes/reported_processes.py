"""What the node reports of the processes with the driver open: pure.

Pods that request devices are left out, since their requests say so, and operands, which leave by their label before the driver
is unloaded. A pod, or the processes of one name that are in no pod, count from the second reading in a row on: who looks at a
device for a moment, as `nvidia-smi` does, keeps no driver.

A pod that is gone, or has ended, with processes left is reported whatever it requested: nothing else knows of it.
"""

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from api.kinds.gpunodeinventory import DriverProcess
from api.names import PodUid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from agent.driver_processes.open_drivers import OpenProcess
    from agent.kubelet.node_pods import NodePod

Reading: TypeAlias = "Mapping[OpenProcess, PodUid | None]"
"""Process with the driver open -> its pod; None: it is in none."""


class _Holder(NamedTuple):
    """A pod, or processes of one name that are in none."""

    uid: PodUid | None
    command: str
    """Empty for a pod."""


def reported_processes(
    reading: "Reading",
    before: "Reading",
    *,
    current: "Iterable[DriverProcess]",
    pod_of: "Callable[[PodUid], NodePod | None]",
    namespace: str,
) -> "list[DriverProcess]":
    """Return the entries of `status.driverProcesses`, processes in no pod first.

    Args:
        reading: what has the driver open now.
        before: the reading before this one.
        current: the entries of before: what is still true of them stays, with the names of pods that are gone since.
        pod_of: returns a pod of this node; None: it is gone, or has never been.
        namespace: of operands: no pod of another one leaves by a label.
    """
    recorded = {_holder_of(item): item for item in current}
    earlier = _by_holder(before)
    entries: list[DriverProcess] = []
    for holder, processes in _by_holder(reading).items():
        if holder not in earlier:
            continue
        if holder.uid is None:
            entries.append(_of_node(processes, earlier[holder], recorded.get(holder)))
        elif not _is_attributed(pod := pod_of(holder.uid), namespace):
            entries.append(_of_pod(holder.uid, processes, current=recorded.get(holder), pod=pod))
    return sorted(entries, key=lambda entry: (entry.namespace, entry.pod, entry.uid, entry.command))


def _holder_of(entry: DriverProcess) -> _Holder:
    return _Holder(PodUid(entry.uid), "") if entry.uid else _Holder(None, entry.command)


def _by_holder(reading: "Reading") -> "dict[_Holder, list[OpenProcess]]":
    found: dict[_Holder, list[OpenProcess]] = defaultdict(list)
    for process, uid in sorted(reading.items(), key=lambda item: item[0]):
        found[_Holder(uid, "" if uid else process.command)].append(process)
    return dict(found)


def _is_attributed(pod: "NodePod | None", namespace: str) -> bool:
    if pod is None or pod.is_ended:
        return False
    return pod.requests_devices or (pod.has_deploy_label and pod.namespace == namespace)


def _of_pod(
    uid: PodUid,
    processes: "Sequence[OpenProcess]",
    *,
    current: DriverProcess | None,
    pod: "NodePod | None",
) -> DriverProcess:
    command = processes[0].command
    namespace, name = ("", "") if pod is None else (pod.namespace, pod.name)
    if current is not None:
        if any(process.command == current.command for process in processes):
            command = current.command
        if pod is None:
            namespace, name = current.namespace, current.pod
    return DriverProcess(command=command, namespace=namespace, pod=name, uid=uid)


def _of_node(
    processes: "Sequence[OpenProcess]",
    before: "Sequence[OpenProcess]",
    current: DriverProcess | None,
) -> DriverProcess:
    lasting = sorted({process.pid for process in processes} & {item.pid for item in before})
    if current is not None and current.pid in lasting:
        return current
    return DriverProcess(command=processes[0].command, pid=lasting[0] if lasting else 0)
