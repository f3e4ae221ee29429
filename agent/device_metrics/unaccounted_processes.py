"""Processes on devices of pools that kubelet did not give to their pods: pure.

A container gets a device without kubelet where it is privileged, mounts the node's /dev, or where NVIDIA's runtime
obeys `NVIDIA_VISIBLE_DEVICES` of any image. The control plane then counts a device as free, or as another pod's, that
is in use. A process of no pod is one of the node itself, or of a container that kubelet did not start.

**Two readings in a row.** A process counts from the second reading on that finds it, and readings are seconds apart
(`agent.device_metrics.source`): kubelet's answer about a new pod, and the watch, may be behind its first process.
Devices of no pool do not count: another device plugin may hand them out.
"""

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, final

from agent.device_metrics.holders import Holder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from agent.driver.device_fields import DeviceSample
    from api.names import PodUid

    PodOf = Callable[[PodUid], "ProcessPod | None"]
    """Returns a pod; None for one of which nothing can be said yet, or which may use any device."""


class ProcessPod(NamedTuple):
    """A pod that has a process on a device."""

    namespace: str
    """Empty, as the name is, where the agent does not know the pod."""
    name: str
    devices: "frozenset[str]"
    """UUIDs of all devices and MIG instances that kubelet gave to it, whole or in slices."""


class UnaccountedDevice(NamedTuple):
    """A device, or a MIG instance, with processes of a pod that was not given it."""

    unit: str
    """UUID of the device or instance."""
    uid: "PodUid | None"
    """UID of the pod; None for processes of no pod."""
    holder: Holder
    """The pool of the device, and the pod without its container."""


class _Process(NamedTuple):
    unit: str
    pid: int
    uid: "PodUid | None"


@final
class UnaccountedProcesses:
    """Compares a reading of the devices' processes with the one before."""

    def __init__(self) -> None:
        self._suspects: frozenset[_Process] = frozenset()

    @property
    def suspects(self) -> frozenset[int]:
        """Processes that do not seem to be accounted for since the last reading, or for longer."""
        return frozenset(suspect.pid for suspect in self._suspects)

    def judge(
        self,
        samples: "Iterable[DeviceSample]",
        *,
        owners: "Mapping[int, PodUid | None]",
        pod_of: "PodOf",
        pools: "Mapping[str, str]",
    ) -> "Counter[UnaccountedDevice]":
        """Return the processes that were found before, too, by device and pod.

        Args:
            samples: of all devices, with their processes.
            owners: pod of each process that has not exited.
            pod_of: the pods.
            pools: pool of each device, by UUID.
        """
        pods: dict[PodUid, ProcessPod | None] = {}
        before, found = self._suspects, set()
        counts: Counter[UnaccountedDevice] = Counter()
        for uuid, unit, units, pid in _processes(samples):
            pool = pools.get(uuid, "")
            if not pool or pid not in owners:
                continue
            uid = owners[pid]
            if uid is not None and uid not in pods:
                pods[uid] = pod_of(uid)
            pod = _NO_POD if uid is None else pods[uid]
            if pod is None or not units.isdisjoint(pod.devices):
                continue
            process = _Process(unit, pid, uid)
            found.add(process)
            if process in before:
                holder = Holder(pool, pod.namespace, pod.name, "")
                counts[UnaccountedDevice(unit, uid, holder)] += 1
        self._suspects = frozenset(found)
        return counts


_NO_POD = ProcessPod("", "", frozenset())


def _processes(
    samples: "Iterable[DeviceSample]",
) -> "Iterator[tuple[str, str, frozenset[str], int]]":
    """Yield UUID of the device, UUID of what the process uses, UUIDs of which one has to be the pod's, process."""
    every = list(samples)
    instances: dict[str, set[str]] = {}
    for item in every:
        if item.unit:
            instances.setdefault(item.uuid, set()).add(item.unit)
    for item in every:
        unit = item.unit or item.uuid
        # A process that the driver shows for the device as a whole may be one of an instance.
        units = frozenset({unit} if item.unit else {unit, *instances.get(item.uuid, ())})
        for pid in sorted(item.processes or ()):
            yield item.uuid, unit, units, pid
