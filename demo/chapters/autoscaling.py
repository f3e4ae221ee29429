"""The demo's chapter about nodes that come for a pod, and go: Karpenter's double with short times."""

from typing import TYPE_CHECKING, Any, Final

from api.foreign.core import Node
from api.foreign.karpenter import NodeClaim
from api.meta import PartialObjectMetadata
from api.names import (
    AGENT_NOT_READY_TAINT,
    API_VERSION,
    CAPACITY_GATE,
    SCALE_REQUEST_LABEL,
    SCALING_POOL_LABEL,
)
from api.well_known_labels import INSTANCE_TYPE_LABEL
from demo.objects import ELASTIC, ELASTIC_TYPE, SMALLEST_PRODUCT, a_pod
from kube.resources import GPU_POOLS, NODE_CLAIMS, NODE_POOLS, NODES, PODS
from manifests.constants import DEFAULT_NAMESPACE
from telemetry.reasons import EventReason

if TYPE_CHECKING:
    from demo.run import DemoRun

POD: Final = "visitor"
WITHIN_S: Final = 30.0


async def from_zero_and_back(run: "DemoRun") -> None:
    """Let a pod get a node of its own, and the node go when the pod has ended."""
    run.title("A pool without a node gets one for a pod, by Karpenter, and gives it back")
    cluster, clock = run.cluster, run.cluster.clock
    await cluster.client.create(NODE_POOLS, _node_pool())
    await cluster.client.create(GPU_POOLS, _pool())
    await run.until_pool("is in effect", ELASTIC, lambda pool: pool.status.autoscaling is not None)
    run.say(f"  pool {ELASTIC}: no node, and spec.autoscaling with one shape of one device")
    since = clock.monotonic()
    await cluster.create_pod(a_pod(POD, ELASTIC, 1))
    await run.until(
        f"pod {POD} has the gate",
        lambda: run.pod(POD),
        lambda pod: any(gate.name == CAPACITY_GATE for gate in pod.spec.scheduling_gates or ()),
    )
    _at(run, since, f"pod {POD} waits behind the scheduling gate {CAPACITY_GATE}")
    claims = await run.until("there is a NodeClaim", lambda: _claims(run), bool)
    await run.show_event(EventReason.NODE_REQUESTED, POD)
    request = claims[0].metadata.label(SCALE_REQUEST_LABEL)
    _at(run, since, f"Karpenter's NodeClaim {claims[0].metadata.name} is for request {request}")
    (node,) = await run.until("there is a Node", lambda: _nodes(run), bool)
    _at(run, since, f"node {node.metadata.name} joins; its taint keeps every pod away")
    await run.until(
        "the startup taint is gone",
        lambda: _nodes(run),
        lambda nodes: (
            not any(
                taint.key == AGENT_NOT_READY_TAINT
                for item in nodes
                for taint in item.spec.taints or ()
            )
        ),
    )
    _at(run, since, "its driver is validated, its device is in the pool: the taint is removed")
    pod = await run.bind(POD)
    _at(run, since, f"pod {POD} runs on the node that came for it")
    run.check("it was the only node", holds=pod.spec.node_name == node.metadata.name)
    signals = await cluster.client.list_(
        PODS,
        PartialObjectMetadata,
        namespace=DEFAULT_NAMESPACE,
        label_selector=SCALING_POOL_LABEL,
    )
    run.check("nothing asks for a node any more", holds=not signals.items)
    await run.finish(POD)
    ended = clock.monotonic()
    await run.until("the node is gone", lambda: _nodes(run), lambda nodes: not nodes)
    await run.until("the NodeClaim is gone", lambda: _claims(run), lambda found: not found)
    _at(run, ended, f"after its end: the empty node is gone, pool {ELASTIC} is at zero again")
    run.check(
        f"from zero to zero within {WITHIN_S:g} s", holds=clock.monotonic() - since < WITHIN_S
    )
    run.say("  Karpenter's times are shortened; an empty node usually stays for five minutes.")


def _at(run: "DemoRun", since: float, text: str) -> None:
    run.claim(f"{run.cluster.clock.monotonic() - since:4.1f} s  {text}")


async def _claims(run: "DemoRun") -> list[NodeClaim]:
    return (await run.cluster.client.list_(NODE_CLAIMS, NodeClaim)).items


async def _nodes(run: "DemoRun") -> list[Node]:
    label = f"{INSTANCE_TYPE_LABEL}={ELASTIC_TYPE}"
    return (await run.cluster.client.list_(NODES, Node, label_selector=label)).items


def _node_pool() -> dict[str, Any]:
    """Return a NodePool as `render nodepool` prints it, which lets empty nodes go at once."""
    requirements = [
        {"key": SCALE_REQUEST_LABEL, "operator": "Exists"},
        {"key": INSTANCE_TYPE_LABEL, "operator": "In", "values": [ELASTIC_TYPE]},
    ]
    return {
        "apiVersion": NODE_POOLS.api_version,
        "kind": NODE_POOLS.kind,
        "metadata": {"name": ELASTIC},
        "spec": {
            "template": {
                "spec": {
                    "nodeClassRef": {"group": "cloud.example", "kind": "NodeClass", "name": "any"},
                    "requirements": requirements,
                    "startupTaints": [{"key": AGENT_NOT_READY_TAINT, "effect": "NoSchedule"}],
                }
            },
            "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "1s"},
        },
    }


def _pool() -> dict[str, Any]:
    requirement = {"key": INSTANCE_TYPE_LABEL, "operator": "In", "values": [ELASTIC_TYPE]}
    shape = {"name": "one", "devices": 1, "nodePool": ELASTIC, "requirements": [requirement]}
    return {
        "apiVersion": API_VERSION,
        "kind": GPU_POOLS.kind,
        "metadata": {"name": ELASTIC},
        "spec": {
            "allocation": {"mode": "Exclusive"},
            "deviceSelector": {"include": {"products": [SMALLEST_PRODUCT]}},
            "assignment": {"requireAnnotation": False},
            "autoscaling": {"shapes": [shape]},
        },
    }
