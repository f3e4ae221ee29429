"""What can go wrong on a node: one tree.

AgentError
├── BadConfig       the pool's file cannot be read, or is not what it should be
├── NotRegistered   kubelet did not take the plugin
└── UnusableAgent   the API server is needed, and there is no usable way to it
"""


class AgentError(Exception):
    """Base of all."""


class BadConfig(AgentError):  # noqa: N818  # it is named for what is wrong
    """The pool's file cannot be used; the text names it and says why."""


class NotRegistered(AgentError):  # noqa: N818  # as above
    """kubelet did not take the plugin; the text says why. It is tried again."""


class UnusableAgent(AgentError):  # noqa: N818  # as above
    """The API server is needed, and there is no usable way to it; the text says why."""
