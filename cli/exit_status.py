"""Exit statuses of every command."""

from typing import Final

OK: Final = 0
FAILED: Final = 1
MISUSED: Final = 2
"""The command line, a setting or a file named by one cannot be used."""
UNREADABLE: Final = 3
"""What the question is about cannot be read, so that there is no answer."""
