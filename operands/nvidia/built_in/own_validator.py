"""State `validator`: checks driver, toolkit and CUDA of a node in init containers, then watches the node's units."""

from typing import Any, Final

from operands.asset_files import load_assets
from operands.nvidia.policy_operands import PolicyOperands
from operands.nvidia.policy_transforms import finish_policy, set_block
from operands.operand_state import OperandState
from operands.transforms import container_of, object_of, pod_spec_of, without_container

NAME: Final = "validator"
_TOOLKIT: Final = "toolkit-validation"
_SUFFIX: Final = "-validation"


def _build(settings: PolicyOperands) -> list[dict[str, Any]]:
    objects, own = load_assets(NAME), settings.own
    assert own is not None
    daemon_set = object_of(objects, "DaemonSet")
    for name, is_selected in (
        ("nvidia-fs-validation", own.validates_nvidia_fs),
        ("gdrcopy-validation", own.validates_gdrcopy),
    ):
        if not is_selected:
            without_container(daemon_set, name)
    spec = pod_spec_of(daemon_set)
    checks = spec["initContainers"]
    steps = [container["name"].removesuffix(_SUFFIX) for container in checks]
    container_of(daemon_set, NAME)["args"] += ["--steps", ",".join(steps)]
    for name in (_TOOLKIT, NAME):
        container_of(daemon_set, name)["args"] += own.allocation_arguments
    for container in (*checks, *spec["containers"]):
        container["args"] += own.library_arguments
    set_block(daemon_set, NAME, settings.spec.validator, field="validator", settings=settings)
    return finish_policy(NAME, objects, settings)


STATE: Final = OperandState(
    name=NAME,
    why_off=lambda settings: (
        ""
        if settings.own is not None and settings.own.runs_validator
        else "bootstrap.validator runs none"
    ),
    build=_build,
)
