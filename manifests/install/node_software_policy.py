"""What the server may write besides, with `node_software.enabled`: for ClusterPolicies and NVIDIADrivers.

Objects of their states are known by the label of the state and by NVIDIA's names. Their DaemonSets run any image: a
ClusterPolicy names it. So a server that may do this can be root on every node (`docs/threat-model.md`).
"""

from typing import Any, Final

from api.driver_upgrade import (
    AGENT_DEPLOY_LABEL,
    DEPLOY_LABEL_PREFIX,
    INITIALLY_UNSCHEDULABLE_ANNOTATION,
    SAFE_LOAD_ANNOTATION,
    UNITS_WITHHELD_ANNOTATION,
    UPGRADE_RECORD_ANNOTATION,
    UPGRADE_REQUESTED_ANNOTATION,
    UPGRADE_STATE_LABEL,
    VALIDATION_START_ANNOTATION,
    WAIT_START_ANNOTATION,
)
from api.names import (
    DEPLOY_LABELS_ANNOTATION,
    MIG_CONFIG_LABEL,
    OPERAND_LABEL,
    OPERANDS_LABEL,
    UPGRADE_ENABLED_ANNOTATION,
)
from manifests import constants
from manifests.install.policy_expressions import cel_list
from operands.nvidia.deploy_record import DERIVED_LABELS

NODE_LABELS: Final = (*DERIVED_LABELS, MIG_CONFIG_LABEL, UPGRADE_STATE_LABEL, AGENT_DEPLOY_LABEL)
DEPLOY_LABEL: Final = f"k.startsWith('{DEPLOY_LABEL_PREFIX}') && k != '{OPERANDS_LABEL}'"
"""A further label `k` of a Node."""
NODE_ANNOTATIONS: Final = (
    DEPLOY_LABELS_ANNOTATION,
    UPGRADE_ENABLED_ANNOTATION,
    UPGRADE_RECORD_ANNOTATION,
    UPGRADE_REQUESTED_ANNOTATION,
    UNITS_WITHHELD_ANNOTATION,
    INITIALLY_UNSCHEDULABLE_ANNOTATION,
    SAFE_LOAD_ANNOTATION,
    WAIT_START_ANNOTATION,
    VALIDATION_START_ANNOTATION,
)
NODE_FIELDS: Final = ("unschedulable",)

NAME_PREFIX: Final = "nvidia-"
OTHER_NAMES: Final = (
    constants.FEATURE_DISCOVERY,
    "gpu-operator",
    "default-gpu-clients",
    "default-mig-parted-config",
    "default-vgpu-devices-config",
)
"""Names of objects of states that do not begin so."""
IN_NAMESPACE: Final = (
    "configmaps",
    "daemonsets",
    "prometheusrules",
    "rolebindings",
    "roles",
    "serviceaccounts",
    "servicemonitors",
    "services",
)
IN_CLUSTER: Final = ("clusterrolebindings", "clusterroles", "runtimeclasses")

OF_NODE_SOFTWARE: Final = "variables.ofNodeSoftware"
_BOTH: Final = "[object, oldObject].filter(one, one != null)"
_IS_NAMED: Final = (
    f"(one.metadata.name.startsWith('{NAME_PREFIX}')"
    f" || one.metadata.name in {cel_list(OTHER_NAMES)})"
)
_HAS_STATE: Final = f".metadata.?labels[?'{OPERAND_LABEL}'].hasValue()"
_IS_DRIVER_POD: Final = (
    "request.operation == 'DELETE' && oldObject.metadata.?ownerReferences.orValue([])"
    ".exists(r, r.kind == 'DaemonSet' && r.?controller.orValue(false)"
    f" && r.name.startsWith('{NAME_PREFIX}'))"
)


def deletable_pod_condition() -> str:
    """Return the condition under which a pod of the namespace may be deleted: of a DaemonSet of a state."""
    return _IS_DRIVER_POD


def namespace_variable() -> list[dict[str, str]]:
    """Return the variable that says whether an object of the namespace is one of a state.

    Where the label of an object was taken off it is put back, so that the older object may lack it.
    """
    return _variable(
        f"request.resource.resource in {cel_list(IN_NAMESPACE)}"
        f" && {_BOTH}.all(one, {_IS_NAMED}) && {_BOTH}[0]{_HAS_STATE}"
    )


def cluster_variable(namespace: str) -> list[dict[str, str]]:
    """Return the variable for objects of the cluster: roles of operands, bound to their accounts, and RuntimeClasses.

    A ClusterPolicy names the RuntimeClass. Those of others are known by the label that they lack.
    """
    bound = (
        f"dyn(one).roleRef.name.startsWith('{NAME_PREFIX}')"
        " && dyn(one).?subjects.orValue([]).all(s, s.kind == 'ServiceAccount'"
        f" && s.?namespace.orValue('') == '{namespace}' && s.name.startsWith('{NAME_PREFIX}'))"
    )
    return _variable(
        f"request.resource.resource in {cel_list(IN_CLUSTER)} && {_BOTH}.all(one, one{_HAS_STATE}"
        f" && (request.resource.resource == 'runtimeclasses' || {_IS_NAMED})"
        f" && (request.resource.resource != 'clusterrolebindings' || {bound}))"
    )


def runtime_class_rule() -> dict[str, str]:
    return {
        "expression": f"request.resource.resource != 'runtimeclasses' || {OF_NODE_SOFTWARE}",
        "message": (
            "the GPU control plane writes no RuntimeClass but those of a ClusterPolicy, with the label"
            f" {OPERAND_LABEL}: delete one of this name that another client made"
        ),
        "reason": "Forbidden",
    }


def is_of_software_account(template: str) -> str:
    """Return the condition under which a DaemonSet's pods run as an account of a state."""
    account = f"{template}.?serviceAccountName.orValue('')"
    return f"{OF_NODE_SOFTWARE} && {account}.startsWith('{NAME_PREFIX}')"


def _variable(expression: str) -> list[dict[str, Any]]:
    return [{"name": OF_NODE_SOFTWARE.partition(".")[2], "expression": expression}]
