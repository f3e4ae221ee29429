"""GPUControlPlaneTerm: the leading replica and its term number; named like the Lease."""

from typing import Annotated

from msgspec import Meta

from api.meta import Model, ObjectMeta


class GPUControlPlaneTermSpec(Model, frozen=True):
    """The leader and its term."""

    holder: Annotated[str, Meta(min_length=1, max_length=256)]
    """The leader, as in the Lease."""
    number: Annotated[int, Meta(ge=1)]
    """Counts takeovers. The API server accepts only Bindings that name this holder and number."""


class GPUControlPlaneTerm(Model, frozen=True):
    """The term under which Bindings are accepted; each new leader writes it once."""

    spec: GPUControlPlaneTermSpec
    metadata: ObjectMeta = ObjectMeta()
