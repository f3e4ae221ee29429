"""A pool of 1,000 nodes with 8,000 devices: the answer is right, and the memory bounded."""

import asyncio
import json
import sys

from tests.support import plugin_cluster
from tests.support.cluster_objects import Object, a_bound_pod_object, a_pool_object

NODES = 1_000
MOST_MIB = 300
MEASURED = """
import resource, subprocess, sys
done = subprocess.run([sys.executable, "-m", "kubectl_gpu", *sys.argv[1:]])
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024, file=sys.stderr)
sys.exit(done.returncode)
"""


def a_full_pool() -> list[Object]:
    """Return nodes of 8 devices, 7 of them used; but one node has 3 free, and one 4 that are faulted."""
    objects = [a_pool_object("training"), plugin_cluster.a_waiting_pod("big", 4)]
    for number in range(NODES):
        node = f"gpu-{number:03}"
        used = {3: 5, 4: 4}.get(number, 7)
        objects.append(plugin_cluster.a_pool_node("training", node))
        objects += [plugin_cluster.a_device("training", node, device) for device in range(8)]
        pod = a_bound_pod_object(f"train-{number}", node, list(range(used)), pool="training")
        objects.append(plugin_cluster.labelled(pod))
    for item in objects:
        if item["kind"] == "GPUDevice" and item["metadata"]["name"] in FAULTED:
            item["status"]["conditions"] = [FAULT]
    return objects


FAULTED = {f"gpu-004-{number}" for number in range(4, 8)}
FAULT = {
    "type": "Healthy",
    "status": "False",
    "reason": "GPUReset",
    "message": "",
    "lastTransitionTime": "2026-11-23T22:00:00Z",
    "observedGeneration": 1,
}


async def test_why_in_a_pool_of_8_000_devices(cluster: plugin_cluster.ListedCluster):
    cluster.objects = a_full_pool()
    arguments = ("why", "big", "-n", "ml-team", "-o", "json", "--server", cluster.api.url)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", MEASURED, *arguments),
        cwd=plugin_cluster.ROOT,
        env=cluster.environment(),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    printed, said = await process.communicate()
    explanation = json.loads(printed)["explanation"]
    assert (explanation["reason"], explanation["largestFree"]) == ("UnitsFragmented", 3)
    assert explanation["capacity"]["total"] == 8 * NODES
    assert explanation["free"] == NODES - 2 + 3
    remedies = {remedy["type"]: remedy for remedy in explanation["remedies"]}
    assert (remedies["AskFewerUnits"]["units"], remedies["AskFewerUnits"]["node"]) == (3, "gpu-003")
    assert remedies["UnitsReturn"]["node"] == "gpu-004"
    assert remedies["UnitsReturn"]["neededActions"] == ["GPUReset"]
    assert int(said) <= MOST_MIB
