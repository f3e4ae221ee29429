"""Labels and annotations of one node for the operands of a ClusterPolicy, as the exact change. Pure.

A node with a GPU gets the deploy labels of its workload type, by which DaemonSets select it, what its driver and toolkit
must fit, and the owner of its driver. A value of another writer stays, whatever it is: `false` keeps an operand away, and
`paused-...` is the driver's or MIG's. Only what the record of the node has (`operands.nvidia.deploy_record`) is removed.

How several writers share labels is in `operands.nvidia.label_change`. Labels of feature discovery come and go while it
restarts. Nothing is removed for their absence until a hold is over, of which the caller keeps the time; as long as the
node has none of them at all, nothing is removed.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from api.driver_upgrade import DEPLOY_LABEL_PREFIX, DEPLOYED
from api.kinds.nvidia.sandbox_operands import SandboxMode, WorkloadType
from api.names import (
    DRIVER_OWNER_LABEL,
    MIG_CONFIG_LABEL,
    NVIDIA_PRESENT_LABEL,
    OPERANDS_LABEL,
    UPGRADE_ENABLED_ANNOTATION,
    WORKLOAD_CONFIG_LABEL,
)
from api.text import truncate
from operands.nvidia.deploy_record import ALL_DISABLED, CLIENT, KEYS
from operands.nvidia.driver_owners import DriverOwners, OwnerConflict, driver_owners, owner_value
from operands.nvidia.label_change import (
    DesiredLabels,
    Hold,
    LabelChange,
    LabelledNode,
    LabelReason,
    change_of,
)
from operands.nvidia.node_software import OS_LABEL, software_of, why_unsupported
from operands.nvidia.policy_states import POLICY_STATES
from operands.nvidia.states import (
    device_plugin,
    kata_device_plugin,
    mig_manager,
    sandbox_device_plugin,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from api.kinds.nvidia.clusterpolicy import ClusterPolicy
    from api.kinds.nvidia.nvidiadriver import NVIDIADriver

MIG_CAPABLE_LABEL: Final = "nvidia.com/mig.capable"
PRODUCT_LABEL: Final = "nvidia.com/gpu.product"
VGPU_HOST_LABEL: Final = "nvidia.com/vgpu.host-driver-version"
DEVICE_PLUGIN: Final = device_plugin.STATE.deploy_label
MIG_MANAGER: Final = mig_manager.STATE.deploy_label
EXCLUDED_BY_POOLS: Final = (DEVICE_PLUGIN, MIG_MANAGER)
"""Operands whose work GPUPools do themselves."""
_MIG_PRODUCTS: Final = ("h100", "a100", "a30")
_TRUE: Final = "true"
_FALSE: Final = "false"

_OTHER_PLUGIN: Final = {
    SandboxMode.KUBEVIRT: kata_device_plugin.STATE.deploy_label,
    SandboxMode.KATA: sandbox_device_plugin.STATE.deploy_label,
}
"""Software of virtual machines -> the device plugin of the other one, which nodes with whole devices do not get."""


def operands_of(workload: WorkloadType, mode: SandboxMode) -> tuple[str, ...]:
    """Return the operands of a workload type, but for the MIG manager, which not every node of containers gets."""
    found = {state.deploy_label for state in POLICY_STATES if workload in state.workloads}
    if workload is WorkloadType.VM_PASSTHROUGH:
        found.discard(_OTHER_PLUGIN[mode])
    return tuple(sorted({CLIENT, *found} - {""}))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LabelParameters:
    """What of a ClusterPolicy and of the NVIDIADrivers decides about labels; equal parameters give equal labels."""

    serves_virtual_machines: bool = False
    default_workload: WorkloadType = WorkloadType.CONTAINER
    mode: SandboxMode = SandboxMode.KUBEVIRT
    disables_mig: bool = False
    """Whether nodes get the layout without MIG instances, where their label names none."""
    upgrades: bool = False
    """Whether nodes get a new driver by themselves, where the policy describes the driver."""
    owners: DriverOwners | None = None
    """None: the policy describes the driver."""


def label_parameters(
    policy: "ClusterPolicy | None",
    drivers: "Iterable[NVIDIADriver]",
    *,
    unread: "Iterable[str]" = (),
) -> LabelParameters | None:
    """Return the parameters of the policy that counts; None where labels are to be removed.

    Args:
        policy: the one that counts.
        drivers: all NVIDIADrivers that can be read.
        unread: names of those that cannot.
    """
    if policy is None or policy.metadata.deletion_timestamp is not None:
        return None
    spec, sandbox = policy.spec, policy.spec.sandbox_workloads
    mig = spec.mig_manager
    return LabelParameters(
        serves_virtual_machines=sandbox.is_enabled,
        default_workload=sandbox.default_workload,
        mode=sandbox.mode,
        disables_mig=mig.is_enabled and mig.config.default == ALL_DISABLED,
        upgrades=spec.driver.is_enabled and spec.driver.upgrade_policy.auto_upgrade,
        owners=driver_owners(drivers, unread=unread)
        if spec.driver.is_left_to_driver_objects
        else None,
    )


def deploy_labels(
    node: LabelledNode,
    parameters: LabelParameters | None,
    *,
    expired: Collection[Hold] = frozenset(),
) -> LabelChange:
    """Return the change of a node; applied, it leaves no further change.

    Args:
        node: as it is.
        parameters: None without a ClusterPolicy: everything recorded is removed.
        expired: holds that are over.
    """
    if parameters is None:
        if not node.recorded:
            return LabelChange()
        return _after_hold(node, DesiredLabels(is_removal=True), Hold.POLICY, expired=expired)
    if node.has_gpu:
        return change_of(node, _desired(node, parameters, expired))
    recorded = node.record
    if not recorded:
        return LabelChange()
    if not node.has_features:
        desired = DesiredLabels(kept=set(KEYS))
        message = "Node Feature Discovery shows nothing of the node, which keeps its labels"
        desired.note(NVIDIA_PRESENT_LABEL, LabelReason.FEATURES_MISSING, message)
        return change_of(node, desired)
    lost = DesiredLabels(is_removal=True)
    if NVIDIA_PRESENT_LABEL in recorded:
        lost.values[NVIDIA_PRESENT_LABEL] = _FALSE
    return _after_hold(node, lost, Hold.DEVICE, expired=expired)


def _after_hold(
    node: LabelledNode, desired: DesiredLabels, hold: Hold, *, expired: Collection[Hold]
) -> LabelChange:
    change = change_of(node, desired)
    if hold in expired or not change:
        return change
    return change_of(node, DesiredLabels(kept=set(KEYS), held={hold}))


def _desired(
    node: LabelledNode, parameters: LabelParameters, expired: Collection[Hold]
) -> DesiredLabels:
    desired = DesiredLabels(values={NVIDIA_PRESENT_LABEL: _TRUE})
    if node.labels.get(OPERANDS_LABEL) == _FALSE:
        message = f"label {OPERANDS_LABEL}=false keeps all operands away; remove it to have them"
        desired.note(OPERANDS_LABEL, LabelReason.OPERANDS_OFF, message)
        return desired
    if why := why_unsupported(node.labels):
        desired.note(OS_LABEL, LabelReason.OS_UNSUPPORTED, why)
        return desired
    desired.workload = _workload(node, parameters, desired)
    operands = operands_of(desired.workload, parameters.mode)
    desired.values |= {f"{DEPLOY_LABEL_PREFIX}{name}": DEPLOYED for name in operands}
    if desired.workload is WorkloadType.CONTAINER:
        _add_mig(node, parameters, desired)
    if node.is_in_pool:
        _exclude_pools(desired)
    software = software_of(
        node.labels,
        runtime_version=node.runtime_version,
        kernel_version=node.kernel_version,
        system=node.system,
    )
    desired.values |= software.labels()
    _add_driver(node, parameters, desired, expired=expired)
    return desired


def _workload(
    node: LabelledNode, parameters: LabelParameters, desired: DesiredLabels
) -> WorkloadType:
    given = node.labels.get(WORKLOAD_CONFIG_LABEL, "")
    if not parameters.serves_virtual_machines:
        if given not in {"", WorkloadType.CONTAINER.value}:
            message = (
                f"label {WORKLOAD_CONFIG_LABEL}={truncate(given)} has no effect while"
                " spec.sandboxWorkloads.enabled is false; the workload type is container"
            )
            desired.note(WORKLOAD_CONFIG_LABEL, LabelReason.WORKLOAD_IGNORED, message)
        return WorkloadType.CONTAINER
    if not given:
        return parameters.default_workload
    try:
        return WorkloadType(given)
    except ValueError:
        values = ", ".join(item.value for item in WorkloadType)
        message = (
            f"label {WORKLOAD_CONFIG_LABEL}={truncate(given)} names no workload type: set it to one of {values};"
            f" until then it is {parameters.default_workload.value}, of spec.sandboxWorkloads.defaultWorkload"
        )
        desired.note(WORKLOAD_CONFIG_LABEL, LabelReason.WORKLOAD_UNKNOWN, message)
        return parameters.default_workload


def mig_capability(labels: Mapping[str, str]) -> bool | None:
    """Return whether the devices can be partitioned; None where no label says so, as before discovery has run."""
    if labels.get(VGPU_HOST_LABEL):
        return False
    capable = labels.get(MIG_CAPABLE_LABEL, "")
    if capable:
        return capable == _TRUE
    product = labels.get(PRODUCT_LABEL, "").lower()
    return True if any(item in product for item in _MIG_PRODUCTS) else None


def _add_mig(node: LabelledNode, parameters: LabelParameters, desired: DesiredLabels) -> None:
    key = f"{DEPLOY_LABEL_PREFIX}{MIG_MANAGER}"
    match mig_capability(node.labels):
        case True:
            desired.values[key] = DEPLOYED
            if parameters.disables_mig:
                desired.values[MIG_CONFIG_LABEL] = ALL_DISABLED
        case False:
            message = f"labels {MIG_CAPABLE_LABEL} and {VGPU_HOST_LABEL} say that no device can be partitioned"
            desired.note(key, LabelReason.NOT_MIG_CAPABLE, message)
        case None:
            # While feature discovery restarts its labels are gone: a MIG manager that is there stays.
            desired.kept.add(key)
            if parameters.disables_mig:
                desired.kept.add(MIG_CONFIG_LABEL)
            message = f"no label {MIG_CAPABLE_LABEL} says that a device can be partitioned"
            desired.note(key, LabelReason.MIG_UNKNOWN, message)


def _exclude_pools(desired: DesiredLabels) -> None:
    for name in EXCLUDED_BY_POOLS:
        key = f"{DEPLOY_LABEL_PREFIX}{name}"
        if desired.values.pop(key, None) is None and key not in desired.kept:
            continue
        desired.kept.discard(key)
        message = f"a device of the node is in a GPUPool, whose own workloads replace {name}"
        desired.note(key, LabelReason.IN_POOL, message)
    desired.values.pop(MIG_CONFIG_LABEL, None)
    desired.kept.discard(MIG_CONFIG_LABEL)


def _add_driver(
    node: LabelledNode,
    parameters: LabelParameters,
    desired: DesiredLabels,
    *,
    expired: Collection[Hold],
) -> None:
    """Add the driver's owner, and whether it upgrades by itself: not where virtual machines are served."""
    upgrades = parameters.upgrades
    if parameters.owners is not None:
        owner = _owner(node, parameters.owners, desired, expired=expired)
        if isinstance(owner, OwnerConflict):
            desired.kept |= {DRIVER_OWNER_LABEL, UPGRADE_ENABLED_ANNOTATION}
            desired.note(DRIVER_OWNER_LABEL, LabelReason.OWNER_CONFLICT, owner.text)
            return
        claim = parameters.owners.claim(owner) if owner is not None else None
        if claim is None:
            message = "no NVIDIADriver selects the node: change a spec.nodeSelector, or set spec.default of one"
            desired.note(DRIVER_OWNER_LABEL, LabelReason.NO_OWNER, message)
            return
        desired.values[DRIVER_OWNER_LABEL] = owner_value(claim.name)
        upgrades = claim.upgrades
    if upgrades and not parameters.serves_virtual_machines:
        desired.values[UPGRADE_ENABLED_ANNOTATION] = _TRUE


def _owner(
    node: LabelledNode, owners: DriverOwners, desired: DesiredLabels, *, expired: Collection[Hold]
) -> str | OwnerConflict | None:
    owner = owners.owner_of(node.labels)
    present = node.labels.get(DRIVER_OWNER_LABEL, "")
    for claim in owners.claims:
        # The owner of before, whose selector has labels that feature discovery will bring back.
        if owner_value(claim.name) != present or claim.name == owner:
            continue
        if owners.may_keep(claim.name, node.labels) and Hold.OWNER not in expired:
            desired.held.add(Hold.OWNER)
            return claim.name
    return owner
