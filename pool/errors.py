"""Errors of the core.

    PoolError
    └── InvariantViolatedError   the allocation state contradicts itself: a defect, never repaired silently

Outcomes that a user can cause (no fit, unknown node, stale reservation) are values, not exceptions.
"""


class PoolError(Exception):
    """Base of this package's errors."""


class InvariantViolatedError(PoolError):
    """The allocation state contradicts itself."""
