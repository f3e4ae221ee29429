"""Errors of reconcilers.

ReconcileError
├── Unretryable     trying again cannot help; the key is dropped until it changes
└── ExporterSilent  a node's exporter did not answer with a page
"""


class ReconcileError(Exception):
    """Base of this package's errors."""


class UnretryableError(ReconcileError):
    """Trying again cannot help."""


class ExporterUnavailableError(ReconcileError):
    """The exporter did not answer, or with something that is no page."""
