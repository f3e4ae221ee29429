"""Whose upgrade policy holds for which nodes."""

from typing import Any

import msgspec
import pytest

from api.kinds.nvidia.clusterpolicy import ClusterPolicy
from api.kinds.nvidia.nvidiadriver import NVIDIADriver
from operands.upgrade.cluster import CLUSTER_POLICY
from reconciler.driver_upgrade.owners import upgrade_owners


def a_policy(
    *, name: str = "p", created: str = "2026-01-01T00:00:00Z", **spec: Any
) -> ClusterPolicy:
    meta = {"name": name, "creationTimestamp": created} | spec.pop("metadata", {})
    return msgspec.convert({"metadata": meta, "spec": spec}, ClusterPolicy)


def a_driver(name: str, **spec: Any) -> NVIDIADriver:
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, NVIDIADriver)


def test_the_oldest_policy_is_for_all_nodes_unless_drivers_are():
    older = a_policy(driver={"upgradePolicy": {"autoUpgrade": True}})
    younger = a_policy(name="q", created="2026-02-01T00:00:00Z")
    found = upgrade_owners([younger, older], [a_driver("a")], ())
    assert {owner: item.auto_upgrade for owner, item in found.items()} == {CLUSTER_POLICY: True}
    split = a_policy(driver={"useNvidiaDriverCRD": True})
    drivers = [a_driver("a"), a_driver("b", upgradePolicy={"autoUpgrade": False})]
    found = upgrade_owners([split], drivers, ())
    assert {owner: item.auto_upgrade for owner, item in found.items()} == {"a": True, "b": False}


@pytest.mark.parametrize(
    "policies",
    [
        [],
        [a_policy(sandboxWorkloads={"enabled": True})],
        [a_policy(metadata={"deletionTimestamp": "2026-03-01T00:00:00Z"})],
    ],
)
def test_no_node_is_upgraded_without_a_policy_and_with_virtual_machines(policies: Any):
    assert upgrade_owners(policies, [a_driver("a")], ()) == {}


def test_pools_that_are_waited_for_have_to_be_there():
    annotations = {"gpu.deckhouse.io/wait-for-pools": " a, b,,no_pool"}
    policy = a_policy(metadata={"annotations": annotations})
    (terms,) = upgrade_owners([policy], [], ("a",)).values()
    assert terms.awaited.pools == {"a", "b", "no_pool"}
    path = "metadata.annotations[gpu.deckhouse.io/wait-for-pools]"
    assert [str(fault) for fault in terms.faults] == [
        f"{path}: there is no GPUPool b: create it, or take its name out",
        f"{path}: 'no_pool' is no name of a GPUPool: write names with commas between them",
    ]
