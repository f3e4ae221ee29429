"""Version of this program and the commit that it was built from.

The project file and the chart have the same number. The build of the container image replaces the line of
`REVISION`; a source checkout does not know its commit.
"""

from typing import Final

VERSION: Final = "0.1.0"
REVISION: Final = "unknown"
