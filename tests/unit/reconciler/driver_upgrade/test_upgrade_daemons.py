"""Driver DaemonSets, their pods and validators, as an upgrade sees them."""

from typing import Any

import msgspec
import pytest

from api.driver_upgrade import AGENT_DEPLOY_LABEL, PAUSED_FOR_UPGRADE, UPGRADE_STATE_LABEL
from api.foreign.core import Node
from api.names import ADOPTED_ANNOTATION, NodeName
from manifests.node.daemonset import without_upgrade
from operands.upgrade.facts import DriverRevision
from reconciler.driver_upgrade.daemons import (
    DriverDaemon,
    agent_daemons,
    daemon_of,
    driver_daemons,
    driver_pod,
    is_selected,
    node_of,
    observed_driver,
    observed_validator,
    validator_pod,
)
from reconciler.driver_upgrade.objects import (
    ControllerRevision,
    UpgradeDaemonSet,
)
from reconciler.driver_upgrade.upgrading_nodes import upgrading_node
from tests.support.upgrade_objects import a_pod, owner

N1 = NodeName("n1")
NEW = DriverDaemon(name="driver", uid="ds", revision="r2", digest="d2")
DAEMONS = {"ds": NEW}


def a_daemon_set(
    name: str, *, selector: Any = None, labels: Any = None, adopted: str = ""
) -> UpgradeDaemonSet:
    component = {"app.kubernetes.io/component": "nvidia-driver"}
    container = {"env": [{"name": "DRIVER_CONFIG_DIGEST", "value": "d2"}]}
    template = {
        "metadata": {"labels": component if labels is None else labels},
        "spec": {"nodeSelector": selector or {}, "containers": [container]},
    }
    meta = {"name": name, "uid": f"{name}-uid", "annotations": {ADOPTED_ANNOTATION: adopted}}
    body = {"metadata": meta, "spec": {"template": template}}
    return msgspec.convert(body, UpgradeDaemonSet)


def a_revision(daemon_set: str, number: int, **labels: str) -> ControllerRevision:
    meta = {
        "name": f"{daemon_set}-h{number}",
        "labels": labels,
        "ownerReferences": owner(f"{daemon_set}-uid"),
    }
    return msgspec.convert({"metadata": meta, "revision": number}, ControllerRevision)


def test_daemon_sets_that_leave_for_an_upgrade_require_it_in_every_term():
    other = {"key": "zone", "operator": "Exists"}

    def uids(*terms: list[Any]) -> frozenset[str]:
        required = {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
        template = {"spec": {"affinity": affinity}}
        body = {"metadata": {"uid": "agent-uid"}, "spec": {"template": template}}
        found = [a_daemon_set("driver"), msgspec.convert(body, UpgradeDaemonSet)]
        return frozenset(agent_daemons(found))

    assert uids([other, without_upgrade()], [without_upgrade()]) == {"agent-uid"}
    assert uids([without_upgrade()], [other]) == frozenset()
    assert uids() == frozenset()


@pytest.mark.parametrize(
    ("labels", "taints", "is_leaving", "expected"),
    [
        pytest.param({"gpu": "a"}, [], False, True, id="of the pool"),
        pytest.param({}, [], False, False, id="of another pool"),
        pytest.param(
            {"gpu": "a", AGENT_DEPLOY_LABEL: PAUSED_FOR_UPGRADE}, [], False, True, id="away"
        ),
        pytest.param(
            {"gpu": "a"}, ["node.kubernetes.io/unschedulable"], False, True, id="cordoned"
        ),
        pytest.param({"gpu": "a"}, ["tolerated"], False, True, id="tolerated"),
        pytest.param({"gpu": "a"}, ["foreign"], False, False, id="not tolerated"),
        pytest.param({"gpu": "a"}, [], True, False, id="being deleted"),
    ],
)
def test_an_agent_is_awaited_where_its_daemon_set_makes_a_pod(
    labels: dict[str, str], taints: list[str], is_leaving: bool, expected: bool
):
    terms = [{"matchExpressions": [without_upgrade()]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    spec = {
        "nodeSelector": {"gpu": "a"},
        "affinity": {"nodeAffinity": required},
        "tolerations": [{"key": "tolerated", "operator": "Exists"}],
    }
    meta = {"uid": "u", "name": "plugin"} | (
        {"deletionTimestamp": "2026-01-01T00:00:00Z"} if is_leaving else {}
    )
    daemon_set = {"metadata": meta, "spec": {"template": {"spec": spec}}}
    agents = agent_daemons([msgspec.convert(daemon_set, UpgradeDaemonSet)])
    body = {
        "metadata": {"name": "n1", "labels": labels | {UPGRADE_STATE_LABEL: "validation-required"}},
        "spec": {"taints": [{"key": key, "effect": "NoSchedule"} for key in taints]},
    }
    node = msgspec.convert(body, Node)
    found = upgrading_node(node, {}, (), agents=agents.values())
    assert (found.fact.agents == {"plugin"}) is expected


def test_the_revision_with_the_highest_number_is_the_newest():
    """A rollback gives the old revision a new number."""
    revisions = [
        a_revision("a", 3, **{"controller-revision-hash": "old-again"}),
        a_revision("a", 2, **{"controller-revision-hash": "newer"}),
        a_revision("b", 1),
    ]
    other = a_daemon_set("c", labels={"app": "dcgm"})
    found = driver_daemons([a_daemon_set("a"), a_daemon_set("b"), other], revisions)
    assert {item.name: item.revision for item in found.values()} == {"a": "old-again", "b": "h1"}
    assert found["a-uid"].digest == "d2"


@pytest.mark.parametrize("adopted", ["digest", ""])
def test_a_toleration_makes_no_driver_that_was_taken_over_an_older_one(adopted: str):
    def revision(number: int, image: str, *tolerations: str) -> ControllerRevision:
        spec = {"containers": [{"image": image}], "tolerations": [{"key": t} for t in tolerations]}
        found = a_revision("a", number)
        return msgspec.structs.replace(
            found, data={"spec": {"template": {"$patch": "replace", "spec": spec}}}
        )

    revisions = [revision(2, "2", "a"), revision(3, "2", "a", "b"), revision(1, "1", "a")]
    found = driver_daemons([a_daemon_set("a", adopted=adopted)], revisions)
    pods = {
        number: a_pod(
            ownerReferences=owner("a-uid"), labels={"controller-revision-hash": f"h{number}"}
        )
        for number in (1, 2, 3)
    }
    current = {n for n, pod in pods.items() if driver_pod(pod, found).revision.value == "current"}
    assert current == ({2, 3} if adopted else {3})


def test_a_node_belongs_to_the_daemon_set_that_selects_it_and_that_has_a_pod_there():
    found = driver_daemons(
        [a_daemon_set(name, selector={"os": "a"}) for name in ("one", "two")],
        [a_revision("one", 1)],
    )
    first = daemon_of(N1, {"os": "a"}, found, owners=())
    assert first is not None
    assert (first.name, first.revision) == ("one", "h1")
    second = daemon_of(N1, {"os": "a"}, found, owners=("two-uid",))
    assert second is not None
    assert (second.name, second.revision) == ("two", "")
    assert daemon_of(N1, {"os": "b"}, found, owners=("two-uid",)) is None


@pytest.mark.parametrize(
    ("labels", "daemon", "want"),
    [
        ({}, None, False),
        ({}, NEW, True),
        ({"nvidia.com/gpu.deploy.driver": "true"}, None, True),
        ({"nvidia.com/gpu.deploy.driver": "false"}, None, False),
    ],
)
def test_a_driver_is_wanted_also_while_its_daemon_set_is_replaced(labels, daemon, want):
    assert is_selected(labels, daemon) is want


@pytest.mark.parametrize(
    ("meta", "want"),
    [
        (
            {"labels": {"controller-revision-hash": "r2"}, "ownerReferences": owner()},
            DriverRevision.CURRENT,
        ),
        (
            {"labels": {"controller-revision-hash": "r1"}, "ownerReferences": owner()},
            DriverRevision.OUTDATED,
        ),
        ({"ownerReferences": owner()}, DriverRevision.UNKNOWN),
        (
            {"labels": {"controller-revision-hash": "r2"}, "ownerReferences": owner("gone")},
            DriverRevision.ORPHAN,
        ),
        ({"labels": {"controller-revision-hash": "r2"}}, DriverRevision.ORPHAN),
    ],
)
def test_a_driver_pod_is_compared_with_its_daemon_set(meta: Any, want: DriverRevision):
    assert driver_pod(a_pod(**meta), DAEMONS).revision is want


def test_a_pod_of_a_daemon_set_without_a_revision_is_compared_with_nothing():
    pod = a_pod(labels={"controller-revision-hash": "r1"}, ownerReferences=owner())
    found = driver_pod(pod, {"ds": DriverDaemon(name="driver", uid="ds")})
    assert found.revision is DriverRevision.UNKNOWN


def test_a_driver_pod_that_crashes_says_why():
    crash = {
        "name": "nvidia-driver-ctr",
        "restartCount": 12,
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
    }
    done = {"name": "k8s-driver-manager", "ready": True, "restartCount": 40}
    status = {
        "phase": "Running",
        "containerStatuses": [crash],
        "initContainerStatuses": [done],
    }
    found = driver_pod(a_pod(spec={"nodeName": "n1"}, status=status), DAEMONS)
    assert (found.is_ready, found.restarts) == (False, 12)
    assert found.message == "container nvidia-driver-ctr: CrashLoopBackOff back-off"


def test_a_driver_pod_without_a_place_belongs_to_the_node_that_it_is_for():
    field = {"key": "metadata.name", "operator": "In", "values": ["n7"]}
    required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    condition = {"type": "PodScheduled", "status": "False", "message": "Insufficient cpu"}
    pod = a_pod(spec={"affinity": affinity}, status={"conditions": [condition]})
    assert node_of(pod) == "n7"
    assert node_of(a_pod()) is None
    found = driver_pod(pod, DAEMONS)
    assert (found.is_scheduled, found.message) == (False, "Insufficient cpu")


@pytest.mark.parametrize("lag", ["09:55", "10:05"], ids=["node's clock behind", "ahead"])
@pytest.mark.parametrize(("second", "is_ready"), [("31", True), ("29", False)])
def test_a_validator_is_compared_with_the_driver_pod_on_the_nodes_clock(lag, second, is_ready):
    driver = observed_driver(
        a_pod(
            creationTimestamp="2026-01-01T10:00:00Z",
            spec={"nodeName": "n1"},
            status={"startTime": f"2026-01-01T{lag}:30Z"},
        ),
        DAEMONS,
    )
    assert driver is not None
    checked = {"terminated": {"finishedAt": f"2026-01-01T{lag}:{second}Z"}}
    status = {
        "conditions": [{"type": "Ready", "status": "True"}],
        "initContainerStatuses": [{"name": "driver-validation", "state": checked}],
    }
    before = "2026-01-01T09:00:00Z"
    old = observed_validator(
        a_pod(creationTimestamp=before, spec={"nodeName": "n1"}, status=status)
    )
    assert old is not None
    assert validator_pod(old, [driver]).is_ready is is_ready
    after = "2026-01-01T10:00:10Z"
    new = observed_validator(a_pod(creationTimestamp=after, spec={"nodeName": "n1"}, status=status))
    assert new is not None
    assert validator_pod(new, [driver]).is_ready  # it is not deleted a second time


@pytest.mark.parametrize(
    ("checked", "is_ready", "is_outdated"),
    [
        ("2026-01-01T10:00:01Z", True, False),
        ("2026-01-01T10:00:00Z", True, False),
        ("2026-01-01T09:59:59Z", False, True),
    ],
)
def test_a_validator_counts_if_it_checked_the_driver_that_is_there(checked, is_ready, is_outdated):
    pod = a_pod(creationTimestamp="2026-01-01T10:00:00Z", spec={"nodeName": "n1"})
    driver = observed_driver(pod, DAEMONS)
    assert driver is not None
    check = {"name": "driver-validation", "state": {"terminated": {"finishedAt": checked}}}
    later = {"name": "plugin", "state": {"terminated": {"finishedAt": "2026-01-01T11:00:00Z"}}}
    status = {
        "conditions": [{"type": "Ready", "status": "True"}],
        "initContainerStatuses": [check, later],
    }
    validator = observed_validator(a_pod(spec={"nodeName": "n1"}, status=status))
    assert validator is not None
    found = validator_pod(validator, [driver])
    assert (found.is_ready, found.is_outdated) == (is_ready, is_outdated)


def test_a_pod_that_is_for_no_node_is_left_out():
    assert observed_driver(a_pod(), DAEMONS) is None
    assert observed_validator(a_pod()) is None


def test_of_a_node_only_what_decides_is_kept():
    labels = {"nvidia.com/gpu.deploy.driver": "true", "zone": "a", UPGRADE_STATE_LABEL: "x"}
    body = {
        "metadata": {
            "name": "n1",
            "uid": "u1",
            "labels": labels,
            "annotations": {"gpu.deckhouse.io/units-withheld-by": "driver-upgrade", "note": "n"},
        },
        "spec": {"unschedulable": True, "taints": [{"key": "karpenter.sh/disrupted"}]},
    }
    found = upgrading_node(msgspec.convert(body, Node), DAEMONS, ())
    assert (found.name, found.uid, found.namespace) == ("n1", "u1", "")
    assert found.fact.labels.keys() == {"nvidia.com/gpu.deploy.driver", UPGRADE_STATE_LABEL}
    assert found.fact.annotations.keys() == {"gpu.deckhouse.io/units-withheld-by"}
    assert (found.fact.is_schedulable, found.fact.owns_cordon) == (False, False)
    assert (found.fact.is_leaving, found.fact.is_selected) == (True, True)
    assert (found.fact.desired_revision, found.fact.desired_digest) == ("r2", "d2")
