"""Terms of scaling pools and requests for nodes, for tests of what is asked of autoscalers."""

from typing import Any

from api.foreign.core import Taint
from api.kinds.autoscaling import ScalingBackend
from api.meta import SelectorOperator, SelectorRequirement
from api.names import PodUid
from autoscaling.scaling_model import NodeRequest, RequestId, ScalingParameters, ShapeParameters
from pool.compute_resources import ComputeResources
from tests.support.builders import a_pool

TAINT = Taint(key="gpu.deckhouse.io/only", value="training", effect="NoSchedule")


def a_requirement(
    key: str = "node.kubernetes.io/instance-type", *values: str
) -> SelectorRequirement:
    return SelectorRequirement(
        key=key, operator=SelectorOperator.IN, values=list(values or ("g.2",))
    )


def a_shape(name: str = "two", devices: int = 2, **changes: Any) -> ShapeParameters:
    fields: dict[str, Any] = {
        "name": name,
        "node_pool": "training",
        "devices": devices,
        "units_per_device": 1,
    }
    return ShapeParameters(**{**fields, **changes})


def some_parameters(
    *shapes: ShapeParameters, pool: str = "training", **changes: Any
) -> ScalingParameters:
    found = shapes or (a_shape(),)
    fields: dict[str, Any] = {
        "pool": a_pool(pool, largest_shape=max(item.units for item in found)),
        "generation": 1,
        "backend": ScalingBackend.KARPENTER_SIGNAL,
        "shapes": found,
    }
    return ScalingParameters(**{**fields, **changes})


def a_node_request(id_: str = "training-1a2b3c4d", **changes: Any) -> NodeRequest:
    fields: dict[str, Any] = {
        "id": RequestId(id_),
        "pool": "training",
        "shape": a_shape(),
        "pods": (PodUid("uid-p"),),
        "requests": ComputeResources(cpu_milli=1500, memory_mib=2048),
    }
    return NodeRequest(**{**fields, **changes})
