"""Errors of the simulator.

SimulatorError
└── ExtenderFailed   the extender did not answer as the protocol demands
"""


class SimulatorError(Exception):
    """Base of this package's errors."""


class ExtenderError(SimulatorError):
    """The extender did not answer, or answered with an error."""
