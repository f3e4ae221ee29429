"""What the roles of one agent process share."""

from typing import TYPE_CHECKING, Final, final

from agent.kubelet.node_pods import NodePod, NodePods, any_node_pod, node_pod
from agent.kubelet.pod_resources import PodResources
from agent.problems.registry import ProblemRegistry
from agent.settings import AgentRole
from api.foreign.core import Pod
from api.names import NodeName
from kube.config.connection import StaticConnection
from kube.event_recorder import EventRecorder
from kube.informer import Informer, Selection
from kube.resources import PODS

if TYPE_CHECKING:
    from agent.settings import AgentSettings
    from api.clock import Clock
    from kube.client import KubeClient
    from kube.config.connection import Connection

REPORTING_CONTROLLER: Final = "gpu.deckhouse.io/agent"


@final
class AgentContext:
    """One watch of the node's pods, one client of kubelet, one Event recorder, one registry of problems."""

    def __init__(
        self,
        settings: "AgentSettings",
        client: "KubeClient",
        clock: "Clock",
        *,
        connection: "Connection | None" = None,
    ) -> None:
        self.settings = settings
        self.connection = connection or StaticConnection("")
        """Whose credentials kubelet accepts too."""
        self.client = client
        self.clock = clock
        self.node = NodeName(settings.node)
        self.problems = ProblemRegistry()
        self.pods = NodePods()
        on_node = Selection(field_selector=f"spec.nodeName={settings.node}")
        # Any pod may have the driver open, or mount a kernel cache.
        project = any_node_pod if AgentRole.INVENTORY in settings.roles else node_pod
        self.pod_informer: Informer[NodePod] = Informer(
            client, PODS, Pod, sink=self.pods, clock=clock, project=project, selection=on_node
        )
        self.kubelet = PodResources(settings.pod_resources_directory, clock)
        self.events = EventRecorder(
            client,
            clock,
            reporting_controller=REPORTING_CONTROLLER,
            reporting_instance=settings.node,
        )
