"""The controller of operands, without a ClusterPolicy, as a server has it that leads."""

from collections.abc import Callable, Iterable

from api.clock import Instant
from kube.client import KubeClient
from kube.event_recorder import EventRecorder
from operands.nvidia.policy_operands import PolicyOperands
from pool.allocation_state import AllocationState
from pool.model import NodeFacts
from reconciler.node_software.gpu_nodes import GpuNodes
from reconciler.node_software.objects import BUILT_IN_RESOURCES
from reconciler.node_software.policy_controller import PolicyController
from reconciler.runtime.live_objects import LiveObjects, list_objects
from reconciler.settings import NodeSoftwareParameters
from reconciler.sinks.node import NodeSink
from reconciler.sinks.operator_objects import OperatorObjects


def a_built_in_server(
    client: KubeClient,
    policy: PolicyOperands,
    recorder: EventRecorder,
    *,
    now: Callable[[], Instant],
    nodes: Iterable[NodeFacts] = (),
) -> PolicyController:
    index = AllocationState().index
    NodeSink(index).replace_all(list(nodes))
    return PolicyController(
        client,
        OperatorObjects(),
        GpuNodes(index),
        parameters=NodeSoftwareParameters(),
        built_in=policy,
        recorder=recorder,
        now=now,
        labelled_nodes=tuple,
    )


async def read_operands(client: KubeClient, namespace: str) -> LiveObjects:
    return await list_objects(
        client, BUILT_IN_RESOURCES, namespace=namespace, label_selector="gpu.deckhouse.io/operand"
    )
