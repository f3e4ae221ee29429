"""bind, one pod at a time: how long it takes, and what it costs the API server."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench import world
from tests.bench.admitting import PodKind
from tests.bench.driven_api import DrivenApi
from tests.bench.processes import make_certificates, measured_server
from tests.bench.report import Result, at_most, in_ms
from tests.bench.scheduling import Way
from tests.bench.wire import connect

if TYPE_CHECKING:
    from tests.bench.sizes import Sizes

NODES = 200
_WRITES = ("POST pods/binding", "PATCH pods", "PATCH pods/status", "PUT pods", "DELETE pods")
_READS = ("GET pods",)


async def measure(sizes: "Sizes") -> list[Result]:
    """Bind pods of one unit that end at once."""
    cluster = world.World(nodes=NODES)
    times: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        context = make_certificates(directory)
        async with DrivenApi() as api:
            caches(api, cluster)
            settings = {"leadership": {"enabled": False}}
            async with measured_server(directory, api.url, **settings) as server:
                await server.wait_ready()
                await server.wait_capacity(total=cluster.units(), used=0)
                connection = await connect(server.port, context)
                kind = await PodKind.learn(connection, world.WHOLE, 1)
                way, nodes = Way(api, connection), cluster.whole_nodes()
                api.requests.clear()
                for number in range(sizes.bindings):
                    name = f"pod-{number}"
                    await way.store(kind, name, await way.mutate(kind, name))
                    node = await way.choose(name, nodes)
                    assert node is not None, f"no node for {name}"
                    taken_s = await way.bind(name, node)
                    assert taken_s is not None, f"{name} was alone and was not bound"
                    times.append(taken_s)
                    api.finish(name)
                    api.delete(name)
                connection.close()
    p50, p99 = in_ms(times)
    return [
        Result(
            subject="binding",
            case=f"bind, {NODES} nodes, one pod at a time",
            samples=len(times),
            p50_ms=p50,
            p99_ms=p99,
            writes_per_pod=sum(api.requests[item] for item in _WRITES) / len(times),
            reads_per_pod=sum(api.requests[item] for item in _READS) / len(times),
            aims=(at_most("writes_per_pod", 1), at_most("reads_per_pod", 0)),
        )
    ]


def caches(api: DrivenApi, cluster: world.World) -> None:
    """Put a cluster into the API server."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml-team"}}
    api.put("namespaces", [namespace])
    api.put("gpupools", cluster.pools())
    api.put("nodes", cluster.node_objects())
    api.put("gpudevices", cluster.devices())
