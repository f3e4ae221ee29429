"""The init container `k8s-driver-manager`, which frees the node's devices before a driver is loaded or replaced.

In manifests its image is the word `driver-manager`.
"""

from typing import TYPE_CHECKING, Any, Final

from operands.nvidia.policy_transforms import add_pull_secrets, image_of, set_image
from operands.transforms import container_of, set_env

if TYPE_CHECKING:
    from api.kinds.nvidia.operand_block import DriverManager
    from operands.nvidia.policy_operands import PolicyOperands

CONTAINER: Final = "k8s-driver-manager"


def set_driver_manager(
    daemon_set: dict[str, Any], block: "DriverManager", *, field: str, settings: "PolicyOperands"
) -> None:
    """Put image, pull settings and environment into the init container.

    Args:
        daemon_set: the object, which is changed.
        block: the part of the spec.
        field: its name in the spec, such as `driver.manager`.
        settings: of the state.

    Raises:
        StateSettingsError: the image is given in half, or nowhere.
    """
    put_driver_manager(daemon_set, block, image_of(block, field, settings))


def put_driver_manager(daemon_set: dict[str, Any], block: "DriverManager", image: str) -> None:
    """Put an image that is known, pull settings and environment into the init container."""
    container = container_of(daemon_set, CONTAINER)
    set_image(container, image, block)
    add_pull_secrets(daemon_set, block)
    set_env(container, {item.name: item.value for item in block.env or ()})
