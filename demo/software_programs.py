"""What NVIDIA's images do on the nodes of a ClusterPolicy, played: no driver is built, and nothing is installed.

The order on a node is theirs: the driver loads, the toolkit waits for it, all others for the validator's steps. A driver
that is loaded again ends what was validated. What holds the driver at that moment is noted.
"""

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final, final

from api.names import RESOURCE_PREFIX
from demo.node_programs import NAME_LABEL, STEP_SUFFIX
from kube.resources import PODS
from manifests import constants
from operands.nvidia.drivers.containers import DRIVER
from simulator.node.container_runtime import ContainerFailedError

if TYPE_CHECKING:
    from api.foreign.core import Pod
    from demo.node_programs import NodePrograms
    from kube.client import KubeClient

Json = dict[str, Any]

APP_LABEL: Final = "app"
VALIDATOR: Final = "nvidia-operator-validator"
LOAD_S: Final = 0.4
"""Duration of the driver's start; a real one takes minutes."""
CHECK_S: Final = 0.15


@final
class SoftwarePrograms:
    """A container runtime for nodes whose software is the policy's."""

    def __init__(self, client: "KubeClient", programs: "NodePrograms") -> None:
        """Take the programs of this control plane's own containers."""
        self._client = client
        self._programs = programs
        self.drivers: dict[str, str] = {}
        """Node -> image of the driver that is loaded."""
        self.loads: list[tuple[str, str]] = []
        """Node and image of every driver, in the order in which they were loaded."""
        self.held: list[str] = []
        """Pods that held a driver while it was replaced."""
        self._passed: defaultdict[str, set[str]] = defaultdict(set)
        # node -> steps of the validation

    async def start(self, pod: "Pod", container: str) -> None:
        """Run a container's program as long as it takes to start.

        Raises:
            ContainerFailedError: what it waits for is not there.
        """
        node = pod.spec.node_name
        app = pod.metadata.label(APP_LABEL) or ""
        name = pod.metadata.label(NAME_LABEL)
        if container == DRIVER:
            await self._load(pod)
        elif name == constants.NODE_AGENT and node not in self.drivers:
            raise ContainerFailedError("no driver is loaded")
        elif not app or name is not None:
            await self._programs.start(pod, container)
        elif container.endswith(STEP_SUFFIX):
            await self._step(node, container.removesuffix(STEP_SUFFIX), is_check=app == VALIDATOR)

    async def _load(self, pod: "Pod") -> None:
        node, image = pod.spec.node_name, await self._image_of(pod)
        if self.drivers.get(node) == image:
            return
        listing = await self._client.list_(PODS, Json, field_selector=f"spec.nodeName={node}")
        if node in self.drivers:
            self.held += [item["metadata"]["name"] for item in listing.items if _holds_driver(item)]
        self._passed[node].clear()
        await asyncio.sleep(LOAD_S)
        self.drivers[node] = image
        self.loads.append((node, image))

    async def _image_of(self, pod: "Pod") -> str:
        meta = pod.metadata
        found = await self._client.get(PODS, Json, meta.name, namespace=meta.namespace)
        images = {
            container["name"]: container["image"] for container in found["spec"]["containers"]
        }
        return str(images[DRIVER])

    async def _step(self, node: str, step: str, *, is_check: bool) -> None:
        await asyncio.sleep(CHECK_S)
        if step == "driver" and node not in self.drivers:
            raise ContainerFailedError("no driver is loaded")
        if is_check:
            self._passed[node].add(step)
        elif step != "driver" and step not in self._passed[node]:
            raise ContainerFailedError(f"{step} is not validated")


def _holds_driver(pod: Json) -> bool:
    """Return whether a pod has the driver open: the node agent, and pods with a device."""
    labels = pod["metadata"].get("labels") or {}
    limits = (
        name
        for container in pod["spec"]["containers"]
        for name in (container.get("resources") or {}).get("limits") or {}
    )
    is_over = pod["status"].get("phase") in {"Succeeded", "Failed"}
    return not is_over and (
        labels.get(NAME_LABEL) == constants.NODE_AGENT
        or any(limit.startswith(RESOURCE_PREFIX) for limit in limits)
    )
