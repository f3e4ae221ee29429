"""Errors of this package.

OperandError
├── StateOrderError    states whose needs give no order
└── ImageSourceError   an image that is given in half, or not at all
"""


class OperandError(Exception):
    """Base of the errors of this package."""


class StateOrderError(OperandError):
    """A state needs one that does not exist, or itself; the message names them."""


class ImageSourceError(OperandError):
    """An image that cannot be resolved; the message names the setting."""
