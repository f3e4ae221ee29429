"""What autoscaling relies on of the unmodified Karpenter, seen with signals that the test makes by hand."""

import asyncio
import secrets
from typing import TYPE_CHECKING

from api.names import AGENT_NOT_READY_TAINT, SCALE_REQUEST_LABEL
from tests.cluster.environment import client, karpenter, karpenter_capacity, nodes, pods, polling
from tests.cluster.environment.karpenter import a_requirement

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from simulator.node.joining_nodes import NodeBehaviour
    from tests.cluster.environment.client import JsonObject

STARTUP_TAINT = {"key": AGENT_NOT_READY_TAINT, "effect": "NoSchedule"}
OURS = [
    a_requirement(SCALE_REQUEST_LABEL),
    a_requirement("karpenter.sh/capacity-type", "on-demand"),
]
NO_SCHEDULER = "gpu.deckhouse.io/none"


def a_signal(request: str, **selector: str) -> "JsonObject":
    """Return a signal for a node of the request; nobody schedules it."""
    pod = pods.a_pod(f"scale-{request}", scheduler=NO_SCHEDULER)
    pod["spec"]["nodeSelector"] = {SCALE_REQUEST_LABEL: request, **selector}
    return pod


async def signal(api: client.ApiClient, namespace: str, pod: "JsonObject") -> None:
    """Create a pod and say of it what kube-scheduler says of one that fits nowhere."""
    made = await api.create(pods.collection(namespace), pod)
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    path = f"{pods.collection(namespace)}/{made['metadata']['name']}/status"
    await api.patch(path, {"status": {"conditions": [condition]}}, kind="strategic")


async def claim_of(api: client.ApiClient, request: str) -> "JsonObject":
    """Wait for the NodeClaim of a request; there is only one."""

    async def found() -> "JsonObject":
        selector = f"{SCALE_REQUEST_LABEL}={request}"
        (claim,) = (await api.get(karpenter.CLAIMS, labelSelector=selector))["items"] or [{}]
        return claim  # type: ignore[no-any-return]

    return await polling.eventually(found, what=f"NodeClaim of {request}")


async def condition(api: client.ApiClient, claim: str, kind: str, status: str) -> str:
    """Wait until a condition of a NodeClaim has a status; return its reason."""

    async def has() -> str:
        current = (await api.conditions(f"{karpenter.CLAIMS}/{claim}")).get(kind, {})
        assert current.get("status") == status, f"{kind}: {current}"
        return str(current["reason"])

    return await polling.eventually(has, what=f"{kind}={status} of {claim}")


async def release(api: client.ApiClient, node: str) -> None:
    """Remove the startup taint, as the hand-over does."""
    path = f"{nodes.NODES}/{node}"

    async def removed() -> bool:
        current = await api.get(path)
        taints = current["spec"].get("taints") or []
        kept = [taint for taint in taints if taint["key"] != AGENT_NOT_READY_TAINT]
        version = current["metadata"]["resourceVersion"]
        try:
            await api.patch(
                path, {"metadata": {"resourceVersion": version}, "spec": {"taints": kept}}
            )
        except client.ApiRefusedError as refused:
            if refused.status != 409:
                raise
            return False
        return True

    await polling.eventually(removed, what=f"startup taint of {node} removed")


async def test_signal_gets_one_node_of_its_id_and_the_empty_node_goes(
    api: client.ApiClient,
    namespace: str,
    agents: dict[str, "NodeBehaviour"],
    make_node_pool: "Callable[..., Awaitable[str]]",
):
    """facts E3, E4, E24."""
    pool = await make_node_pool(requirements=OURS, startup_taints=[STARTUP_TAINT])
    request = f"{pool}-{secrets.token_hex(4)}"
    clock = asyncio.get_running_loop().time
    began = clock()
    await signal(
        api, namespace, a_signal(request, **{"node.kubernetes.io/instance-type": "gpu-4x"})
    )
    claim = await claim_of(api, request)
    print(f"signal -> NodeClaim {clock() - began:.1f} s")
    name = claim["metadata"]["name"]
    await condition(api, name, "Registered", "True")
    registered = clock()

    async def waits_for_the_taint() -> bool:
        current = (await api.conditions(f"{karpenter.CLAIMS}/{name}"))["Initialized"]
        assert (current["status"], current["reason"]) == ("Unknown", "StartupTaintsExist"), (
            f"{current}"
        )
        return True

    await polling.eventually(waits_for_the_taint, what="the startup taint keeps it")
    node = (await api.get(f"{karpenter.CLAIMS}/{name}"))["status"]["nodeName"]
    current = await api.get(f"{nodes.NODES}/{node}")
    assert current["metadata"]["labels"][SCALE_REQUEST_LABEL] == request
    assert current["metadata"]["labels"]["node.kubernetes.io/instance-type"] == "gpu-4x"
    print(f"NodeClaim -> Registered {registered - began:.1f} s")

    async def has_the_taint_alone() -> bool:
        taints = (await api.get(f"{nodes.NODES}/{node}"))["spec"]["taints"]
        assert [taint["key"] for taint in taints] == [AGENT_NOT_READY_TAINT], f"{taints}"
        return True

    # Those of a node that is not ready go a moment after it is.
    await polling.eventually(has_the_taint_alone, what=f"only the startup taint is left on {node}")
    pod = await api.get(f"{pods.collection(namespace)}/scale-{request}")
    assert not pods.is_bound(pod)

    await api.delete(f"{pods.collection(namespace)}/scale-{request}")
    await release(api, node)
    await condition(api, name, "Initialized", "True")
    began = clock()

    async def is_gone() -> bool:
        return not await api.find(f"{karpenter.CLAIMS}/{name}")

    await polling.eventually(is_gone, what=f"empty {node} is gone")
    print(f"Initialized -> gone {clock() - began:.1f} s")


async def test_node_claim_without_capacity_is_deleted_with_an_event_and_tried_again(
    api: client.ApiClient,
    namespace: str,
    make_node_pool: "Callable[..., Awaitable[str]]",
):
    """A signal that stays is asked for again: `Failed` has to delete it."""
    pool = await make_node_pool(requirements=OURS, startup_taints=[STARTUP_TAINT])
    await karpenter_capacity.take_capacity(api, pool)
    request = f"{pool}-{secrets.token_hex(4)}"
    clock = asyncio.get_running_loop().time
    began = clock()
    await signal(api, namespace, a_signal(request))

    async def failed() -> "list[JsonObject]":
        path, selector = "/apis/events.k8s.io/v1/events", "reason=InsufficientCapacityError"
        events = (await api.get(path, fieldSelector=selector))["items"]
        return [event for event in events if event["regarding"]["name"].startswith(pool)]

    events = await polling.eventually(failed, what="the Event of a failed launch")
    print(f"signal -> failed launch {clock() - began:.1f} s: {events}")

    async def again() -> bool:
        found = await failed()
        return len({item["regarding"]["name"] for item in found}) > 1

    await polling.eventually(again, what="a second NodeClaim of the same signal")
    print(f"signal -> second failed launch {clock() - began:.1f} s")
    await api.delete(f"{pods.collection(namespace)}/scale-{request}")
    await karpenter_capacity.give_capacity(api, pool)
