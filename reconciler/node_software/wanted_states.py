"""What a state is to have, or why it cannot: a mistake in one state stops no other. Pure."""

from typing import TYPE_CHECKING, Any, TypeVar

from manifests.node.device_plugin import signed
from operands.nvidia.policy_operands import StateFault, StateSettingsError
from reconciler.node_software.objects import WantedState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from operands.nvidia.node_software import HostSoftware
    from operands.operand_state import OperandState, ServedKinds

Settings = TypeVar("Settings")


def wanted_state(
    state: "OperandState[Settings]",
    settings: Settings,
    served: "ServedKinds",
    *,
    without: "Mapping[HostSoftware, str]",
) -> WantedState:
    """Return the signed objects of a state.

    Args:
        state: the state.
        settings: what it depends on.
        served: optional kinds of the cluster.
        without: software of nodes that get nothing of the state, and why, with the cure.
    """
    if not state.is_enabled(settings):
        return WantedState(name=state.name, is_enabled=False)
    try:
        objects: list[dict[str, Any]] = state.objects(settings, served)
    except StateSettingsError as error:
        return WantedState(name=state.name, fault=(error.fault, str(error)))
    texts = sorted(set(without.values()))
    return WantedState(
        name=state.name,
        objects=[signed(object_) for object_ in objects],
        fault=(StateFault.OS_UNKNOWN, "; ".join(texts)) if texts else None,
    )
