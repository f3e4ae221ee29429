"""From the API's kinds to the facts that the core keeps."""

import datetime as dt
from typing import Any

import msgspec
import pytest

from api import driver_upgrade
from api.annotations import ReservationNote, encode_devices
from api.foreign.core import Node, NodeTaint, Pod
from api.kinds.gpudevice import GPUDevice
from api.kinds.gpupool import AllocationMode, GPUPool, Reserve, Strategy, WhenExhausted
from api.meta import ObjectMeta
from api.names import DEVICES_ANNOTATION, RESERVATION_ANNOTATION, NodeName, PodUid
from pool.compute_resources import NOTHING, ComputeResources
from pool.facts import device_facts, node_facts, observed_pod, pod_facts, pool_facts
from pool.model import DeviceFacts, NodeFacts, PodFacts, PodPhase, PoolFacts, UnitlessPod
from pool.peer_rules import Peer
from tests.support.allocation_state import unit_ids

NOTE = ReservationNote(id="r", pool="a100", expires_at=dt.datetime(2026, 1, 1, tzinfo=dt.UTC))


def a_gpupool(name: str = "a100", **spec: Any) -> GPUPool:
    return msgspec.convert({"metadata": {"name": name, "uid": "u"}, "spec": spec}, GPUPool)


def a_gpudevice(labels: dict[str, str] | None = None, **status: Any) -> GPUDevice:
    raw = {"nodeName": "n1", "uuid": "GPU-1", "poolRef": {"name": "a100"}}
    return msgspec.convert(
        {"metadata": {"name": "d1", "labels": labels}, "status": {**raw, **status}}, GPUDevice
    )


def a_pod(
    limits: dict[str, Any] | None = None,
    *,
    annotations: dict[str, str] | None = None,
    status: dict[str, Any] | None = None,
    **spec: Any,
) -> Pod:
    asked = {"gpu.deckhouse.io/a100": "1"} if limits is None else limits
    container = {"name": "c0", "resources": {"limits": asked}}
    metadata = {"name": "p", "namespace": "ns", "uid": "u", "annotations": annotations}
    return msgspec.convert(
        {"metadata": metadata, "spec": {"containers": [container], **spec}, "status": status or {}},
        Pod,
    )


def facts_of(pod: Pod) -> PodFacts:
    facts = pod_facts(pod)
    assert facts is not None
    return facts


def test_a_pool_with_defaults() -> None:
    facts = pool_facts(a_gpupool())
    assert (facts.name, facts.resource, facts.ttl_s) == ("a100", "gpu.deckhouse.io/a100", 120)
    assert (facts.mode, facts.slices_per_device) == (AllocationMode.EXCLUSIVE, 1)
    assert facts.when_exhausted is WhenExhausted.PEND
    assert not facts.is_terminating


@pytest.mark.parametrize(
    ("mode", "want"),
    [
        (AllocationMode.EXCLUSIVE, Strategy.LEAST_FRAGMENTATION),
        (AllocationMode.MIG, Strategy.LEAST_FRAGMENTATION),
        (AllocationMode.TIME_SLICE, Strategy.BIN_PACK),
    ],
)
def test_the_strategy_depends_on_the_mode_where_none_is_set(
    mode: AllocationMode, want: Strategy
) -> None:
    assert pool_facts(a_gpupool(allocation={"mode": mode.value})).strategy is want


def test_a_pool_with_everything_set() -> None:
    pool = a_gpupool(
        resource={"name": "gpu.deckhouse.io/big"},
        allocation={"mode": "TimeSlice", "slicesPerDevice": 4},
        scheduling={"strategy": "Spread"},
        reservation={"ttl": "30s", "whenExhausted": "Reject"},
    )
    assert pool_facts(pool) == PoolFacts(
        name=pool.name,
        uid="u",
        resource="gpu.deckhouse.io/big",
        mode=AllocationMode.TIME_SLICE,
        strategy=Strategy.SPREAD,
        ttl_s=30,
        when_exhausted=WhenExhausted.REJECT,
        slices_per_device=4,
        spread_key="topology.kubernetes.io/zone",
    )


def test_a_pool_that_is_being_deleted_is_terminating() -> None:
    raw = {"metadata": {"name": "x", "deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {}}
    assert pool_facts(msgspec.convert(raw, GPUPool)).is_terminating


def test_a_device_in_a_pool() -> None:
    device = a_gpudevice(mig={"instances": [{"profile": "1g.10gb", "uuid": "MIG-a"}]})
    assert device_facts(device) == DeviceFacts(
        name=device.name,
        node=device.node,
        uuid="GPU-1",
        pool=pool_facts(a_gpupool()).name,
        mig_instances=(("1g.10gb", "MIG-a"),),
        is_partitioned=True,
    )


@pytest.mark.parametrize(
    ("mig", "is_partitioned"),
    [
        ({"mode": "Enabled"}, True),
        ({"mode": "Disabled"}, False),
        ({"instances": [{"profile": "1g.10gb", "uuid": "MIG-a"}]}, True),
        ({"capable": True, "profiles": ["1g.10gb"]}, False),
    ],
)
def test_a_device_with_mig_on_is_partitioned(mig: dict[str, Any], is_partitioned: bool) -> None:
    assert device_facts(a_gpudevice(mig=mig)).is_partitioned is is_partitioned


@pytest.mark.parametrize(
    "device",
    [
        pytest.param(a_gpudevice({"gpu.deckhouse.io/ignore": "True"}), id="ignored"),
        pytest.param(a_gpudevice(managed=False), id="not managed"),
    ],
)
def test_a_device_that_is_kept_out_leaves_its_pool(device: GPUDevice) -> None:
    """Lesson 7: an ignored device leaves in an orderly way; nothing new is placed on it meanwhile."""
    facts = device_facts(device)
    assert facts.pool is not None
    assert facts.is_draining


def test_a_device_that_is_not_assigned_is_in_no_pool() -> None:
    assert device_facts(a_gpudevice(poolRef=None)).pool is None


@pytest.mark.parametrize(("status", "want"), [("True", False), ("False", True), ("Unknown", False)])
def test_a_device_is_faulted_when_it_is_known_to_be_unhealthy(status: str, want: bool) -> None:
    device = a_gpudevice(conditions=[{"type": "Healthy", "status": status}])
    assert device_facts(device).is_faulted is want


def test_a_node() -> None:
    raw = {
        "metadata": {"name": "n1", "labels": {"zone": "a"}},
        "spec": {"unschedulable": True, "taints": [{"key": "k", "effect": "NoSchedule"}]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    facts = node_facts(msgspec.convert(raw, Node))
    assert facts == NodeFacts(
        name=facts.name,
        is_ready=True,
        is_cordoned=True,
        labels={"zone": "a"},
        taints=(NodeTaint(key="k", effect="NoSchedule"),),
    )
    assert not facts.is_placeable


@pytest.mark.parametrize(("value", "want"), [("driver-upgrade", True), ("", False), ("me", False)])
def test_devices_are_withheld_by_an_upgrade_of_the_driver(value: str, want: bool) -> None:
    annotations = {driver_upgrade.UNITS_WITHHELD_ANNOTATION: value}
    raw = {"metadata": {"name": "n1", "annotations": annotations}}
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    facts = node_facts(msgspec.convert({**raw, "status": ready}, Node))
    assert (facts.is_withheld, facts.is_placeable) == (want, not want)


@pytest.mark.parametrize(
    ("state", "record", "cordoner", "is_promised"),
    [
        ("drain-required", '{"state":"drain-required","until":"2026-01-01T00:00:00Z"}', "us", True),
        ("drain-required", '{"state":"drain-required","until":"2026-01-01T00:00:00Z"}', "", True),
        ("drain-required", '{"state":"drain-required"}', "us", False),
        ("drain-required", '{"state":"cordon-required","until":"2026-01-01T00:00:00Z"}', "", False),
        ("drain-required", '{"state":"drain-required","until":"2026-01-01T00:00:00"}', "", False),
        ("upgrade-failed", '{"state":"upgrade-failed","until":"2026-01-01T00:00:00Z"}', "", False),
        ("drain-required", '{"state":"drain-required","until":"2026-01-01T00:00:00Z"}', "x", False),
        ("drain-required", "{", "", False),
        ("drain-required", "", "", False),
    ],
)
def test_units_of_an_upgraded_node_return_by_what_its_record_says(
    state: str, record: str, cordoner: str, is_promised: bool
) -> None:
    manager = driver_upgrade.CORDON_MANAGER if cordoner == "us" else cordoner
    fields: dict[str, Any] = {"f:spec": {"f:unschedulable": {}}}
    meta = {
        "name": "n1",
        "labels": {driver_upgrade.UPGRADE_STATE_LABEL: state},
        "annotations": {driver_upgrade.UPGRADE_RECORD_ANNOTATION: record},
        "managedFields": [{"manager": manager, "fieldsV1": fields}] if cordoner else [],
    }
    body = {"metadata": meta, "spec": {"unschedulable": bool(cordoner)}}
    found = node_facts(msgspec.convert(body, Node)).returns_by
    assert found == (dt.datetime(2026, 1, 1, tzinfo=dt.UTC) if is_promised else None)


def test_a_node_that_does_not_say_that_it_is_ready_is_not() -> None:
    facts = node_facts(msgspec.convert({"metadata": {"name": "n1"}}, Node))
    assert (facts.is_ready, facts.labels, facts.taints) == (False, {}, ())


@pytest.mark.parametrize(
    ("spec", "status", "want"),
    [
        ({}, {"phase": "Pending"}, PodPhase.PENDING),
        ({"nodeName": "n1"}, {"phase": "Pending"}, PodPhase.BOUND),
        ({"nodeName": "n1"}, {"phase": "Running"}, PodPhase.BOUND),
        ({"nodeName": "n1"}, {"phase": "Succeeded"}, PodPhase.ENDED),
        ({}, {"phase": "Failed"}, PodPhase.ENDED),
    ],
)
def test_the_phase_of_a_pod_for_accounting(
    spec: dict[str, Any], status: dict[str, Any], want: PodPhase
) -> None:
    assert facts_of(a_pod(status=status, **spec)).phase is want


def test_a_pending_pod_that_is_being_deleted_has_ended() -> None:
    """A finalizer keeps it: kube-scheduler skips it, and no Binding of it is accepted."""
    deleted = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x/y"]}
    for node, want in (("", PodPhase.ENDED), ("n1", PodPhase.BOUND)):
        pod = a_pod(nodeName=node)
        metadata = msgspec.convert({**msgspec.to_builtins(pod.metadata), **deleted}, ObjectMeta)
        facts = facts_of(msgspec.structs.replace(pod, metadata=metadata))
        assert (facts.phase, facts.finalizers) == (want, ())


def test_a_pod_tells_its_devices_and_its_reservation() -> None:
    devices = {"c0": unit_ids("GPU-1")}
    facts = facts_of(
        a_pod(
            annotations={
                DEVICES_ANNOTATION: encode_devices(devices),
                RESERVATION_ANNOTATION: NOTE.encode(),
            },
            status={"nominatedNodeName": "n2"},
            priority=7,
            nodeName="n1",
        )
    )
    assert (facts.devices, facts.reservation, facts.ref) == (devices, NOTE, "ns/p")
    assert (facts.node, facts.nominated_node, facts.priority) == ("n1", "n2", 7)


@pytest.mark.parametrize(
    ("gates", "is_gated"),
    [(None, False), ([], False), ([{"name": "kueue.x-k8s.io/admission"}], True)],
)
def test_a_pod_is_gated_while_it_has_a_scheduling_gate(gates: Any, is_gated: bool) -> None:
    assert facts_of(a_pod(schedulingGates=gates)).is_gated is is_gated


@pytest.mark.parametrize("text", ["", "no json", "[]", '{"c0": "GPU-1"}', '{"c0": [1]}', "null"])
def test_devices_that_cannot_be_read_are_unknown(text: str) -> None:
    assert facts_of(a_pod(annotations={DEVICES_ANNOTATION: text})).devices is None


@pytest.mark.parametrize(
    "text",
    ["", "{}", '{"id": "r"}', '{"id": "r", "pool": "p", "expiresAt": "2026-01-01T00:00:00"}'],
)
def test_a_reservation_that_cannot_be_read_is_none(text: str) -> None:
    assert facts_of(a_pod(annotations={RESERVATION_ANNOTATION: text})).reservation is None


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param({"cpu": "1"}, id="no pool"),
        pytest.param({"gpu.deckhouse.io/a100": "0"}, id="no unit"),
        pytest.param({"gpu.deckhouse.io/a100": "x"}, id="no number"),
        pytest.param({"gpu.deckhouse.io/a": 1, "gpu.deckhouse.io/b": 1}, id="two pools"),
    ],
)
def test_a_pod_that_asks_for_no_unit_of_a_single_pool_is_not_kept(limits: dict[str, Any]) -> None:
    assert pod_facts(a_pod(limits)) is None


def test_a_pod_without_units_is_what_it_takes_of_its_node() -> None:
    limits = {"cpu": "2", "memory": "1Gi", "gpu.deckhouse.io/a100": "0"}
    assert observed_pod(a_pod(limits)) is None
    running = observed_pod(a_pod(limits, nodeName="n1"))
    requests = ComputeResources(2000, 1024, pods=1)
    assert running == UnitlessPod(PodUid("u"), NodeName("n1"), requests, Peer("ns"))
    ended = observed_pod(a_pod(limits, nodeName="n1", status={"phase": "Succeeded"}))
    assert ended == UnitlessPod(PodUid("u"), NodeName("n1"), NOTHING)
    with_units = {"gpu.deckhouse.io/a100": "1", "cpu": "2"}
    facts = observed_pod(a_pod(with_units, nodeName="n1"))
    assert facts == pod_facts(a_pod(with_units, nodeName="n1"))
    assert isinstance(facts, PodFacts)
    assert facts.requests == ComputeResources(2000, pods=1)


A, B = "gpu.deckhouse.io/a", "gpu.deckhouse.io/b"


@pytest.mark.parametrize(
    ("limits", "inadmissible_units"),
    [
        pytest.param({A: 1, B: 2}, ((A, 1), (B, 2)), id="two pools"),
        pytest.param({A: "x"}, ((A, 1),), id="no number"),
        pytest.param({B: 2**40}, ((B, 2**31 - 1),), id="a number beyond all bounds"),
    ],
)
@pytest.mark.parametrize("phase", ["Running", "Failed"])
def test_a_pod_that_admission_would_have_refused_is_kept_once_it_is_bound(
    limits: dict[str, Any], inadmissible_units: Any, phase: str
) -> None:
    forged = {DEVICES_ANNOTATION: encode_devices({"c0": unit_ids("GPU-1")})}
    pod = a_pod(limits, annotations=forged, nodeName="n1", status={"phase": phase})
    facts = facts_of(pod)
    assert (facts.inadmissible_units, facts.devices, facts.node) == (inadmissible_units, None, "n1")
    assert facts.phase is (PodPhase.BOUND if phase == "Running" else PodPhase.ENDED)
    assert (facts.demand.resource, facts.demand.units) == inadmissible_units[0]


def test_a_pod_of_more_containers_than_are_read_is_kept_by_its_units_once_it_is_bound() -> None:
    resources = {"limits": {A: "1"}}
    many = [{"name": f"i{number}", "resources": resources} for number in range(1_000)]

    assert pod_facts(a_pod({A: 1}, initContainers=many)) is None
    assert facts_of(a_pod({A: 1}, initContainers=many, nodeName="n1")).inadmissible_units == (
        (A, 1),
    )


def test_a_pod_of_thousands_of_pools_is_counted_in_so_many_as_a_node_can_have() -> None:
    limits = {f"gpu.deckhouse.io/{number}": 1 for number in range(5_000)}

    facts = facts_of(a_pod(limits, nodeName="n1"))

    assert len(facts.inadmissible_units) == 64
    assert facts.demand.containers == ()


def test_a_pod_of_which_the_units_are_all_none_is_not_kept_though_it_is_bound() -> None:
    assert pod_facts(a_pod({A: 0, B: 0}, nodeName="n1")) is None


def test_a_node_has_the_facts_of_its_software_and_of_its_labels_for_operands() -> None:
    annotations = {
        "gpu.deckhouse.io/deploy-labels": "nvidia.com/gpu.present",
        "nvidia.com/gpu-driver-upgrade-enabled": "true",
    }
    info = {"kernelVersion": "6.8.0", "containerRuntimeVersion": "containerd://2.1.4"}
    raw = {"metadata": {"name": "n1", "annotations": annotations}, "status": {"nodeInfo": info}}
    facts = node_facts(msgspec.convert(raw, Node))
    assert (facts.kernel, facts.runtime) == ("6.8.0", "containerd://2.1.4")
    assert (facts.deploy_labels, facts.upgrade_enabled) == ("nvidia.com/gpu.present", "true")


def test_nodes_share_the_texts_of_their_labels() -> None:
    """Labels of feature discovery, and of operands, are most of what is known of 5,000 nodes."""
    raws = (
        b'{"metadata": {"labels": {"nvidia.com/gpu.deploy.gpu-feature-discovery": "true-value"}}}',
    ) * 2
    (one,), (other,) = (
        node_facts(msgspec.json.decode(raw, type=Node)).labels.items() for raw in raws
    )
    assert one[0] is other[0]
    assert one[1] is other[1]


def test_a_pool_reserves_the_node_unless_it_leaves_that_to_kube_scheduler() -> None:
    assert pool_facts(a_gpupool()).reserve is Reserve.NODE
    assert pool_facts(a_gpupool(scheduling={"reserve": "Units"})).reserve is Reserve.UNITS
