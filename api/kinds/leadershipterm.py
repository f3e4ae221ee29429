"""GPUControlPlaneTerm: which replica decides, and under which number; named like the Lease."""

from typing import Annotated

from msgspec import Meta

from api.meta import Model, ObjectMeta


class GPUControlPlaneTermSpec(Model, frozen=True):
    """Who leads."""

    holder: Annotated[str, Meta(min_length=1, max_length=256)]
    """As the Lease names it."""
    number: Annotated[int, Meta(ge=1)]
    """Counts take-overs. A Binding names holder and number; the API server refuses any others."""


class GPUControlPlaneTerm(Model, frozen=True):
    """Under which term bindings are accepted; written by each replica that takes the lead, once."""

    spec: GPUControlPlaneTermSpec
    metadata: ObjectMeta = ObjectMeta()
