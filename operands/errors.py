"""Errors of this package.

OperandError
├── StateOrderError      states whose needs give no order
├── StateSettingsError   a state that its settings do not allow (`operands.nvidia.policy_operands`)
└── UnreadPodsError      a conclusion from the pods of a node that are not read
"""


class OperandError(Exception):
    """Base of the errors of this package."""


class StateOrderError(OperandError):
    """A state needs one that does not exist, or itself; the message names them."""


class UnreadPodsError(OperandError):
    """The pods of a node are asked for, and were not read; the message names the node."""
