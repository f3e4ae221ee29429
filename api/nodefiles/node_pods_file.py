"""The agent's file of the node's pods, for the device plugins: `pods.json` in the run directory.

The agent sees the processes of the whole node, the plugins do not. The file lists the pods that have units,
including deleted ones whose processes are still there:

    {"version": "v1", "pods": [{"uid": "6f1c…", "namespace": "default", "name": "train", "units": ["GPU-1"],
                                "isGiven": true},
                               {"uid": "a0b1…", "namespace": "default", "name": "old", "units": ["GPU-2"],
                                "isGiven": true, "isOver": true}]}

It is replaced atomically, and touched each `TOUCH_EVERY_S`. A file older than `STALE_S` belongs to an agent that
has stopped, and is ignored. A reader refuses an unknown version and ignores unknown fields.
"""

from typing import Final, Literal

import msgspec

from api.meta import Model

PODS_FILE: Final = "pods.json"
"""Path below the run directory (`api.nodefiles.node_devices_file.RUN_DIRECTORY`)."""
TOUCH_EVERY_S: Final = 10.0
STALE_S: Final = 60.0


class NodePodUnits(Model, frozen=True):
    """A pod of the node, and the units that it has."""

    uid: str
    namespace: str
    name: str
    units: list[str] = msgspec.field(default_factory=list)
    is_given: bool = False
    """kubelet allocated these units; else they are the assigned ones."""
    is_over: bool = False
    """The pod ended or was deleted, and its processes were seen since."""


class NodePodsFile(Model, frozen=True):
    """The file."""

    version: Literal["v1"]
    pods: list[NodePodUnits] = msgspec.field(default_factory=list)
