"""Facts of pools that scale, of nodes that come and go, and of pods that wait for them."""

from typing import Any

import msgspec
import pytest

from api.foreign.core import Node, NodeSelectorTerm, Toleration
from api.kinds.gpupool import GPUPool
from api.meta import SelectorOperator, SelectorRequirement
from pool.facts import node_facts, pod_facts, pool_facts
from pool.model import PodFacts, PodSelection
from pool.peer_rules import PeerKind, PeerRule
from pool.pods.selection import constraints_of_selection
from tests.unit.pool.test_facts import a_pod

OURS, ANOTHER = {"name": "gpu.deckhouse.io/capacity"}, {"name": "kueue.x-k8s.io/admission"}
ON_POOL_NODES = {"key": "pool.gpu.deckhouse.io/a100", "operator": "Exists"}
IN_A = {"key": "zone", "operator": "In", "values": ["a"]}
POOL = {"gpu.deckhouse.io/pool": "a100"}


def facts_of(**spec: Any) -> PodFacts:
    pod = a_pod(**spec)
    labelled = msgspec.structs.replace(
        pod, metadata=msgspec.structs.replace(pod.metadata, labels=POOL)
    )
    facts = pod_facts(labelled)
    assert facts is not None
    return facts


def selection_of(**spec: Any) -> PodSelection:
    selection = facts_of(**spec).selection
    assert selection is not None
    return selection


def requiring(*terms: dict[str, Any]) -> dict[str, Any]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [*terms]}}
    return {"nodeAffinity": required}


def largest_shape(allocation: dict[str, Any], **autoscaling: Any) -> int:
    spec = {"allocation": allocation, "autoscaling": autoscaling}
    pool = msgspec.convert({"metadata": {"name": "a100", "uid": "u"}, "spec": spec}, GPUPool)
    return pool_facts(pool).largest_shape


@pytest.mark.parametrize(
    ("allocation", "units_per_device", "want"),
    [
        pytest.param({}, None, 8, id="whole devices"),
        pytest.param({"mode": "TimeSlice", "slicesPerDevice": 4}, None, 32, id="slices"),
        pytest.param({"mode": "MIG", "migProfile": "2g.20gb"}, None, 24, id="MIG by its slices"),
        pytest.param({"mode": "MIG", "migProfile": "1g.20gb"}, 4, 32, id="MIG as given"),
    ],
)
def test_the_largest_shape_is_counted_in_units(
    allocation: dict[str, Any], units_per_device: int | None, want: int
) -> None:
    more = {} if units_per_device is None else {"unitsPerDevice": units_per_device}
    shapes = [{"name": "one", "devices": 1, **more}, {"name": "eight", "devices": 8, **more}]
    assert largest_shape(allocation, shapes=shapes) == want


def test_a_pool_without_a_backend_or_shapes_does_not_scale() -> None:
    shapes = [{"name": "one", "devices": 1}]
    assert largest_shape({}, shapes=shapes, backend="none") == 0
    assert largest_shape({}) == 0


@pytest.mark.parametrize(
    ("gates", "is_gated", "awaits_capacity"),
    [
        pytest.param(None, False, False, id="none"),
        pytest.param([OURS], False, True, id="ours"),
        pytest.param([ANOTHER], True, False, id="another one's"),
        pytest.param([ANOTHER, OURS], True, True, id="both"),
    ],
)
def test_our_own_gate_is_told_from_others(
    gates: Any, is_gated: bool, awaits_capacity: bool
) -> None:
    facts = facts_of(schedulingGates=gates)
    assert (facts.is_gated, facts.awaits_capacity) == (is_gated, awaits_capacity)


def test_a_pending_pod_has_its_selection_without_what_admission_adds() -> None:
    found = selection_of(
        nodeSelector={"zone": "a", "disk": "ssd", "pool.gpu.deckhouse.io/a100": ""},
        affinity=requiring({"matchExpressions": [IN_A, ON_POOL_NODES]}),
        tolerations=[{"key": "k", "operator": "Exists"}],
    )
    in_a = SelectorRequirement(key="zone", operator=SelectorOperator.IN, values=["a"])
    assert found == PodSelection(
        (("disk", "ssd"), ("zone", "a")),
        (NodeSelectorTerm(match_expressions=[in_a]),),
        (Toleration(key="k", operator="Exists"),),
    )


@pytest.mark.parametrize(
    ("affinity", "want"),
    [
        pytest.param(None, (), id="none"),
        pytest.param(requiring({"matchExpressions": [ON_POOL_NODES]}), (), id="the pool's nodes"),
        pytest.param(requiring({}), (NodeSelectorTerm(),), id="an empty term"),
        pytest.param(requiring(), (NodeSelectorTerm(),), id="no term"),
    ],
)
def test_required_terms_that_select_everything_or_nothing(affinity: Any, want: Any) -> None:
    assert selection_of(affinity=affinity).affinity == want


@pytest.mark.parametrize(
    ("affinity", "labels", "want"),
    [
        pytest.param(None, {}, True, id="anywhere"),
        pytest.param(requiring({"matchExpressions": [IN_A]}), {"zone": "a"}, True, id="matching"),
        pytest.param(requiring({"matchExpressions": [IN_A]}), {"zone": "b"}, False, id="another"),
        pytest.param(requiring(), {}, False, id="nowhere"),
    ],
)
def test_a_selection_gives_constraints_again(
    affinity: Any, labels: dict[str, str], want: bool
) -> None:
    required = constraints_of_selection(selection_of(affinity=affinity)).required
    assert (required is None or required.accepts(labels, "n1")) is want


def test_equal_selections_are_one_object() -> None:
    spec = {"nodeSelector": {"zone": "a"}, "tolerations": [{"key": "k", "operator": "Exists"}]}
    assert selection_of(**spec) is selection_of(**spec)


def test_only_a_pending_pod_keeps_its_selection() -> None:
    assert facts_of(nodeName="n1", nodeSelector={"zone": "a"}).selection is None


@pytest.mark.parametrize(
    ("metadata", "taint", "want"),
    [
        pytest.param({}, "example.com/k", (False, False), id="stays"),
        pytest.param({"deletionTimestamp": "2026-01-01T00:00:00Z"}, "k", (True, False), id="going"),
        pytest.param({}, "karpenter.sh/disrupted", (True, False), id="about to go"),
        pytest.param({}, "gpu.deckhouse.io/agent-not-ready", (False, True), id="just came"),
    ],
)
def test_no_units_are_reserved_on_a_node_that_comes_or_goes(
    metadata: dict[str, Any], taint: str, want: tuple[bool, bool]
) -> None:
    raw = {
        "metadata": {"name": "n1", **metadata},
        "spec": {"taints": [{"key": taint, "effect": "NoSchedule"}]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    facts = node_facts(msgspec.convert(raw, Node))
    assert (facts.is_leaving, facts.is_starting) == want
    assert facts.is_placeable is not any(want)


def test_a_node_tells_the_units_that_kubelet_allocates() -> None:
    allocatable = {
        "cpu": "8",
        "gpu.deckhouse.io/b": 4,
        "gpu.deckhouse.io/a": "16",
        "gpu.deckhouse.io/odd": "1.5",
        "nvidia.com/gpu": "1",
    }
    raw = {"metadata": {"name": "n1"}, "status": {"allocatable": allocatable}}
    facts = node_facts(msgspec.convert(raw, Node))
    assert facts.pool_units == (("gpu.deckhouse.io/a", 16), ("gpu.deckhouse.io/b", 4))


def test_claims_and_rules_about_other_pods_are_named() -> None:
    app = {"matchLabels": {"app": "x"}}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    near = {"labelSelector": app, "topologyKey": "zone", "namespaces": ["b", "a"]}
    apart = {"labelSelector": app, "topologyKey": "zone", "namespaceSelector": {}}
    found = selection_of(
        volumes=[
            {"name": "v", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "scratch", "ephemeral": {}},
            {"name": "other", "emptyDir": {}},
        ],
        affinity={"podAffinity": {required: [near]}, "podAntiAffinity": {required: [apart]}},
        topologySpreadConstraints=[
            {"topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "maxSkew": 1},
            {
                "topologyKey": "zone",
                "whenUnsatisfiable": "DoNotSchedule",
                "maxSkew": 2,
                "minDomains": 3,
                "nodeTaintsPolicy": "Honor",
                "matchLabelKeys": ["gpu.deckhouse.io/pool", "absent"],
                "labelSelector": {},
            },
        ],
    )
    assert found.claims == ("data", "p-scratch")
    assert found.omitted == ()
    assert found.peers == (
        PeerRule(PeerKind.AFFINITY, "zone", "app=x", ("a", "b")),
        PeerRule(PeerKind.ANTI_AFFINITY, "zone", "app=x", (), ""),
        PeerRule(
            PeerKind.SPREAD,
            "zone",
            "gpu.deckhouse.io/pool in (a100)",
            ("ns",),
            counts_itself=True,
            max_skew=2,
            min_domains=3,
            honors_taints=True,
        ),
    )
