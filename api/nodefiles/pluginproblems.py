"""What the device plugin of one pool tells the node's agent of its problems: files in a directory of their own.

A plugin may write nothing to the API server but Events; the agent may, and has the condition AgentDegraded
say it. Each process of a plugin has one file, `<pool>-<anything>.json` below `<run directory>/plugins`, which is
there only while something is wrong:

    {"version": "v1", "pool": "whole", "reason": "BadConfig", "text": "config.json is not a pool configuration: …"}

It is replaced at once, and touched each `TELL_EVERY_S` while it holds. One that is older than `STALE_S` is of a
process that went away without a word, and says nothing any more. The two processes of a pool of which one
replaces the other have a file each, so that the end of the one takes nothing from the other.

A reader refuses a version that it does not know, and ignores fields that it does not know.
"""

from typing import Annotated, Final, Literal

from msgspec import Meta

from api.meta import Model

PROBLEMS_DIRECTORY: Final = "plugins"
"""Below the run directory (`api.nodefiles.devices.RUN_DIRECTORY`)."""
PROBLEMS_SUFFIX: Final = ".json"
TELL_EVERY_S: Final = 60.0
STALE_S: Final = 180.0
MAX_BYTES: Final = 64 * 1024
POOL_PATTERN: Final = r"\A[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?\Z"
"""Kubernetes' names of objects, which do for parts of file names."""


class PluginProblem(Model, frozen=True):
    """The file."""

    version: Literal["v1"]
    pool: Annotated[str, Meta(pattern=POOL_PATTERN)]
    reason: str
    """Of the condition AgentDegraded (`telemetry.conditions`)."""
    text: Annotated[str, Meta(max_length=4096)] = ""
