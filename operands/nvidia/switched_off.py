"""What keeps a state of a ClusterPolicy off: the field of the spec that says so, for people."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import fields

from api.kinds.nvidia.clusterpolicy import ClusterPolicySpec
from operands.nvidia.policy_operands import PolicyOperands

if TYPE_CHECKING:
    from api.kinds.nvidia.sandbox_operands import SandboxMode

WhyOff = Callable[[PolicyOperands], str]


def switched_by(block: str) -> WhyOff:
    """Return what keeps a state off that a block of the spec switches.

    Args:
        block: attribute of ClusterPolicySpec.
    """
    (field,) = (item.encode_name for item in fields(ClusterPolicySpec) if item.name == block)

    def why_off(settings: PolicyOperands) -> str:
        switch = getattr(settings.spec, block)
        if switch.is_enabled:
            return ""
        return f"spec.{field}.enabled is {'left out, which is off' if switch.enabled is None else 'false'}"

    return why_off


def of_virtual_machines(block: str = "", *, mode: "SandboxMode | None" = None) -> WhyOff:
    """Return what keeps a state off that serves virtual machines.

    Args:
        block: attribute of ClusterPolicySpec that switches it, too.
        mode: the only one that it serves.
    """
    switch = switched_by(block) if block else None

    def why_off(settings: PolicyOperands) -> str:
        sandbox = settings.spec.sandbox_workloads
        if not sandbox.is_enabled:
            return "spec.sandboxWorkloads.enabled is false"
        if mode not in {None, sandbox.mode}:
            return f"spec.sandboxWorkloads.mode is {sandbox.mode.value}, and it serves {mode.value}"
        return switch(settings) if switch is not None else ""

    return why_off
