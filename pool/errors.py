"""Errors of the core.

    PoolError
    └── InvariantViolated   the books contradict themselves: a bug, never repaired silently

What a user can cause (no fit, unknown node, stale hold) is a value, not an exception.
"""


class PoolError(Exception):
    """Base of this package's errors."""


class InvariantViolatedError(PoolError):
    """The books contradict themselves."""
