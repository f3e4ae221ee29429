"""Errors of reconcilers.

ReconcileError
└── Unretryable   trying again cannot help; the key is dropped until it changes
"""


class ReconcileError(Exception):
    """Base of this package's errors."""


class Unretryable(ReconcileError):  # noqa: N818  # it is named for what it tells the runtime
    """Trying again cannot help."""
