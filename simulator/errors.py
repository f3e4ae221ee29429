"""Errors of the simulator.

SimulatorError
└── ExtenderFailed   the extender did not answer as the protocol demands
"""


class SimulatorError(Exception):
    """Base of this package's errors."""


class ExtenderFailed(SimulatorError):  # noqa: N818  # it is named for what happened
    """The extender did not answer, or answered with an error."""
