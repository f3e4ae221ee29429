"""Deploy labels of any node under any policy: idempotent, and never over another writer's label."""

from hypothesis import given
from hypothesis import strategies as st

from api.kinds.nvidia.sandbox_operands import SandboxMode, WorkloadType
from api.names import DEPLOY_LABELS_ANNOTATION, UPGRADE_ENABLED_ANNOTATION
from operands.nvidia.deploy_labels import LabelParameters, deploy_labels
from operands.nvidia.deploy_record import (
    ADOPT,
    DEPLOY_LABELS,
    KEYS,
    LABELS,
    parse_record,
    record_text,
)
from operands.nvidia.driver_owners import DriverClaim, DriverOwners
from operands.nvidia.label_change import Hold, LabelledNode
from tests.unit.operands.nvidia.label_cases import ALL_HOLDS, NFD, applied, relabelled

VALUES = st.sampled_from(
    [
        "",
        "true",
        "false",
        "paused-for-driver-upgrade",
        "ubuntu24.04",
        "all-disabled",
        "a",
        "vm-vgpu",
    ]
)
OTHERS = (
    *NFD,
    "nvidia.com/mig.capable",
    "nvidia.com/gpu.product",
    "nvidia.com/gpu.workload.config",
    "nvidia.com/gpu.deploy.operands",
    "nvidia.com/gpu.deploy.of-others",
    "gpu.deckhouse.io/present",
    "zone",
)
LABEL_SETS = st.dictionaries(st.sampled_from((*LABELS, *OTHERS)), VALUES, max_size=12)
RECORDS = st.one_of(
    st.sampled_from(["", ADOPT]),
    st.text(max_size=40),
    st.dictionaries(st.sampled_from(KEYS), VALUES.filter(bool), max_size=8).map(record_text),
)
NODES = st.builds(
    LabelledNode,
    labels=st.builds(lambda one, two: {**one, **two}, LABEL_SETS, st.sampled_from([{}, NFD])),
    recorded=RECORDS,
    upgrade_enabled=VALUES,
    runtime_version=st.sampled_from(["", "containerd://2.1", "cri-o://1", "odd"]),
    kernel_version=st.sampled_from(["", "6.8.0", "+"]),
    is_in_pool=st.booleans(),
)
CLAIMS = st.lists(
    st.builds(
        DriverClaim,
        name=st.sampled_from(["a", "b", "c"]),
        selector=st.sampled_from([(), (("zone", "a"),), ((next(iter(NFD)), "a"),)]),
        is_default=st.booleans(),
        upgrades=st.booleans(),
    ),
    max_size=3,
    unique_by=lambda claim: claim.name,
)
PARAMETERS = st.builds(
    LabelParameters,
    serves_virtual_machines=st.booleans(),
    default_workload=st.sampled_from(WorkloadType),
    mode=st.sampled_from(SandboxMode),
    disables_mig=st.booleans(),
    upgrades=st.booleans(),
    owners=st.none() | CLAIMS.map(DriverOwners),
)
HOLDS = st.frozensets(st.sampled_from(Hold))


@given(NODES, st.none() | PARAMETERS, HOLDS)
def test_a_change_that_is_made_leaves_no_further_one(node, policy, expired):
    after = applied(node, deploy_labels(node, policy, expired=expired))
    again = deploy_labels(after, policy, expired=expired)
    assert not again
    assert again.restored == ()


@given(NODES, st.none() | PARAMETERS, HOLDS)
def test_labels_that_are_not_recorded_are_added_and_never_changed(node, policy, expired):
    change = deploy_labels(node, policy, expired=expired)
    recorded = node.record
    for key, value in change.labels.items():
        assert key in LABELS
        if node.labels.get(key) and key not in recorded:
            raise AssertionError(f"{key} of another writer became {value}")
    assert change.annotations.keys() <= {DEPLOY_LABELS_ANNOTATION, UPGRADE_ENABLED_ANNOTATION}
    if node.upgrade_enabled and UPGRADE_ENABLED_ANNOTATION not in recorded:
        assert UPGRADE_ENABLED_ANNOTATION not in change.annotations


@given(NODES, PARAMETERS)
def test_values_by_which_others_pause_or_override_operands_are_kept(node, policy):
    after = applied(node, deploy_labels(node, policy))
    for key in DEPLOY_LABELS:
        value = node.labels.get(key, "")
        if value not in {"", "true"} and not node.record.get(key):
            assert after.labels[key] == value


@given(NODES.map(lambda node: relabelled(node, {})), st.lists(PARAMETERS, min_size=1, max_size=3))
def test_a_policy_that_comes_and_goes_leaves_exactly_the_labels_of_others(node, policies):
    bare = LabelledNode(
        labels={key: value for key, value in node.labels.items() if value or key not in LABELS},
        upgrade_enabled=node.upgrade_enabled,
        runtime_version=node.runtime_version,
        is_in_pool=node.is_in_pool,
    )
    after = bare
    for policy in (*policies, None):
        after = applied(after, deploy_labels(after, policy, expired=ALL_HOLDS))
    if bare.has_gpu or bare.has_features:
        assert after == bare
    else:
        assert after.labels == bare.labels


@given(NODES, PARAMETERS, st.frozensets(st.sampled_from([*NFD, "nvidia.com/mig.capable"])))
def test_feature_labels_that_vanish_move_nothing(node, policy, gone):
    stable = applied(node, deploy_labels(node, policy))
    if not stable.has_gpu or deploy_labels(stable, policy):
        return
    if policy.owners is not None and any(claim.selector for claim in policy.owners.claims):
        return
    away = relabelled(stable, dict.fromkeys(gone))
    change = deploy_labels(away, policy)
    assert not change, change


@given(st.dictionaries(st.sampled_from(KEYS), VALUES.filter(bool)))
def test_a_record_is_read_as_it_was_written(record):
    assert parse_record(record_text(record)) == record
