"""Exit codes of every verb."""

from typing import Final

ANSWERED: Final = 0
"""Yes, or: the question is answered."""
NO: Final = 1
"""The answer is no: the pod waits, it would not fit, something is wrong."""
MISUSED: Final = 2
"""The command line cannot be used."""
UNREADABLE: Final = 3
"""The cluster, or what stands for it, cannot be read."""
