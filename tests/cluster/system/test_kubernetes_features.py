"""Pods of a pool beside what else Kubernetes does with pods, as people reported it of other GPU software."""

import contextlib
import json
from collections import Counter
from functools import partial

import pytest

from tests.cluster.environment import client, pods, polling
from tests.cluster.system.objects import (
    a_container,
    a_deployment,
    a_pod,
    all_bound,
    check_devices,
    devices_of,
    reservation_of,
)

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
ONE_A_NODE = [
    {
        "maxSkew": 1,
        "topologyKey": HOSTNAME,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "spread"}},
    }
]


async def label_nodes(api, nodes, **labels: str) -> None:
    for node in nodes:
        own = {key: text.format(node=node) for key, text in labels.items()}
        await api.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": own}})


async def bound_node(api, namespace: str, pod) -> str:
    """Create the pod; return the node that it is bound to."""
    await api.create(pods.collection(namespace), pod)
    found = await pods.wait_for_pod(api, namespace, pod["metadata"]["name"])
    check_devices([found])
    node: str = found["spec"]["nodeName"]
    return node


@contextlib.asynccontextmanager
async def volume(api, namespace: str, zone: str):
    """A volume of the zone and a claim on it, of the zone's name."""
    name = f"{namespace}-{zone}"
    of_zone = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}
    common = {"accessModes": ["ReadWriteOnce"], "storageClassName": "manual"}
    await api.create(
        "/api/v1/persistentvolumes",
        {
            "metadata": {"name": name},
            "spec": {
                **common,
                "capacity": {"storage": "1Gi"},
                "hostPath": {"path": "/x"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [of_zone]}},
            },
        },
    )
    claims = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
    storage = {"resources": {"requests": {"storage": "1Gi"}}, "volumeName": name}
    await api.create(claims, {"metadata": {"name": zone}, "spec": {**common, **storage}})
    yield
    await api.delete(f"{claims}/{zone}")
    await api.delete(f"/api/v1/persistentvolumes/{name}")


async def test_a_volume_decides_on_the_node_whatever_was_reserved(make_pool, api, namespace):
    """HAMi#2264: the node of the reservation is one to which the volume cannot come."""
    pool = await make_pool(nodes=2, devices=1)
    of_zone = dict(zip("ab", pool.nodes, strict=True))
    for zone, node in of_zone.items():
        await label_nodes(api, [node], **{ZONE: zone})
    async with volume(api, namespace, "a"), volume(api, namespace, "b"):
        for zone in "ba":
            pod = a_pod(f"in-{zone}", pool)
            claimed = {"persistentVolumeClaim": {"claimName": zone}}
            pod["spec"]["volumes"] = [{"name": "data", **claimed}]
            assert await bound_node(api, namespace, pod) == of_zone[zone]


async def test_a_selector_that_comes_with_the_end_of_a_gate_is_followed(make_pool, api, namespace):
    """instaslice-operator#82: Kueue chooses a flavour and lets the pod go in one write."""
    pool = await make_pool(nodes=2, devices=1)
    await label_nodes(api, pool.nodes, **{HOSTNAME: "{node}"})
    pod = a_pod("queued", pool)
    pod["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]
    await api.create(pods.collection(namespace), pod)
    chosen = {"nodeSelector": {HOSTNAME: pool.nodes[1]}, "schedulingGates": None}
    await api.patch(f"{pods.collection(namespace)}/queued", {"spec": chosen})
    bound = await pods.wait_for_pod(api, namespace, "queued")
    assert bound["spec"]["nodeName"] == pool.nodes[1]


@contextlib.asynccontextmanager
async def refused_bindings(api, namespace: str, name: str, words: str):
    """A policy that refuses each binding of pods of this name in the namespace."""
    policy = f"bindings-{namespace}"
    concerned = f"object.metadata.namespace != '{namespace}' || object.metadata.name != '{name}'"
    binding = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["pods/binding"],
    }
    spec = {
        "matchConstraints": {"resourceRules": [binding]},
        "validations": [{"expression": concerned, "message": words}],
    }
    policies = f"{ADMISSION}/validatingadmissionpolicies"
    bindings = f"{ADMISSION}/validatingadmissionpolicybindings"
    denied = {"policyName": policy, "validationActions": ["Deny"]}
    await api.create(policies, {"metadata": {"name": policy}, "spec": spec})
    await api.create(bindings, {"metadata": {"name": policy}, "spec": denied})
    yield
    await api.delete(f"{bindings}/{policy}")
    await api.delete(f"{policies}/{policy}")


async def test_a_pod_whose_bindings_a_policy_refuses_keeps_its_unit_from_nobody(
    make_pool, api, namespace
):
    """kai-scheduler#2075: one refused binding, repeated for ever, stopped all others."""
    pool = await make_pool(devices=1)
    words = "cpu requests must equal limits"
    gated = a_pod("doomed", pool)
    gated["spec"]["schedulingGates"] = [{"name": "example.com/later"}]
    await api.create(pods.collection(namespace), gated)
    path = f"{pods.collection(namespace)}/doomed"
    target = {"metadata": {"name": "doomed"}, "target": {"kind": "Node", "name": pool.nodes[0]}}

    async def is_in_force() -> bool:
        with pytest.raises(client.ApiRefusedError) as refused:
            await api.create(f"{path}/binding", target, dryRun="All")
        return words in refused.value.message

    async with refused_bindings(api, namespace, "doomed", words):
        await polling.eventually(is_in_force, what="the policy on bindings")
        await api.patch(path, {"spec": {"schedulingGates": None}})
        doomed = await pods.wait_for_pod(
            api, namespace, "doomed", lambda pod: words in str(pods.scheduled_condition(pod))
        )
        assert not pods.is_bound(doomed)
        assert await bound_node(api, namespace, a_pod("good", pool)) == pool.nodes[0]


async def test_units_that_a_limit_range_gives_each_container_are_the_pods(
    make_pool, api, namespace
):
    pool = await make_pool(devices=4)
    limits = f"/api/v1/namespaces/{namespace}/limitranges"
    unit = {pool.resource: "1"}
    given = {"type": "Container", "default": unit, "defaultRequest": unit, "max": unit}
    await api.create(limits, {"metadata": {"name": "gpu"}, "spec": {"limits": [given]}})
    plain = {"name": "main", "image": "example.test/main:1"}
    pod = pods.a_pod("defaulted")
    pod["spec"]["containers"] = [plain, plain | {"name": "second"}]
    pod["spec"]["initContainers"] = [plain | {"name": "init"}]

    async def is_defaulted() -> bool:
        made = await api.create(pods.collection(namespace), pod, dryRun="All")
        return pool.resource in str(made["spec"]["containers"])

    await polling.eventually(is_defaulted, what="the LimitRange")
    await api.create(pods.collection(namespace), pod)
    bound = await pods.wait_for_pod(api, namespace, "defaulted")
    units = devices_of(bound)
    assert len(check_devices([bound])) == 2
    assert set(units) == {"main", "second", "init"}
    assert set(units["main"]).isdisjoint(units["second"])


async def test_a_runtime_class_decides_on_the_node_at_admission(make_pool, api, namespace):
    """Kata: its nodes have a label, and each of its pods costs an overhead."""
    pool = await make_pool(nodes=2, devices=1)
    await label_nodes(api, pool.nodes[1:], kata=namespace)
    classes = "/apis/node.k8s.io/v1/runtimeclasses"
    kata = {
        "metadata": {"name": namespace},
        "handler": "kata",
        "overhead": {"podFixed": {"cpu": "250m", "memory": "160Mi"}},
        "scheduling": {"nodeSelector": {"kata": namespace}},
    }
    await api.create(classes, kata)
    pod = a_pod("kata-", pool)
    pod["spec"]["runtimeClassName"] = namespace

    async def created() -> str | None:
        made = await api.create(pods.collection(namespace), pod)
        name: str = made["metadata"]["name"]
        if reservation_of(made).get("node") == pool.nodes[1]:
            return name
        await api.delete(f"{pods.collection(namespace)}/{name}", gracePeriodSeconds="0")
        return None

    name = await polling.eventually(created, what="the RuntimeClass and the label of its nodes")
    bound = await pods.wait_for_pod(api, namespace, name)
    assert bound["spec"]["nodeName"] == pool.nodes[1]
    assert bound["spec"]["overhead"] == {"cpu": "250m", "memory": "160Mi"}
    await api.delete(f"{classes}/{namespace}")


async def test_each_pod_of_a_daemon_set_has_the_unit_of_its_node(make_pool, api, namespace):
    pool = await make_pool(nodes=3, devices=1)
    await label_nodes(api, pool.nodes, pick=namespace)
    labels = {"app": "each"}
    spec = {"containers": [a_container("main", pool, 1)], "nodeSelector": {"pick": namespace}}
    daemon_set = {
        "metadata": {"name": "each"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }
    await api.create(f"/apis/apps/v1/namespaces/{namespace}/daemonsets", daemon_set)
    found = await pods.wait_for_pods(api, namespace, partial(all_bound, count=3))
    assert {pod["spec"]["nodeName"] for pod in found.values()} == set(pool.nodes)
    assert len(check_devices(found.values())) == 3


@pytest.mark.parametrize(
    ("name", "spec", "expected"),
    [
        pytest.param("spread", {"topologySpreadConstraints": ONE_A_NODE}, [2, 2, 2, 2]),
        pytest.param("podAntiAffinity", {}, [1, 1, 1, 1]),
        pytest.param("podAffinity", {}, [2]),
    ],
)
async def test_pods_that_want_to_be_apart_or_together_are(
    name, spec, expected, make_pool, api, namespace
):
    """The pool packs nodes; what the pods themselves require comes first."""
    pool = await make_pool(nodes=4, devices=2)
    await label_nodes(api, pool.nodes, **{HOSTNAME: "{node}"})
    if not spec:
        selected = {"labelSelector": {"matchLabels": {"app": name.lower()}}}
        required = [{"topologyKey": HOSTNAME, **selected}]
        spec = {"affinity": {name: {"requiredDuringSchedulingIgnoredDuringExecution": required}}}
    deployment = a_deployment(name.lower(), pool, replicas=sum(expected))
    deployment["spec"]["template"]["spec"] |= spec
    await api.create(f"/apis/apps/v1/namespaces/{namespace}/deployments", deployment)
    found = await pods.wait_for_pods(api, namespace, partial(all_bound, count=sum(expected)))
    nodes = Counter(pod["spec"]["nodeName"] for pod in found.values())
    assert sorted(nodes.values()) == expected
    assert len(check_devices(found.values())) == sum(expected)


async def test_a_bound_pod_may_be_edited_but_for_our_label(make_pool, api, namespace):
    pool = await make_pool(devices=1)
    await bound_node(api, namespace, a_pod("edited", pool))
    path = f"{pods.collection(namespace)}/edited"
    image = {"containers": [{"name": "main", "image": "example.test/main:2"}]}
    tolerations = [{"operator": "Exists", "key": "a"}]
    for change in (image, {"tolerations": tolerations}, {"activeDeadlineSeconds": 600}):
        await api.patch(path, {"spec": change}, kind="strategic")
    label = {"gpu.deckhouse.io/pool": None}
    with pytest.raises(client.ApiRefusedError, match=r"gpu\.deckhouse\.io/pool"):
        await api.patch(path, {"metadata": {"labels": label}})


async def test_the_unit_of_an_evicted_pod_is_free(make_pool, api, namespace):
    pool = await make_pool(devices=1)
    await bound_node(api, namespace, a_pod("evicted", pool))
    metadata = {"name": "evicted", "namespace": namespace}
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
    await api.create(f"{pods.collection(namespace)}/evicted/eviction", eviction)
    assert await bound_node(api, namespace, a_pod("next", pool)) == pool.nodes[0]


async def test_a_mirror_pod_that_no_kubelet_wrote_is_refused(make_pool, api, namespace):
    pool = await make_pool(devices=1)
    pod = a_pod("mirror", pool)
    pod["metadata"]["annotations"] = {
        "kubernetes.io/config.mirror": "x",
        "kubernetes.io/config.hash": "x",
        "kubernetes.io/config.source": "file",
    }
    pod["spec"]["nodeName"] = pool.nodes[0]
    with pytest.raises(client.ApiRefusedError, match="NodePreset"):
        await api.create(pods.collection(namespace), pod)


@pytest.mark.parametrize("way", [("--server-side",), ()], ids=["server-side", "client-side"])
async def test_a_bare_pod_may_be_applied_again(way, make_pool, api, kubectl, namespace):
    """GitOps of bare pods, as people write them: no field of ours, and no scheduler."""
    pool = await make_pool(devices=1)
    pod = a_pod("bare", pool)
    del pod["spec"]["schedulerName"]
    pod["metadata"] = {"name": "bare", "namespace": namespace}
    apply = ("apply", *way, "-f", "-")
    await kubectl(*apply, stdin=json.dumps(pod))
    bound = await pods.wait_for_pod(api, namespace, "bare")
    for more in ((), ("--force-conflicts", "--field-manager=argocd") if way else ()):
        await kubectl(*apply, *more, stdin=json.dumps(pod))
    again = await api.get(f"{pods.collection(namespace)}/bare")
    assert devices_of(again) == devices_of(bound)
    assert again["spec"] == bound["spec"]
