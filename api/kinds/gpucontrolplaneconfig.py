"""GPUControlPlaneConfig: the settings of the control plane; the only object is named like the Deployment."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from api.meta import Condition, Model, ObjectMeta


class GPUControlPlaneConfigStatus(Model, frozen=True):
    """Use of the settings, as the leader reports it."""

    observed_generation: int = 0
    """`metadata.generation` that the conditions describe."""
    applied: Annotated[
        dict[str, Any], Meta(extra_json_schema={"x-kubernetes-map-type": "atomic"})
    ] = msgspec.field(default_factory=dict)
    """Settings that were accepted last, from all objects. A server that starts while the spec is refused uses them."""
    conditions: list[Condition] = msgspec.field(default_factory=list)
    """Applied, RestartNeeded and Refused."""


class GPUControlPlaneConfig(Model, frozen=True):
    """Settings of the GPU control plane. Those that the spec leaves out have their defaults."""

    metadata: ObjectMeta = ObjectMeta()
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    """Settings by the names that `gpu-control-plane serve --help` prints."""
    status: GPUControlPlaneConfigStatus | None = None
