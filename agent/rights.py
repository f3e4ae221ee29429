"""What the node agent may do at the API server, apart from its code, so that whoever renders roles loads no gRPC."""

from typing import Final

from api.names import GROUP
from manifests.rbac import Rule

RBAC: Final = (Rule(group=GROUP, resources=("gpudevices", "gpupools"), verbs=("list", "watch")),)
"""Of the service account that serves all pools of a node; one that reads a file needs none."""
