"""State `validator`: checks driver, toolkit and CUDA of a node in init containers, then watches the node's units."""

from typing import Any, Final

from operands.asset_files import load_assets
from operands.operand_settings import BootstrapOperands
from operands.operand_state import OperandState
from operands.transforms import (
    container_of,
    finish,
    pod_spec_of,
    set_options,
    set_security,
    the,
    without_container,
)

NAME: Final = "validator"
_NVIDIA_FS: Final = "nvidia-fs-validation"
_GDRCOPY: Final = "gdrcopy-validation"
_TOOLKIT: Final = "toolkit-validation"
_SUFFIX: Final = "-validation"


def _build(settings: BootstrapOperands) -> list[dict[str, Any]]:
    objects = load_assets(NAME)
    validator, daemon_set = settings.validator, the(objects, "DaemonSet")
    for name, is_wanted in (
        (_NVIDIA_FS, validator.validates_nvidia_fs),
        (_GDRCOPY, validator.validates_gdrcopy),
    ):
        if not is_wanted:
            without_container(daemon_set, name)
    spec = pod_spec_of(daemon_set)
    steps = [container["name"].removesuffix(_SUFFIX) for container in spec["initContainers"]]
    container_of(daemon_set, NAME)["args"] += ["--steps", ",".join(steps)]
    for name in (_TOOLKIT, NAME):
        container_of(daemon_set, name)["args"] += validator.hand_out_arguments
    set_options(daemon_set, NAME, validator.options)
    resources = spec["containers"][0].get("resources")
    if resources:
        for container in spec["initContainers"]:
            container["resources"] = resources
    every = frozenset(
        container["name"] for container in (*spec["initContainers"], *spec["containers"])
    )
    # Device files of the node are opened, some of which appear while it runs.
    set_security(daemon_set, privileged=every)
    return finish(NAME, objects, settings)


STATE: Final = OperandState(
    name=NAME,
    is_enabled=lambda settings: settings.runs_validator,
    build=_build,
)
