"""Errors of this package.

OperandError
└── StateOrderError    states whose needs give no order
"""


class OperandError(Exception):
    """Base of the errors of this package."""


class StateOrderError(OperandError):
    """A state needs one that does not exist, or itself; the message names them."""
