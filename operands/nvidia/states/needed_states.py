"""Names of states that others wait for on a node: init containers await files that these write."""

from typing import Final

DRIVER: Final = "state-driver"
OPERATOR_VALIDATION: Final = "state-operator-validation"
"""Its validator writes that the container toolkit works, for which all that uses devices waits."""
