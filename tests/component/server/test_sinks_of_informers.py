"""Every sink of an informer keeps what it knows of an object over a list that could not read it.

Namespaces are not among them: their metadata alone is decoded, which has one form in all versions.
"""

from collections.abc import Iterator

import pytest

from agent.api_cache import NodeObjects
from agent.kernelcache.cache_objects import CacheObjects
from agent.kubelet.node_pods import NodePods
from api.names import NodeName
from console.data.read_scope import ReadScope
from console.data.state.cluster import ClusterState
from console.data.state.cluster_informers import ClusterInformers
from kube.client import KubeClient
from kube.config.connection import StaticConnection
from kube.resources import NAMESPACES
from kube.unread_objects import KeepingSink
from reconciler.sinks.pod import PodSink
from server.informers import build_informers
from server.leadership.bound_pods import BoundPods
from server.settings import Settings
from tests.support.controllers import new_stores
from tests.support.loop_clock import LoopClock

pytestmark = pytest.mark.looptime


def sinks() -> Iterator[tuple[str, object]]:
    clock = LoopClock()
    client = KubeClient(StaticConnection("http://127.0.0.1:1"), clock)
    optional = {
        "kernel_caches": {"enabled": True},
        "node_software": {"enabled": True},
        "bootstrap": {"operands": "External"},
    }
    stores = new_stores()
    server = build_informers(stores, client, Settings.model_validate(optional), clock=clock)
    scope = ReadScope.whole(system_namespace="gpu-system")
    current = ClusterState(clock, scope)
    console = ClusterInformers(client, clock, current)
    agent = [
        *NodeObjects(client, clock, node="n1").informers,
        *CacheObjects(client, clock, node=NodeName("n1")).informers,
    ]
    yield "server pods", BoundPods(client, PodSink(stores.allocation_state, current.now))
    yield "agent pods", NodePods()
    for process, informers in (
        ("server", server.values()),
        ("console", console._all().values()),
        ("agent", agent),
    ):
        for informer in informers:
            if informer._resource is not NAMESPACES:
                yield f"{process} {informer._name}", informer._sink


async def test_every_sink_keeps_what_it_knows():
    assert [name for name, sink in sinks() if not isinstance(sink, KeepingSink)] == []
