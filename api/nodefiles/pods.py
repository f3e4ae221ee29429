"""What a node's agent tells the device plugins of its node: the file `pods.json` in the run directory.

The agent sees the processes of the whole node, the plugins do not. The file lists the pods that have units,
and of those that are gone the ones whose processes are still there:

    {"version": "v1", "pods": [{"uid": "6f1c…", "namespace": "default", "name": "train", "units": ["GPU-1"],
                                "isGiven": true},
                               {"uid": "a0b1…", "namespace": "default", "name": "old", "units": ["GPU-2"],
                                "isGiven": true, "isOver": true}]}

It is replaced at once, and touched each `TOUCH_EVERY_S`. One that is older than `STALE_S` is of an agent that
went away, and says nothing any more. A reader refuses a version that it does not know, and ignores fields
that it does not know.
"""

from typing import Final, Literal

import msgspec

from api.meta import Model

PODS_FILE: Final = "pods.json"
"""Below the run directory (`api.nodefiles.devices.RUN_DIRECTORY`)."""
TOUCH_EVERY_S: Final = 10.0
STALE_S: Final = 60.0


class NodePodUnits(Model, frozen=True):
    """A pod of the node, and the units that it has."""

    uid: str
    namespace: str
    name: str
    units: list[str] = msgspec.field(default_factory=list)
    is_given: bool = False
    """kubelet was heard to have given it these; else they are what it was bound with."""
    is_over: bool = False
    """The API server shows it as ended or not at all, and processes of it were seen since."""


class NodePodsFile(Model, frozen=True):
    """The file."""

    version: Literal["v1"]
    pods: list[NodePodUnits] = msgspec.field(default_factory=list)
