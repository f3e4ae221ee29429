"""Pods on a node as facts of an upgrade: what creates them again, and whether and how they use the driver. Pure."""

import datetime as dt
from typing import TYPE_CHECKING, Final

from api.driver_upgrade import DEPLOY_LABEL_PREFIX
from api.names import MIRROR_ANNOTATION, PodUid
from api.status_conditions import parse_time
from operands.upgrade.facts import PodOnNode, PodOwner, uses_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from operands.upgrade.facts import EvictionAnswer
    from reconciler.driver_upgrade.objects import ResourceClaim, UpgradePod

    ReadEviction = Callable[[UpgradePod], tuple[EvictionAnswer, str]]
    """Says what the budgets of a pod answer, and the budget that refuses."""

CLAIM_DRIVER: Final = "gpu.nvidia.com"
"""The DRA driver of devices."""
DRIVER_OPERAND_LABELS: Final = frozenset(
    f"{DEPLOY_LABEL_PREFIX}{name}"
    for name in (
        "operator-validator",
        "container-toolkit",
        "device-plugin",
        "gpu-feature-discovery",
        "dcgm-exporter",
        "dcgm",
        "mig-manager",
        "mps-control-daemon",
        "nvsm",
        "sandbox-validator",
        "sandbox-device-plugin",
        "vgpu-device-manager",
    )
)
"""Deploy labels of operands that have the driver open, or that check it: those that NVIDIA's driver manager pauses."""
_MAX_DEADLINE_S: Final = 10 * 365 * 86_400


def pod_on_node(
    pod: "UpgradePod",
    *,
    namespace: str,
    agent: str,
    has_claim: bool,
    read_eviction: "ReadEviction",
    is_held: bool = False,
) -> PodOnNode:
    """Return the facts of a pod.

    Args:
        pod: on the node, and no driver pod.
        namespace: of the operands and of this control plane: a pod of any other is nobody's operand.
        agent: name of its DaemonSet where that is one of `agent_daemons`.
        has_claim: whether it has devices by a claim.
        read_eviction: answers of its disruption budgets.
        is_held: whether its DaemonSet is one that NVIDIA's GPU Operator made.
    """
    is_ours = pod.metadata.namespace == namespace
    owner = _owner_of(pod)
    label = _deploy_label(pod) if is_ours and owner is PodOwner.DAEMON_SET else ""
    uses, pools = uses_of(
        set(_resources(pod)), has_claim=has_claim, has_driver_open=bool(label or agent)
    )
    answer, message = read_eviction(pod)
    requests = pod.spec.requests
    return PodOnNode(
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        uid=PodUid(pod.metadata.uid),
        labels=pod.metadata.labels or {},
        owner=owner,
        uses=uses,
        pools=pools,
        is_active=pod.is_active,
        is_terminating=pod.is_terminating,
        is_agent=bool(agent),
        agent=agent,
        is_ready=pod.condition("Ready").status == "True",
        deploy_label=label,
        is_held=is_held,
        has_empty_dir=any(volume.empty_dir is not None for volume in pod.spec.volumes or ()),
        mounts_caches=pod.mounts_caches,
        cpu_milli=requests.cpu_milli,
        memory_mib=requests.memory_mib,
        priority=pod.spec.priority or 0,
        ends_at=_ends_at(pod),
        eviction=answer,
        eviction_message=message,
    )


def claims_of(pod: "UpgradePod") -> "Iterator[str]":
    """Yield the names of the pod's ResourceClaims, those made of a template included."""
    for claim in (*(pod.spec.resource_claims or ()), *(pod.status.resource_claim_statuses or ())):
        if claim.resource_claim_name:
            yield claim.resource_claim_name


def uses_driver(claim: "ResourceClaim") -> bool:
    """Return whether a claim has devices, other than to look at them."""
    allocation = claim.status.allocation
    results = (allocation.devices.results or ()) if allocation is not None else ()
    return any(result.driver == CLAIM_DRIVER and not result.admin_access for result in results)


def _owner_of(pod: "UpgradePod") -> PodOwner:
    if pod.metadata.annotation(MIRROR_ANNOTATION) is not None:
        return PodOwner.MIRROR
    kinds = [
        reference.kind for reference in pod.metadata.owner_references or () if reference.controller
    ]
    if not kinds:
        return PodOwner.NONE
    return PodOwner.DAEMON_SET if kinds[0] == "DaemonSet" else PodOwner.CONTROLLER


def _deploy_label(pod: "UpgradePod") -> str:
    return next(
        (key for key in sorted(pod.spec.node_selector or ()) if key in DRIVER_OPERAND_LABELS), ""
    )


def _resources(pod: "UpgradePod") -> "Iterator[str]":
    for container in pod.containers:
        resources = container.resources
        if resources is not None:
            for amounts in (resources.limits, resources.requests):
                yield from (name for name, value in (amounts or {}).items() if str(value) != "0")


def _ends_at(pod: "UpgradePod") -> dt.datetime | None:
    """Return when the pod is ended at the latest, where its author said so."""
    started, limit_s = parse_time(pod.status.start_time or ""), pod.spec.active_deadline_seconds
    if started is None or limit_s is None:
        return None
    return started + dt.timedelta(seconds=max(0, min(limit_s, _MAX_DEADLINE_S)))
