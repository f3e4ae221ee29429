"""A node is asked for where the volumes of its pods and other pods allow them to be; what cannot be said is named."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from kube.resources import (
    NAMESPACES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    STORAGE_CLASSES,
)
from reconciler.scaling.demand.place_reader import FRESH_S, MOST_READ
from tests.component.reconciler.scaling_run import POOL, Json, ScalingRun, a_scaling_run

pytestmark = pytest.mark.looptime

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@pytest.fixture
async def run() -> AsyncIterator[ScalingRun]:
    async with a_scaling_run() as found:
        yield found


def an_object(resource, name: str, *, namespace: str | None = None, **fields) -> Json:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    head = {"apiVersion": resource.api_version, "kind": resource.kind}
    return {**head, "metadata": metadata, **fields}


async def add_volume(run: ScalingRun, name: str, zone: str) -> None:
    zones = [{"key": "topology.ebs.csi.aws.com/zone", "operator": "In", "values": [zone]}]
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": zones}]}}
    body = an_object(PERSISTENT_VOLUMES, name, spec={"nodeAffinity": affinity})
    await run.admin.create(PERSISTENT_VOLUMES, body)


async def add_claim(run: ScalingRun, name: str, **spec: str) -> None:
    body = an_object(PERSISTENT_VOLUME_CLAIMS, name, namespace="default", spec=spec)
    await run.admin.create(PERSISTENT_VOLUME_CLAIMS, body)


async def add_class(run: ScalingRun, name: str, **fields) -> None:
    await run.admin.create(STORAGE_CLASSES, an_object(STORAGE_CLASSES, name, **fields))


async def add_bound_pod(run: ScalingRun, name: str, node: str, **labels: str) -> None:
    container = {"name": "c", "image": "web"}
    spec = {"containers": [container], "nodeName": node}
    body = an_object(PODS, name, namespace="default", spec=spec)
    body["metadata"]["labels"] = labels
    await run.admin.create(PODS, body)


def with_claim(*names: str) -> Json:
    return {
        "volumes": [
            {"name": f"v{at}", "persistentVolumeClaim": {"claimName": name}}
            for at, name in enumerate(names)
        ]
    }


def rule(key: str = ZONE, **changes) -> Json:
    return {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": key, **changes}


async def required(run: ScalingRun) -> list[list[tuple[str, str, list[str]]]]:
    """Return the required terms of the only signal."""
    (signal,) = [
        item for item in await run.signals() if item["metadata"]["name"].startswith("scale-")
    ]
    affinity = signal["spec"].get("affinity", {}).get("nodeAffinity", {}).get(REQUIRED, {})
    return [
        [
            (expression["key"], expression["operator"], expression.get("values", []))
            for expression in term["matchExpressions"]
        ]
        for term in affinity.get("nodeSelectorTerms", [])
    ]


def blocked(run: ScalingRun) -> str:
    return "\n".join(note for reason, note in run.notes() if reason == "GPUNodeRequestBlocked")


async def test_a_node_comes_in_the_zone_of_the_volume_though_units_are_free_elsewhere(
    run: ScalingRun,
):
    await run.add_node("n1", labels={ZONE: "a"})
    await add_volume(run, "pv-1", "b")
    await add_claim(run, "data", volumeName="pv-1")
    await run.add_pods("a", **with_claim("data"))
    await run.run_pass()
    assert await required(run) == [[(ZONE, "In", ["b"])]]
    assert not [note for _, note in run.notes() if "leaves out" in note]


async def test_a_volume_that_waits_for_its_pod_comes_where_its_class_allows(run: ScalingRun):
    topologies = [{"matchLabelExpressions": [{"key": ZONE, "values": ["b", "c"]}]}]
    await add_class(
        run, "fast", volumeBindingMode="WaitForFirstConsumer", allowedTopologies=topologies
    )
    await add_claim(run, "data", storageClassName="fast")
    await run.add_pods("a", **with_claim("data"))
    await run.run_pass()
    assert await required(run) == [[(ZONE, "In", ["b", "c"])]]


async def test_a_pod_waits_for_its_claim_and_then_for_the_volume(run: ScalingRun):
    await add_class(run, "slow", volumeBindingMode="Immediate")
    await add_volume(run, "pv-1", "b")
    await run.add_pods("a", **with_claim("data"))
    await run.run_pass()
    assert "PlaceUndecided: claim data of the pod does not exist" in blocked(run)
    await add_claim(run, "data", storageClassName="slow")
    await asyncio.sleep(FRESH_S)
    await run.run_pass()
    assert not await run.signals()
    patch = {"spec": {"volumeName": "pv-1"}}
    await run.admin.merge_patch(PERSISTENT_VOLUME_CLAIMS, patch, name="data", namespace="default")
    await asyncio.sleep(FRESH_S)
    await run.run_pass()
    assert await required(run) == [[(ZONE, "In", ["b"])]]


async def test_local_volumes_and_those_that_cannot_be_read_are_named(run: ScalingRun):
    local = {"provisioner": "kubernetes.io/no-provisioner"}
    await add_class(run, "local", volumeBindingMode="WaitForFirstConsumer", **local)
    await add_claim(run, "disk", storageClassName="local")
    await add_claim(run, "secret")
    run.api.faults.fail("GET", "persistentvolumeclaims/secret", 403, times=99)
    await run.add_pods("a", **with_claim("disk", "secret"))
    await run.run_pass()
    (note,) = [note for reason, note in run.notes() if reason == "GPUNodeRequested"]
    assert "leaves out the place of claim disk, the place of claim secret:" in note


async def test_a_node_comes_where_other_pods_are_or_are_not(run: ScalingRun):
    for node, zone in (("n1", "a"), ("n2", "b"), ("n3", "c")):
        await run.add_node(node, devices=0, labels={ZONE: zone})
    await add_bound_pod(run, "cache-a", "n1", app="x")
    await add_bound_pod(run, "cache-b", "n2", app="x")
    await add_bound_pod(run, "web", "n2", app="y")
    near = {"podAffinity": {REQUIRED: [rule()]}}
    apart = rule(
        labelSelector={"matchExpressions": [{"key": "app", "operator": "In", "values": ["y"]}]}
    )
    await run.add_pods("a", affinity={**near, "podAntiAffinity": {REQUIRED: [apart]}})
    await run.run_pass()
    assert await required(run) == [[(ZONE, "In", ["a", "b"]), (ZONE, "NotIn", ["b"])]]


async def test_a_pod_that_must_be_near_pods_of_which_none_is_bound_waits(run: ScalingRun):
    await run.add_pods("a", affinity={"podAffinity": {REQUIRED: [rule()]}})
    await run.run_pass()
    assert f"podAffinity by {ZONE} wants a node near other pods" in blocked(run)
    await run.add_node("n1", devices=0, labels={ZONE: "a"})
    await add_bound_pod(run, "cache", "n1", app="x")
    await asyncio.sleep(FRESH_S)
    await run.run_pass()
    assert await required(run) == [[(ZONE, "In", ["a"])]]


async def test_a_node_comes_in_a_zone_that_spreading_allows(run: ScalingRun):
    pool = f"pool.gpu.deckhouse.io/{POOL}"
    for node, zone in (("n1", "a"), ("n2", "b")):
        await run.add_node(node, devices=0, labels={ZONE: zone, pool: ""})
    await run.add_node("web", devices=0, labels={ZONE: "c"})
    await add_bound_pod(run, "first", "n1", app="x")
    spread = rule(maxSkew=1, whenUnsatisfiable="DoNotSchedule")
    await run.add_pods("a", topologySpreadConstraints=[spread])
    await run.admin.merge_patch(
        PODS, {"metadata": {"labels": {"app": "x"}}}, name="a", namespace="default"
    )
    await run.run_pass()
    assert await required(run) == [[(ZONE, "NotIn", ["a"])]]


async def test_nodes_that_other_pods_exclude_by_name_do_not_count_and_are_not_told(run: ScalingRun):
    await run.add_node("n1", labels={HOST: "n1"})
    await add_bound_pod(run, "x", "n1", app="x")
    await run.add_pods("a", affinity={"podAntiAffinity": {REQUIRED: [rule(HOST)]}})
    await run.run_pass()
    assert await required(run) == []


async def test_pods_of_other_namespaces_are_read_where_the_rule_says(run: ScalingRun):
    await run.add_node("n1", devices=0, labels={ZONE: "a"})
    await add_bound_pod(run, "x", "n1", app="x")
    await run.add_pods("a", affinity={"podAffinity": {REQUIRED: [rule(namespaces=["other"])]}})
    await run.add_pods("b", affinity={"podAffinity": {REQUIRED: [rule(namespaceSelector={})]}})
    await run.run_pass()
    assert "PlaceUndecided" in blocked(run)
    assert await required(run) == [[(ZONE, "In", ["a"])]]


async def test_a_bound_claim_is_read_once_while_its_pod_waits(run: ScalingRun):
    await add_volume(run, "pv-1", "b")
    await add_claim(run, "data", volumeName="pv-1")
    await run.add_pods("a", **with_claim("data"))
    for _ in range(3):
        await run.run_pass()
    reads = [
        request
        for request in run.api.requests
        if "persistentvolume" in request.path and request.method == "GET"
    ]
    assert len(reads) == 2


async def test_however_many_claims_a_namespace_names_those_of_others_are_read(run: ScalingRun):
    await run.add_pods("a", **with_claim(*(f"none-{number:03}" for number in range(MOST_READ + 1))))
    await run.run_pass()
    assert "is not read yet" not in blocked(run)
    await add_volume(run, "pv-1", "b")
    await run.admin.create(NAMESPACES, an_object(NAMESPACES, "other"))
    claim = an_object(
        PERSISTENT_VOLUME_CLAIMS, "data", namespace="other", spec={"volumeName": "pv-1"}
    )
    await run.admin.create(PERSISTENT_VOLUME_CLAIMS, claim)
    pod = await run.admin.get(PODS, Json, "a", namespace="default")
    spec = pod["spec"] | with_claim("data")
    await run.admin.create(PODS, an_object(PODS, "b", namespace="other", spec=spec))
    await asyncio.sleep(FRESH_S)
    await run.run_pass()
    assert await required(run) == [[(ZONE, "In", ["b"])]]


async def test_all_claims_of_a_namespace_have_their_turn(run: ScalingRun):
    await run.add_pods("a", **with_claim(*(f"none-{number:03}" for number in range(MOST_READ))))
    await add_volume(run, "pv-1", "b")
    await add_claim(run, "last", volumeName="pv-1")
    await run.add_pods("b", **with_claim("last"))
    await run.run_pass()
    assert "claim last is not read yet" in blocked(run)
    await asyncio.sleep(FRESH_S)
    await run.run_pass()
    assert await required(run) == [[(ZONE, "In", ["b"])]]
