"""State `state-kata-manager`: never on, as in the GPU Operator since v26.3. What an older operator left has a name here."""

from typing import TYPE_CHECKING, Final

from operands.operand_state import OperandState

if TYPE_CHECKING:
    from operands.nvidia.policy_operands import PolicyOperands

NAME: Final = "state-kata-manager"
FORMER_OBJECTS: Final = (
    ("DaemonSet", "nvidia-kata-manager"),
    ("ClusterRoleBinding", "nvidia-kata-manager"),
    ("RoleBinding", "nvidia-kata-manager"),
    ("ClusterRole", "nvidia-kata-manager"),
    ("Role", "nvidia-kata-manager"),
    ("ServiceAccount", "nvidia-kata-manager"),
    ("ConfigMap", "nvidia-kata-manager-config"),
    ("ConfigMap", "nvidia-kata-manager-entrypoint"),
)
"""Kind and name of what an older operator made, in the order of its removal."""
FORMER_CLASSES_LABEL: Final = "nvidia.com/kata-runtime-class"
"""On RuntimeClasses that an older operator made, with the value `true`: their names were its user's."""

STATE: "Final[OperandState[PolicyOperands]]" = OperandState(
    name=NAME, is_enabled=lambda _: False, build=lambda _: []
)
