"""Problems of a pool's device plugin, for the node's agent: files in a directory of their own.

A plugin may write only Events to the API server; the agent reports the problem in the condition AgentDegraded.
Each plugin process has one file, `<pool>-<anything>.json` below `<run directory>/plugins`, which exists only
while there is a problem:

    {"version": "v1", "pool": "whole", "reason": "BadConfig", "text": "config.json is not a pool configuration: …"}

It is replaced atomically, and touched each `WRITE_EVERY_S` while the problem lasts. A file older than `STALE_S`
belongs to a process that was killed, and is ignored. During a rollout two processes of a pool have a file each,
so that the end of one does not remove the other's.

A reader refuses an unknown version and ignores unknown fields.
"""

from typing import Annotated, Final, Literal

from msgspec import Meta

from api.meta import Model

PROBLEMS_DIRECTORY: Final = "plugins"
"""Path below the run directory (`api.nodefiles.node_devices_file.RUN_DIRECTORY`)."""
PROBLEMS_SUFFIX: Final = ".json"
WRITE_EVERY_S: Final = 60.0
STALE_S: Final = 180.0
MAX_BYTES: Final = 64 * 1024
POOL_PATTERN: Final = r"\A[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?\Z"
"""Names of Kubernetes objects, which are valid in file names."""


class PluginProblem(Model, frozen=True):
    """The file."""

    version: Literal["v1"]
    pool: Annotated[str, Meta(pattern=POOL_PATTERN)]
    reason: str
    """Reason of the condition AgentDegraded (`telemetry.conditions`)."""
    text: Annotated[str, Meta(max_length=4096)] = ""
