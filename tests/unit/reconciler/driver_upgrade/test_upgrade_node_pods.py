"""Pods on a node, as an upgrade sees them: users of the driver, operands, our own."""

import datetime as dt
from typing import Any

import msgspec
import pytest

from operands.upgrade.facts import DriverUse, EvictionAnswer, PodOwner
from reconciler.driver_upgrade.objects import (
    ResourceClaim,
    UpgradePod,
)
from reconciler.driver_upgrade.user_pods import claims_of, pod_on_node, uses_driver
from tests.support.upgrade_objects import a_pod, owner


def allowed(_pod: UpgradePod) -> tuple[EvictionAnswer, str]:
    return EvictionAnswer.ALLOWED, ""


def fact(pod: UpgradePod, *, agent: str = "", has_claim: bool = False) -> Any:
    return pod_on_node(
        pod, namespace="gpu", agent=agent, has_claim=has_claim, read_eviction=allowed
    )


def requesting(name: str, amount: Any = "1") -> dict[str, Any]:
    return {"containers": [{"resources": {"limits": {name: amount}}}]}


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        (requesting("nvidia.com/gpu"), {DriverUse.NVIDIA_GPU}),
        (requesting("nvidia.com/gpu.shared"), {DriverUse.NVIDIA_GPU}),
        (requesting("nvidia.com/mig-1g.10gb"), {DriverUse.MIG}),
        (requesting("gpu.deckhouse.io/whole"), {DriverUse.POOL}),
        (requesting("nvidia.com/gpu", 0), set()),
        (requesting("cpu"), set()),
        ({"initContainers": requesting("nvidia.com/gpu")["containers"]}, {DriverUse.NVIDIA_GPU}),
    ],
)
def test_resources_of_any_container_are_a_use_of_the_driver(spec: Any, want: set[DriverUse]):
    assert fact(a_pod(namespace="team", spec=spec)).uses == want


def test_a_claim_is_a_use_unless_it_is_to_look():
    def a_claim(**device: Any) -> ResourceClaim:
        results = [{"driver": "gpu.nvidia.com"} | device]
        status = {"allocation": {"devices": {"results": results}}}
        return msgspec.convert({"status": status}, ResourceClaim)

    assert uses_driver(a_claim())
    assert not uses_driver(a_claim(adminAccess=True))
    assert not uses_driver(a_claim(driver="nic.example.com"))
    assert not uses_driver(ResourceClaim())
    named = {"resourceClaims": [{"name": "a", "resourceClaimName": "mine"}, {"name": "b"}]}
    made = {"resourceClaimStatuses": [{"name": "b", "resourceClaimName": "p-b-x7"}]}
    assert list(claims_of(a_pod(spec=named, status=made))) == ["mine", "p-b-x7"]
    assert fact(a_pod(), has_claim=True).uses == {DriverUse.CLAIM}


@pytest.mark.parametrize(
    ("meta", "want"),
    [
        ({}, PodOwner.NONE),
        ({"ownerReferences": owner(kind="ReplicaSet")}, PodOwner.CONTROLLER),
        ({"ownerReferences": owner()}, PodOwner.DAEMON_SET),
        (
            {"annotations": {"kubernetes.io/config.mirror": "h"}, "ownerReferences": owner()},
            PodOwner.MIRROR,
        ),
    ],
)
def test_the_owner_says_what_becomes_of_a_pod(meta: Any, want: PodOwner):
    assert fact(a_pod(**meta)).owner is want


def test_operands_leave_by_their_label_and_only_ours():
    spec = {"nodeSelector": {"nvidia.com/gpu.deploy.dcgm": "true"}}
    ours = fact(a_pod(spec=spec, ownerReferences=owner()))
    assert (ours.deploy_label, ours.uses) == ("nvidia.com/gpu.deploy.dcgm", {DriverUse.OPEN})
    foreign = fact(a_pod(namespace="team", spec=spec, ownerReferences=owner()))
    assert (foreign.deploy_label, foreign.uses) == ("", set())
    exporter = {"nodeSelector": {"nvidia.com/gpu.deploy.node-status-exporter": "true"}}
    assert fact(a_pod(spec=exporter, ownerReferences=owner())).deploy_label == ""


def test_our_agents_have_the_driver_open_until_they_are_gone():
    meta = {"ownerReferences": owner(), "deletionTimestamp": "2026-01-01T10:00:00Z"}
    leaving = fact(a_pod(status={"phase": "Succeeded"}, **meta), agent="agent")
    assert (leaving.is_agent, leaving.is_ready, leaving.uses) == (True, False, {DriverUse.OPEN})
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    assert fact(a_pod(status=ready), agent="agent").is_ready


def test_a_pod_with_a_deadline_says_when_it_ends():
    status = {"startTime": "2026-01-01T10:00:00Z"}
    found = fact(a_pod(spec={"activeDeadlineSeconds": 60}, status=status))
    assert found.ends_at == dt.datetime(2026, 1, 1, 10, 1, tzinfo=dt.UTC)
    assert fact(a_pod(status=status)).ends_at is None
    volumes = {"volumes": [{"name": "v", "emptyDir": {}}, {"name": "w"}]}
    assert fact(a_pod(spec=volumes)).has_empty_dir
    assert not fact(a_pod(spec={"volumes": [{"name": "w"}]})).has_empty_dir
