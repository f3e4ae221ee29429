"""All five systems in one cluster: Karpenter makes the nodes, a ClusterPolicy brings their software, pods mount caches.

kube-controller-manager makes the pods of all DaemonSets, kube-scheduler binds them, and kwok is the kubelet of the nodes.
Of a node only its agent is played: Node Feature Discovery labels a node that is ready, and the agent reports the devices
once its own pod and that of the driver run there. From then on the roles of the agent for kernel caches are the real
ones, with a folder as the node's files: they pull and verify caches, and links stand for mounts.
"""

import asyncio
import contextlib
import secrets
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn

from agent.problems.condition import DegradedConditionWriter
from agent.problems.registry import ProblemRegistry
from api.foreign.core import Pod
from api.names import NodeName
from demo.fleet import MachineSystem
from demo.node_caches import NodeCaches, cache_settings
from demo.signed_images import DemoImages
from http_edge.system_clock import SystemClock
from kube.client import KubeClient
from kube.config.discovery import load_configuration
from kube.errors import KubeError
from kube.resources import PODS
from manifests.constants import NODE_AGENT
from simulator.node.inline_volumes import InlineVolumes
from simulator.node.joining_nodes import NodeBehaviour
from simulator.node.pod_volumes import VolumeNotReadyError
from tests.cluster.environment import client, components, gpu_nodes, karpenter
from tests.cluster.operator_states.conftest import IMAGES
from tests.cluster.system.installation import NAMESPACE, SAMPLE_EVERY_S, GpuSystem

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from pathlib import Path

    from simulator.node.node_agent import FakeDevice
    from tests.cluster.environment.control_plane import ControlPlane
    from tests.cluster.environment.kubectl import Kubectl

NODE_CLASS: Final = "machines"
DRIVER_PODS: Final = "nvidia-driver-daemonset-"
SYSTEM: Final = MachineSystem(
    os="ubuntu 24.04", kernel="6.8.0-60-generic", runtime="containerd://2.1.4"
)
LABELS: Final = SYSTEM.labels() | {"nvidia.com/mig.capable": "true"}
"""Those of Node Feature Discovery."""
CACHE_GRACE_S: Final = 5.0
MOUNT_EVERY_S: Final = 1.0


@dataclass(frozen=True, kw_only=True)
class WholeCluster:
    """Everything runs, and there is no node."""

    api: client.ApiClient
    kubectl: "Kubectl"
    system: GpuSystem
    images: DemoImages
    """Of kernel caches, in a registry."""
    nodes: dict[str, NodeBehaviour]
    """What the nodes of a NodePool do."""
    agent: NodeBehaviour
    """What they do where everything is well."""
    autoscaler: karpenter.Karpenter
    settings: "Mapping[str, object]"
    """The server's."""


@contextlib.asynccontextmanager
async def running(
    control_plane: "ControlPlane",
    kubectl: "Kubectl",
    karpenter_program: "tuple[Path, Path]",
    folder: "Path",
    *,
    address: str = "127.0.0.1",
    settings: "Mapping[str, object] | None" = None,
) -> "AsyncIterator[WholeCluster]":
    """Run the systems beside a control plane and kwok for as long as the context lasts.

    Args:
        control_plane: runs.
        kubectl: of an administrator.
        karpenter_program: Karpenter, and the folder of its definitions.
        folder: for the files of nodes; its path is short.
        address: of the registry of kernel caches; pods of a node that has a kubelet do not reach the default.
        settings: of the server, over those that all whole clusters have.
    """
    program, definitions = karpenter_program
    kubeconfig, clock = control_plane.kubeconfig(), SystemClock()
    prefix = f"whole-{secrets.token_hex(2)}-"
    autoscaler = karpenter.Karpenter(control_plane, program, name=f"{prefix}karpenter")
    scheduler = components.KubeScheduler(control_plane, name=f"{prefix}scheduler")
    configuration = await load_configuration(clock, kubeconfig=str(kubeconfig))
    async with contextlib.AsyncExitStack() as stack:
        images = DemoImages(folder / "images", address=address)
        await stack.enter_async_context(images.registry)
        api = await stack.enter_async_context(client.open_client(kubeconfig))
        kube = await stack.enter_async_context(KubeClient(configuration, clock))
        chosen = _settings(images) | dict(settings or {})
        system = GpuSystem(control_plane, kubectl, prefix=prefix, settings=chosen)
        stack.push_async_callback(system.uninstall)
        await karpenter.install_definitions(kubectl, definitions)
        for process in (autoscaler.process, scheduler.process):
            stack.callback(process.kill9)
        await asyncio.gather(autoscaler.start(), scheduler.start(), system.install())
        await api.create(karpenter.NODE_CLASSES, karpenter.a_node_class(NODE_CLASS))
        behaviour = await stack.enter_async_context(
            gpu_nodes.played(kubeconfig, namespace=NAMESPACE)
        )
        # While their pods are played still.
        stack.push_async_callback(_remove_nodes, api)
        agent = NodeBehaviour(
            labels=LABELS,
            node_info=SYSTEM.node_info(),
            pods_before_report=(DRIVER_PODS, NODE_AGENT),
            beside_report=partial(_run_node, kube, folder=folder, registry=images.registry.host),
        )
        yield WholeCluster(
            api=api,
            kubectl=kubectl,
            system=system,
            images=images,
            nodes=behaviour,
            agent=agent,
            autoscaler=autoscaler,
            settings=chosen,
        )


def _settings(images: DemoImages) -> dict[str, object]:
    host = images.registry.host
    return {
        "bootstrap": {"period_s": SAMPLE_EVERY_S},
        "node_software": {"enabled": True, "images": IMAGES},
        "kernel_caches": {
            "registries": {"plain_http": [host], "private": [host]},
            "grace_s": CACHE_GRACE_S,
        },
    }


async def _remove_nodes(api: client.ApiClient) -> None:
    await karpenter.remove_node_pools(api)
    await api.delete(f"{karpenter.NODE_CLASSES}/{NODE_CLASS}")


async def _run_node(
    kube: KubeClient, node: str, devices: "Sequence[FakeDevice]", *, folder: "Path", registry: str
) -> None:
    """Run the agent's roles caches and csi of a node, say that it works, and mount for kubelet, until the node goes."""
    volumes, clock = InlineVolumes(nodes=folder), SystemClock()
    root = volumes.root(node)
    settings = cache_settings(
        node, root / "gkm", kubelet=root, registry=registry, grace_s=CACHE_GRACE_S
    )
    caches = NodeCaches(kube, clock, settings, devices=devices)
    condition = DegradedConditionWriter(kube, ProblemRegistry(), clock, node=NodeName(node))
    async with asyncio.TaskGroup() as group:
        group.create_task(_mount_volumes(kube, node, volumes), name=f"{node}/kubelet")
        for name, work in (*caches.tasks().items(), ("condition", condition.run())):
            group.create_task(work, name=f"{node}/{name}")


async def _mount_volumes(kube: KubeClient, node: str, volumes: InlineVolumes) -> NoReturn:
    """Have the node's CSI drivers mount the volumes of its pods, and unmount those of pods that are gone.

    kwok's pods do not wait for it.
    """
    mounted: dict[str, Pod] = {}
    while True:
        with contextlib.suppress(KubeError, VolumeNotReadyError):
            listed = await kube.list_(PODS, Pod, field_selector=f"spec.nodeName={node}")
            present = {pod.metadata.uid: pod for pod in listed.items if not pod.is_terminal}
            for uid in mounted.keys() - present.keys():
                await volumes.unmount(mounted[uid])
                del mounted[uid]
            for uid in present.keys() - mounted.keys():
                pod = present[uid]
                places = [volumes.mount_of(pod, item.name) for item in pod.spec.volumes or ()]
                # Those of an agent that went, and came again, are there still.
                if not any(place.is_symlink() for place in places):
                    await volumes.mount(pod)
                mounted[uid] = pod
        await asyncio.sleep(MOUNT_EVERY_S)
