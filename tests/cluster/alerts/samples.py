"""An hour of samples of every metric: ours as the code declares them, and those of other programs.

Three nodes. On `n1` the pod `ml/trainer` has a whole device and works; two pods share another one. `n2` is not
ready, `ml/notebook` has a MIG instance there and does nothing; `n3` waits for feature discovery. `ml/waiting` is
pending, `ml/done` has ended.
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from prometheus_client import Counter, Histogram

from api.kinds.gkmcache import CacheConditionType
from api.kinds.gpudevice import DeviceState
from autoscaling.scaling_model import Failure, WaitReason
from pool.reservations.reservation import End, ReservationPhase
from reconciler.pool.unit_seconds import UnitState
from telemetry.conditions import PoolCondition
from telemetry.metric_declaration import DeclaredMetric, labels_of
from tests.support.exported_series import OF_NODE_STATUS_EXPORTER, declared_metrics, name_of
from tests.support.foreign_series import DCGM_FIELDS

START: Final = 1_700_000_000
STEP_S: Final = 60
COUNT: Final = 61
END: Final = START + STEP_S * (COUNT - 1)
"""When the last samples are of."""


@dataclass(frozen=True)
class Series:
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    value: float = 1.0
    growth: float = 0.0
    """A minute."""

    def lines(self) -> Iterator[str]:
        current = ",".join(f'{name}="{value}"' for name, value in self.labels.items())
        for index in range(COUNT):
            yield f"{self.name}{{{current}}} {self.value + self.growth * index} {START + STEP_S * index}\n"


_VALUES: Final[dict[str, tuple[str, ...]]] = {
    "pool": ("train", "small-units"),
    "node": ("n1", "n2"),
    "state": (
        *(item.value for kind in (DeviceState, UnitState) for item in kind),
        CacheConditionType.ERROR.value,
    ),
    "condition": tuple(condition.value for condition in PoolCondition),
    "phase": tuple(phase.value for phase in ReservationPhase),
    "reason": ("a", *sorted({item.value for kind in (Failure, WaitReason) for item in kind})),
    "result": ("ready", "failed", "cancelled"),
    "end": tuple(end.value for end in End),
    "verb": ("filter", "bind"),
    "outcome": ("ok", "failed", "refused"),
    "topology": ("any", "aligned"),
    "webhook": ("mutate-pods", "mutate-gkmcaches"),
}
"""Label -> its values; other labels have one."""


def _ours() -> Iterator[Series]:
    for metric in declared_metrics():
        if name_of(metric) not in _APART:
            names = labels_of(metric)
            for values in itertools.product(*(_VALUES.get(name, ("a",)) for name in names)):
                yield from _of_metric(metric, dict(zip(names, values, strict=True)))


def _of_metric(metric: DeclaredMetric, labels: Mapping[str, str]) -> Iterator[Series]:
    name = name_of(metric)
    match metric:
        case Counter():
            yield Series(f"{name}_total", labels, growth=1)
        case Histogram():
            for index, bound in enumerate(metric._upper_bounds, start=1):
                le = "+Inf" if bound == float("inf") else str(bound)
                yield Series(f"{name}_bucket", {**labels, "le": le}, growth=index)
            yield Series(f"{name}_count", labels, growth=len(metric._upper_bounds))
            yield Series(f"{name}_sum", labels, growth=0.5)
        case _:
            yield Series(name, labels)


_OF_NODES: Final = ("gpu_bootstrap_node_phase", "gpu_bootstrap_condition", "gpu_bootstrap_ready")
"""Gauges whose series differ by node."""
_APART: Final = {
    *_OF_NODES,
    "gpu_device_info",
    "gpu_device_holder",
    "gpu_node_inventory_condition",
    "gpu_agent_plugin_registered",
    "gpu_informer_synced",
}


def _of_nodes() -> Iterator[Series]:
    phase, condition, ready = _OF_NODES
    yield Series(ready, {"node": "n1"}, 1)
    yield Series(ready, {"node": "n2"}, 0)
    yield Series(phase, {"node": "n1", "phase": "Ready"})
    yield Series(phase, {"node": "n2", "phase": "Validating"})
    yield Series(phase, {"node": "n3", "phase": "GFD"})
    for node, item in (
        ("n1", "ReadyForPooling"),
        ("n1", "GFDReady"),
        ("n2", "DriverMissing"),
        ("n2", "ToolkitMissing"),
        ("n2", "MonitoringMissing"),
    ):
        yield Series(condition, {"node": node, "condition": item})
    yield Series("gpu_informer_synced", {"resource": "pods"}, 0)
    for name in OF_NODE_STATUS_EXPORTER:
        yield Series(name, {"node": "n1"})
    degraded = {"node": "n2", "condition": "AgentDegraded"}
    yield Series("gpu_node_inventory_condition", degraded)
    yield Series("gpu_agent_plugin_registered", {"resource": "gpu.deckhouse.io/train"}, 0)
    for name, value in (("gpu_build_info", 1.0), *_OF_THE_LIBRARY.items()):
        version = {"version": "1", "revision": "r"} if name == "gpu_build_info" else {}
        yield Series(name, version, value, growth=float(name.endswith("_total")))


_OF_THE_LIBRARY: Final = {"process_cpu_seconds_total": 1.0, "process_resident_memory_bytes": 1e8}


def _of_devices() -> Iterator[Series]:
    for uuid, node, pool, pod in (
        ("GPU-a", "n1", "train", "trainer"),
        ("GPU-b", "n1", "small-units", "one"),
        ("GPU-c", "n2", "small-units", "notebook"),
    ):
        about = {"uuid": uuid, "device": f"{node}-{uuid}", "node": node, "pool": pool}
        yield Series("gpu_device_info", {**about, "product": "H100"})
        yield Series("gpu_device_holder", {"uuid": uuid, "namespace": "ml", "pod": pod})
    whole = {"gpu": "0", "UUID": "GPU-a", "device": "nvidia0", "Hostname": "n1"}
    shared = {"gpu": "1", "UUID": "GPU-b", "device": "nvidia1", "Hostname": "n1"}
    # Scraped with `honorLabels` on n1; without, the page's labels are renamed, and the exporter's come first.
    instance = {
        "gpu": "0",
        "UUID": "GPU-c",
        "device": "nvidia0",
        "Hostname": "n2",
        "GPU_I_ID": "7",
        "GPU_I_PROFILE": "1g.10gb",
        "namespace": "gpu-control-plane",
        "pod": "gpu-dcgm-exporter-x",
    }
    for name in DCGM_FIELDS:
        is_busy = name == "DCGM_FI_DEV_GPU_UTIL"
        value = 80 if is_busy else 1000
        yield Series(name, {**whole, "namespace": "ml", "pod": "trainer"}, value, not is_busy)
        for pod in ("one", "other"):
            yield Series(name, {**shared, "namespace": "web", "pod": pod}, value / 2, not is_busy)
        renamed = {"exported_namespace": "ml", "exported_pod": "notebook"}
        yield Series(name, {**instance, **renamed}, 0 if is_busy else 500, not is_busy)


_PODS: Final = (
    ("ml", "trainer", "gpu_deckhouse_io_train", 2, "Running"),
    ("ml", "notebook", "gpu_deckhouse_io_small_units", 1, "Running"),
    ("ml", "waiting", "gpu_deckhouse_io_train", 8, "Pending"),
    ("ml", "done", "gpu_deckhouse_io_train", 4, "Succeeded"),
    ("web", "one", "gpu_deckhouse_io_small_units", 1, "Running"),
    ("web", "other", "gpu_deckhouse_io_small_units", 1, "Running"),
)


def _of_pods() -> Iterator[Series]:
    for namespace, pod, resource, units, now in _PODS:
        of = {"namespace": namespace, "pod": pod, "uid": f"uid-{pod}"}
        container = {**of, "container": "main", "node": "n1"}
        requests = "kube_pod_container_resource_requests"
        yield Series(requests, {**container, "resource": resource, "unit": "integer"}, units)
        yield Series(requests, {**container, "resource": "cpu", "unit": "core"}, 4)
        for phase in ("Pending", "Running", "Succeeded", "Failed", "Unknown"):
            yield Series("kube_pod_status_phase", {**of, "phase": phase}, phase == now)


def _of_allocatable() -> Iterator[Series]:
    for resource, units in (("gpu_deckhouse_io_train", 8), ("gpu_deckhouse_io_small_units", 4)):
        labels = {"node": "n1", "resource": resource, "unit": "integer"}
        yield Series("kube_node_status_allocatable", labels, units)


def openmetrics_text() -> str:
    """Return all samples as promtool imports them."""
    series = itertools.chain(_ours(), _of_nodes(), _of_devices(), _of_pods(), _of_allocatable())
    return "".join(line for series_ in series for line in series_.lines()) + "# EOF\n"
