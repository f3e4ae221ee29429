"""Objects that are the operator's rather than an operand's: RuntimeClasses, and the Service of its own metrics."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from api.kinds.nvidia.operator_blocks import OperatorSpec


def set_operator_metadata(objects: Sequence[dict[str, Any]], operator: "OperatorSpec") -> None:
    """Add the labels and annotations of `spec.operator`; labels that the objects have stay."""
    for one in objects:
        metadata = one["metadata"]
        metadata["labels"] = {**(operator.labels or {}), **metadata["labels"]}
        if operator.annotations:
            metadata["annotations"] = dict(operator.annotations)
