"""What a pool pod is given: label, toleration, affinity, spread, scheduler."""

from typing import Any

import pytest

from admission.webhooks import mutate_pod
from api.names import POOL_LABEL
from tests.support.reviews import AdmissionSetup, a_pod_object

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
ON_POOL_NODES = {"key": "pool.gpu.deckhouse.io/whole", "operator": "Exists"}
IN_ZONE = {"key": "zone", "operator": "In", "values": ["a"]}


def an_admission_setup(**spec: Any) -> AdmissionSetup:
    setup = AdmissionSetup()
    setup.add_pool(**spec)
    setup.add_node(labels={"zone": "a"})
    return setup


def required_terms(pod: dict[str, Any]) -> list[Any]:
    terms: list[Any] = pod["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    return terms


def with_terms(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}}


def test_a_pool_pod_gets_its_pools_label_beside_its_own():
    pod = a_pod_object(metadata={"labels": {"app": "train"}})

    mutated = an_admission_setup().ask(mutate_pod, pod).applied_to(pod)

    assert mutated["metadata"]["labels"] == {"app": "train", "gpu.deckhouse.io/pool": "whole"}


def test_a_pod_without_labels_and_annotations_gets_both():
    mutated = an_admission_setup().ask(mutate_pod, a_pod_object()).applied_to(a_pod_object())

    assert mutated["metadata"]["labels"] == {"gpu.deckhouse.io/pool": "whole"}
    assert list(mutated["metadata"]["annotations"]) == ["gpu.deckhouse.io/reservation"]


def test_a_pod_that_asks_for_nothing_of_ours_is_left_alone():
    assert an_admission_setup().ask(mutate_pod, a_pod_object(gpus=None)).patch == []


def test_a_pod_that_asks_for_no_unit_is_left_alone():
    assert an_admission_setup().ask(mutate_pod, a_pod_object(gpus=0)).patch == []


def test_forged_annotations_are_taken_from_a_pod_that_asks_for_nothing_of_ours():
    pod = a_pod_object(
        gpus=None,
        metadata={
            "annotations": {
                "gpu.deckhouse.io/reservation": "x",
                "gpu.deckhouse.io/devices": "{}",
                "gpu.deckhouse.io/woken": "now",
                "example.com/a~b": "kept",
            }
        },
    )

    mutated = an_admission_setup().ask(mutate_pod, pod).applied_to(pod)

    assert mutated["metadata"]["annotations"] == {"example.com/a~b": "kept"}


def test_forged_devices_are_taken_from_a_pool_pod():
    pod = a_pod_object(
        metadata={"annotations": {"gpu.deckhouse.io/devices": "{}", "gpu.deckhouse.io/woken": ""}}
    )

    mutated = an_admission_setup().ask(mutate_pod, pod).applied_to(pod)

    assert list(mutated["metadata"]["annotations"]) == ["gpu.deckhouse.io/reservation"]


def test_the_pools_own_taints_are_tolerated_and_no_others():
    """Lesson 4: cordon, not-ready and foreign taints on the pool's nodes change nothing."""
    setup = an_admission_setup(
        scheduling={
            "taints": [
                {"key": "gpu", "value": "whole", "effect": "NoSchedule"},
                {"key": "dedicated", "effect": "NoExecute"},
            ]
        }
    )
    before = a_pod_object()

    after = setup.ask(mutate_pod, before).applied_to(before)

    added = after["spec"]["tolerations"][len(before["spec"]["tolerations"]) :]
    assert added == [
        {"key": "gpu", "operator": "Equal", "value": "whole", "effect": "NoSchedule"},
        {"key": "dedicated", "operator": "Exists", "effect": "NoExecute"},
    ]


@pytest.mark.parametrize(
    "toleration",
    [
        pytest.param({"operator": "Exists"}, id="everything"),
        pytest.param({"key": "gpu", "operator": "Exists"}, id="the key"),
        pytest.param({"key": "gpu", "value": "whole", "effect": "NoSchedule"}, id="the taint"),
    ],
)
def test_a_taint_that_the_pod_tolerates_already_adds_nothing(toleration):
    setup = an_admission_setup(
        scheduling={"taints": [{"key": "gpu", "value": "whole", "effect": "NoSchedule"}]}
    )
    pod = a_pod_object(spec={"tolerations": [toleration]})

    assert setup.ask(mutate_pod, pod).applied_to(pod)["spec"]["tolerations"] == [toleration]


def test_a_pod_without_tolerations_gets_the_pools():
    """Lesson 15: admission tolerates `GPUPool.taints`, which is what nodes will be tainted with."""
    setup = an_admission_setup(scheduling={"taints": [{"key": "gpu", "effect": "NoSchedule"}]})
    pod = a_pod_object()
    del pod["spec"]["tolerations"]

    mutated = setup.ask(mutate_pod, pod).applied_to(pod)

    assert mutated["spec"]["tolerations"] == [
        {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}
    ]


@pytest.mark.parametrize(
    "affinity",
    [
        pytest.param({}, id="no affinity"),
        pytest.param({"affinity": None}, id="null"),
        pytest.param({"affinity": {}}, id="empty"),
        pytest.param({"affinity": {"podAffinity": {"x": 1}}}, id="of pods only"),
        pytest.param({"affinity": {"nodeAffinity": None}}, id="null of nodes"),
        pytest.param({"affinity": {"nodeAffinity": {"preferred": [1]}}}, id="a preference only"),
        pytest.param({"affinity": {"nodeAffinity": {REQUIRED: None}}}, id="null requirement"),
    ],
)
def test_a_pod_is_sent_to_nodes_of_its_pool(affinity):
    pod = a_pod_object(spec=affinity)

    mutated = an_admission_setup().ask(mutate_pod, pod).applied_to(pod)

    assert required_terms(mutated) == [{"matchExpressions": [ON_POOL_NODES]}]


def test_every_alternative_of_an_affinity_requires_the_pools_nodes():
    by_name = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    pod = a_pod_object(spec=with_terms({"matchExpressions": [IN_ZONE]}, by_name))

    mutated = an_admission_setup().ask(mutate_pod, pod).applied_to(pod)

    assert required_terms(mutated) == [
        {"matchExpressions": [IN_ZONE, ON_POOL_NODES]},
        {**by_name, "matchExpressions": [ON_POOL_NODES]},
    ]


def test_an_alternative_that_selects_nothing_goes_on_selecting_nothing():
    """With our expression in it, the empty term would select every node of the pool."""
    pod = a_pod_object(spec=with_terms({}, {"matchExpressions": [IN_ZONE]}))

    mutated = an_admission_setup().ask(mutate_pod, pod).applied_to(pod)

    assert required_terms(mutated)[0] == {}


def test_an_affinity_without_alternatives_is_left_for_the_api_server_to_refuse():
    pod = a_pod_object(spec=with_terms())

    assert required_terms(an_admission_setup().ask(mutate_pod, pod).applied_to(pod)) == []


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("", "gpu-scheduler"),
        ("default-scheduler", "gpu-scheduler"),
        ("volcano", "volcano"),
        ("gpu-scheduler", "gpu-scheduler"),
    ],
)
def test_our_scheduler_takes_pods_whose_author_chose_none(given, expected):
    pod = a_pod_object(spec={"schedulerName": given})

    assert (
        an_admission_setup().ask(mutate_pod, pod).applied_to(pod)["spec"]["schedulerName"]
        == expected
    )


@pytest.mark.parametrize(
    ("ours", "given", "is_warned"),
    [
        ("gpu-scheduler", "volcano", True),
        (None, "kai-scheduler", True),
        ("gpu-scheduler", "x" * 300, True),
        ("gpu-scheduler", "gpu-scheduler", False),
        ("gpu-scheduler", "default-scheduler", False),
        (None, "", False),
    ],
)
def test_another_scheduler_is_warned_of(ours, given, is_warned):
    setup = an_admission_setup()
    setup.scheduler_name = ours
    warnings = setup.ask(mutate_pod, a_pod_object(spec={"schedulerName": given})).warnings
    assert [f"schedulerName {given}"[:60] in text for text in warnings] == [True] * is_warned
    assert all(len(text) <= 120 for text in warnings)


def test_the_scheduler_is_left_alone_where_the_extender_is_on_the_default_one():
    setup = an_admission_setup()
    setup.scheduler_name = None

    mutated = setup.ask(mutate_pod, a_pod_object()).applied_to(a_pod_object())

    assert mutated["spec"]["schedulerName"] == "default-scheduler"


SPREAD = {"strategy": "Spread", "topologyKey": "zone"}


def test_spread_selects_the_very_label_that_the_pod_gets():
    """Lesson 3: a selector that no pod matches spreads nothing."""
    mutated = (
        an_admission_setup(scheduling=SPREAD)
        .ask(mutate_pod, a_pod_object())
        .applied_to(a_pod_object())
    )

    (constraint,) = mutated["spec"]["topologySpreadConstraints"]
    selected = constraint["labelSelector"]["matchLabels"]
    assert selected
    assert selected.items() <= mutated["metadata"]["labels"].items()
    assert (constraint["maxSkew"], constraint["topologyKey"]) == (1, "zone")
    assert constraint["nodeTaintsPolicy"] == "Honor"


def whens(setup: AdmissionSetup) -> list[str]:
    mutated = setup.ask(mutate_pod, a_pod_object()).applied_to(a_pod_object())
    return [
        constraint["whenUnsatisfiable"]
        for constraint in mutated["spec"]["topologySpreadConstraints"]
    ]


def test_spread_is_strict_where_every_node_of_the_pool_has_the_key():
    assert whens(an_admission_setup(scheduling=SPREAD)) == ["DoNotSchedule"]


def test_spread_is_a_preference_while_a_node_of_the_pool_lacks_the_key():
    """Lesson 3: a strict constraint would shut that node out."""
    setup = an_admission_setup(scheduling=SPREAD)
    setup.add_node("n2", labels={})

    assert whens(setup) == ["ScheduleAnyway"]


def test_spread_is_a_preference_while_pods_cannot_go_to_a_zone():
    setup = an_admission_setup(scheduling=SPREAD)
    setup.add_node("n2", labels={"zone": "b"}, is_ready=False)
    assert whens(setup) == ["ScheduleAnyway"]

    setup.add_node("n2", labels={"zone": "b"})
    assert whens(setup) == ["DoNotSchedule"]


@pytest.mark.parametrize(
    ("labels", "warnings"),
    [
        pytest.param({"zone": "a"}, [], id="one has it"),
        pytest.param(
            {}, ["no node of GPU pool whole has the label zone: its pods spread over nodes only"]
        ),
    ],
)
def test_spread_over_a_key_that_no_node_has_is_a_warning(labels, warnings):
    """Lesson 3: nodes without the key are handled as documented."""
    setup = AdmissionSetup()
    setup.add_pool(scheduling=SPREAD)
    setup.add_node("n1", labels={})
    setup.add_node("n2", labels=labels)

    assert setup.ask(mutate_pod, a_pod_object()).warnings == warnings
    assert whens(setup) == ["ScheduleAnyway"]


def test_spread_is_a_preference_while_the_pool_has_no_node():
    setup = AdmissionSetup()
    setup.add_pool(scheduling=SPREAD)

    assert whens(setup) == ["ScheduleAnyway"]


def test_spread_stands_back_behind_the_pods_own_constraint_on_the_key():
    own = {"maxSkew": 5, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
    pod = a_pod_object(spec={"topologySpreadConstraints": [own]})

    mutated = an_admission_setup(scheduling=SPREAD).ask(mutate_pod, pod).applied_to(pod)

    assert mutated["spec"]["topologySpreadConstraints"] == [own]


def test_spread_is_added_to_constraints_on_other_keys():
    own = {"maxSkew": 5, "topologyKey": "rack", "whenUnsatisfiable": "ScheduleAnyway"}
    pod = a_pod_object(spec={"topologySpreadConstraints": [own]})

    mutated = an_admission_setup(scheduling=SPREAD).ask(mutate_pod, pod).applied_to(pod)

    assert [
        constraint["topologyKey"] for constraint in mutated["spec"]["topologySpreadConstraints"]
    ] == [
        "rack",
        "zone",
    ]


def test_other_strategies_spread_nothing():
    mutated = an_admission_setup().ask(mutate_pod, a_pod_object()).applied_to(a_pod_object())

    assert "topologySpreadConstraints" not in mutated["spec"]


def test_the_audit_log_names_pool_and_reservation():
    reply = an_admission_setup().ask(mutate_pod, a_pod_object())

    assert reply.response["auditAnnotations"] == {"pool": "whole", "reservation": "r0"}


def a_copy(setup: AdmissionSetup) -> dict[str, Any]:
    """A pod as a backup tool restores it: mutated by an admission whose pool was spread strictly over racks."""
    there = an_admission_setup(scheduling={"strategy": "Spread", "topologyKey": "rack"})
    there.add_node("n1", labels={"rack": "1"})
    copied = there.ask(mutate_pod, a_pod_object()).applied_to(a_pod_object())
    return setup.ask(mutate_pod, copied).applied_to(copied)


def spread_of(pod: dict[str, Any]) -> list[tuple[str, str]]:
    constraints = pod["spec"]["topologySpreadConstraints"]
    return [(item["topologyKey"], item["whenUnsatisfiable"]) for item in constraints]


@pytest.mark.parametrize("strategy", ["BinPack", "Spread"])
def test_a_copy_of_a_pod_is_not_bound_to_a_key_that_this_cluster_lacks(strategy):
    setup = an_admission_setup(scheduling=SPREAD | {"strategy": strategy})
    copied = a_copy(setup)
    ours = [("zone", "DoNotSchedule")] * (strategy == "Spread")
    assert spread_of(copied) == [("rack", "ScheduleAnyway"), *ours]
    (reservation,) = setup.allocation_state.ledger.all()
    assert reservation.node == "n1"
    again = setup.ask(mutate_pod, copied)
    assert again.applied_to(copied) == copied


def test_a_copy_of_a_pod_is_spread_as_strictly_as_its_new_pool_can():
    setup = an_admission_setup(scheduling={"strategy": "Spread", "topologyKey": "rack"})
    setup.add_node("n2", labels={})
    assert spread_of(a_copy(setup)) == [("rack", "ScheduleAnyway")]


def test_a_strict_constraint_of_a_user_stays():
    own = {"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}
    pod = a_pod_object(
        spec={"topologySpreadConstraints": [own]}, metadata={"labels": {POOL_LABEL: "whole"}}
    )
    reply = an_admission_setup(scheduling=SPREAD).ask(mutate_pod, pod)
    assert spread_of(reply.applied_to(pod))[0] == ("rack", "DoNotSchedule")
