"""Whose upgrade policy holds for which nodes: the ClusterPolicy's, or those of NVIDIADrivers. Pure."""

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from api.field_errors import FieldError
from api.kinds.nvidia.clusterpolicy import active_policy
from api.names import WAIT_FOR_POOLS_ANNOTATION, PoolName
from api.text import truncate
from operands.nvidia.driver_owners import owner_value
from operands.upgrade.cluster import CLUSTER_POLICY
from operands.upgrade.parameters import read_parameters

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from api.kinds.nvidia.clusterpolicy import ClusterPolicy
    from api.kinds.nvidia.nvidiadriver import NVIDIADriver
    from api.kinds.nvidia.upgrade_policy import ClusterUpgradePolicy
    from api.meta import ObjectMeta
    from operands.upgrade.parameters import UpgradeParameters

_POOL_NAME: Final = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,61}[a-z0-9])?", re.ASCII)
_PATH: Final = f"metadata.annotations[{WAIT_FOR_POOLS_ANNOTATION}]"


def upgrade_owners(
    policies: "Iterable[ClusterPolicy]",
    drivers: "Iterable[NVIDIADriver]",
    pools: "Collection[str]",
) -> "dict[str, UpgradeParameters]":
    """Return the parameters by owner, as nodes name it; none without a policy, and with virtual machines as workload.

    Args:
        policies: all ClusterPolicies; the one that counts decides.
        drivers: all NVIDIADrivers.
        pools: names of the GPUPools of the cluster.
    """
    policy = active_policy(policies)
    if policy is None or policy.metadata.deletion_timestamp is not None:
        return {}
    if policy.spec.sandbox_workloads.enabled:
        return {}
    if not policy.spec.driver.use_nvidia_driver_crd:
        path = "spec.driver.upgradePolicy"
        parameters = _parameters(
            policy.spec.driver.upgrade_policy, policy.metadata, path=path, pools=pools
        )
        return {CLUSTER_POLICY: parameters}
    return {
        owner_value(item.metadata.name): _parameters(
            item.spec.upgrade_policy, item.metadata, path="spec.upgradePolicy", pools=pools
        )
        for item in drivers
        if item.metadata.deletion_timestamp is None
    }


def _parameters(
    policy: "ClusterUpgradePolicy", meta: "ObjectMeta", *, path: str, pools: "Collection[str]"
) -> "UpgradeParameters":
    awaited, faults = _awaited_pools(meta, pools)
    parameters = read_parameters(policy, path=path, pools=awaited)
    return replace(parameters, faults=(*parameters.faults, *faults)) if faults else parameters


def _awaited_pools(
    meta: "ObjectMeta", pools: "Collection[str]"
) -> tuple[frozenset[PoolName], list[FieldError]]:
    text = meta.annotation(WAIT_FOR_POOLS_ANNOTATION) or ""
    names = sorted({part.strip() for part in text.split(",")} - {""})
    faults: list[FieldError] = []
    for name in names:
        if not _POOL_NAME.fullmatch(name):
            quoted = truncate(repr(name), 64)
            fault = f"{quoted} is no name of a GPUPool: write names with commas between them"
            faults.append(FieldError(_PATH, fault))
        elif name not in pools:
            fault = f"there is no GPUPool {name}: create it, or take its name out"
            faults.append(FieldError(_PATH, fault))
    return frozenset(PoolName(name) for name in names), faults
