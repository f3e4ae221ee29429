"""Lease, as far as readers of an election need it: who holds it, and since when it was not renewed."""

from api.meta import Model, ObjectMeta


class PartialLeaseSpec(Model, frozen=True):
    holder_identity: str | None = None
    renew_time: str | None = None


class PartialLease(Model, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PartialLeaseSpec = PartialLeaseSpec()
