"""Labels and annotations written by hand, clocks that are wrong, facts that cannot be: a state with a reason, no exception."""

import datetime as dt
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.driver_upgrade import (
    REQUESTOR_MODE_ANNOTATION,
    UPGRADE_RECORD_ANNOTATION,
    UPGRADE_STATE_LABEL,
    VALIDATION_START_ANNOTATION,
    UpgradeState,
)
from api.names import NodeName, PodUid
from operands.upgrade import facts
from operands.upgrade.actions import Annotate
from operands.upgrade.parameters import AwaitedPods, EvictionLimits, NodeLimit, UpgradeParameters
from operands.upgrade.record import UpgradeRecord
from tests.support.driver_upgrades import (
    NOT_READY,
    NOW,
    OUTDATED,
    a_driver,
    a_node,
    a_pod,
    names,
    out_of_service,
    plan,
    step,
    writes,
)

TEXTS = st.sampled_from(
    [
        *(state.value for state in UpgradeState),
        "true",
        "True",
        "driver-upgrade",
        "paused-for-driver-upgrade",
        "0",
        "-1",
        "9" * 400,
        "{}",
        "[" * 2000,
        '{"state":"upgrade-done","since":"0001-01-01T00:00:00+23:59"}',
        '{"state":"upgrade-failed","since":"9999-12-31T23:59:59Z","attempt":99999}',
        '{"state":"upgrade-failed","since":"2026-01-01T00:00:00","attempt":1}',
        '{"state":"upgrade-failed","since":null,"attempt":2147483647}',
        '{"state":"validation-required","since":"2026-05-04T02:00:00Z","attempt":-1}',
        "\x00\x7f\ufffe",
    ]
) | st.text(st.characters(codec="utf-8"), max_size=20)  # as JSON of the API server has it
KEYS = st.sampled_from(
    [
        UPGRADE_STATE_LABEL,
        "nvidia.com/gpu-driver-upgrade.skip",
        "nvidia.com/gpu-driver-upgrade-requested",
        "nvidia.com/gpu-driver-upgrade.node-initial-state.unschedulable",
        "nvidia.com/gpu-driver-upgrade.driver-wait-for-safe-load",
        "nvidia.com/gpu-driver-upgrade-wait-for-pod-completion-start-time",
        VALIDATION_START_ANNOTATION,
        REQUESTOR_MODE_ANNOTATION,
        UPGRADE_RECORD_ANNOTATION,
        "nvidia.com/gpu.deploy.dcgm",
        "gpu.deckhouse.io/deploy.node-agent",
        "gpu.deckhouse.io/units-withheld-by",
    ]
)
NUMBERS = st.integers(-(2**40), 2**40)
TIMES = st.datetimes(timezones=st.just(dt.UTC))
DRIVERS = st.builds(
    facts.DriverPod,
    namespace=TEXTS,
    name=TEXTS,
    uid=TEXTS.map(PodUid),
    revision=st.sampled_from(facts.DriverRevision),
    is_ready=st.booleans(),
    is_scheduled=st.booleans(),
    is_terminating=st.booleans(),
    restarts=NUMBERS,
    config_digest=TEXTS,
    message=TEXTS,
)
PODS = st.builds(
    facts.PodOnNode,
    namespace=TEXTS,
    name=TEXTS,
    uid=TEXTS.map(PodUid),
    labels=st.dictionaries(KEYS, TEXTS, max_size=2),
    owner=st.sampled_from(facts.PodOwner),
    uses=st.frozensets(st.sampled_from(facts.DriverUse)),
    is_active=st.booleans(),
    is_terminating=st.booleans(),
    is_agent=st.booleans(),
    deploy_label=TEXTS,
    has_empty_dir=st.booleans(),
    priority=NUMBERS,
    ends_at=st.none() | TIMES,
    eviction=st.sampled_from(facts.EvictionAnswer),
)
NODES = st.builds(
    facts.UpgradeNode,
    name=st.sampled_from("abc").map(NodeName),
    labels=st.dictionaries(KEYS, TEXTS, max_size=5),
    annotations=st.dictionaries(KEYS, TEXTS, max_size=5),
    is_schedulable=st.booleans(),
    owns_cordon=st.booleans(),
    is_ready=st.booleans(),
    is_leaving=st.booleans(),
    is_selected=st.booleans(),
    driver_pods=st.lists(DRIVERS, max_size=3).map(tuple),
    desired_revision=TEXTS,
    desired_digest=TEXTS,
    validators=st.lists(
        st.builds(facts.ValidatorPod, name=TEXTS, is_ready=st.booleans()), max_size=2
    ).map(tuple),
    pods=st.none() | st.lists(PODS, max_size=3).map(tuple),
    processes=st.lists(st.builds(facts.HostProcess, NUMBERS, TEXTS), max_size=1).map(tuple),
    reported_reason=TEXTS,
)
PARAMETERS = st.builds(
    UpgradeParameters,
    auto_upgrade=st.booleans(),
    max_parallel=st.integers(0, 3),
    max_unavailable=st.builds(NodeLimit, st.integers(0, 100), is_percentage=st.booleans()),
    awaited=st.builds(AwaitedPods, limit_s=st.integers(0, 10**8)),
    pod_deletion=st.none() | st.builds(EvictionLimits, force=st.booleans()),
    drain=st.none() | st.builds(EvictionLimits, delete_empty_dir=st.booleans()),
    has_validator=st.booleans(),
)


@given(nodes=st.lists(NODES, max_size=4, unique_by=lambda node: node.name), parameters=PARAMETERS)
def test_any_facts_lead_to_a_state_with_a_reason(nodes, parameters):
    upgrades = plan(nodes, parameters)
    assert upgrades == plan(reversed(nodes), parameters)
    for upgrade in upgrades.values():
        for item in upgrade.nodes:
            assert item.progress.state in UpgradeState
            assert item.progress.message
            assert len(item.progress.message) <= 1024
            assert item.progress.entry().node == item.progress.node


@pytest.mark.parametrize("label", ["nonsense", "Upgrade-Done", "upgrade-done ", "true"])
def test_a_label_that_names_no_state_is_named_and_replaced(label):
    answer = step(a_node("", labels={UPGRADE_STATE_LABEL: label}))
    assert answer.progress.state is UpgradeState.UPGRADE_DONE
    assert answer.progress.message.startswith(
        f"label {UPGRADE_STATE_LABEL}={label} names no state; "
    )


@pytest.mark.parametrize("state", [state.value for state in UpgradeState])
def test_a_node_whose_state_was_written_by_hand_ends_well_and_with_a_reason(state):
    """Whatever label a healthy node is given, it is done a few passes later; external states are left alone."""
    node = a_node(state, record=None)
    for _ in range(10):
        answer = step(node)
        assert answer.progress.message
        if answer.progress.state is UpgradeState.UPGRADE_DONE:
            return
        node = a_node(answer.progress.state.value, cordoned=True, withheld=True, released=True)
    assert UpgradeState(state).is_external


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "[]",
        '{"state":"x"}',
        '{"state":"validation-required"}',
        '{"state":"validation-required","since":"2026-05-04T02:00:00"}',
        '{"state":"validation-required","since":"2026-05-04T02:00:00Z","attempt":-1}',
        "x" * 5000,
    ],
)
def test_a_record_that_cannot_be_read_is_written_again_and_time_counts_from_now(text):
    node = replace(
        out_of_service("validation-required", validators=NOT_READY, seconds=10**6),
        annotations={
            UPGRADE_RECORD_ANNOTATION: text,
            "gpu.deckhouse.io/units-withheld-by": "driver-upgrade",
        },
    )
    answer = step(node)
    assert answer.progress.since == NOW
    assert answer.progress.attempt == 1
    (written,) = writes(answer)
    assert isinstance(written, Annotate)
    record = UpgradeRecord(UpgradeState.VALIDATION_REQUIRED, NOW, attempt=1)
    assert written.annotations == {UPGRADE_RECORD_ANNOTATION: record.encode()}


def test_a_state_that_the_gpu_operator_set_began_when_its_annotation_says():
    def validating(start: str) -> dt.datetime | None:
        node = a_node(
            "validation-required",
            record=None,
            validators=NOT_READY,
            annotations={VALIDATION_START_ANNOTATION: start},
        )
        return step(node).progress.since

    assert validating(str(int(NOW.timestamp()) - 30)) == NOW - dt.timedelta(seconds=30)
    for absurd in ("", "-1", "1e9", "soon", "9" * 30, "٣", str(int(NOW.timestamp()) + 999)):
        assert validating(absurd) == NOW


def test_a_record_of_another_state_keeps_the_attempt_and_no_time():
    node = out_of_service("validation-required", validators=NOT_READY)
    record = UpgradeRecord(UpgradeState.CORDON_REQUIRED, NOW - dt.timedelta(days=9), attempt=4)
    moved = replace(
        node, annotations={**node.annotations, UPGRADE_RECORD_ANNOTATION: record.encode()}
    )
    progress = step(moved).progress
    assert (progress.since, progress.attempt) == (NOW, 4)


def test_a_clock_that_jumped_forward_and_back_holds_nothing_up():
    node = out_of_service("pod-deletion-required", driver_pods=(a_driver(OUTDATED),), seconds=-9999)
    pods = (a_pod(eviction=facts.EvictionAnswer.REFUSED),)
    answer = step(replace(node, pods=pods))
    assert answer.progress.since == NOW
    assert names(answer) == ["Annotate"]
    later = NOW + dt.timedelta(seconds=300)
    again = out_of_service(
        "pod-deletion-required", driver_pods=(a_driver(OUTDATED),), pods=pods, seconds=0
    )
    assert step(again, now=later).progress.state is UpgradeState.UPGRADE_FAILED


def test_time_in_which_no_leader_acted_counts_for_no_deadline():
    node = out_of_service(
        "pod-deletion-required",
        driver_pods=(a_driver(OUTDATED),),
        pods=(a_pod(),),
        seconds=86_400,
    )
    assert step(node, leading_since=NOW).progress.state is UpgradeState.POD_DELETION_REQUIRED
    assert step(node).progress.state is UpgradeState.UPGRADE_FAILED
