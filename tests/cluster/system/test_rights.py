"""Every right that our service account has is one that it uses; `check_rights` has the other half."""

import base64
import json
import ssl
from pathlib import Path

import aiohttp
import yaml

from api.names import NodeName
from inventory.identity import device_name
from manifests.constants import POD_SECURITY_LABELS
from tests.cluster.environment import binaries, client, karpenter, pods, polling
from tests.cluster.environment.audit import Right
from tests.cluster.system import certificates, installation
from tests.cluster.system.features import FEATURES, apply_feature
from tests.cluster.system.objects import API, DEVICES, a_pod
from tests.support import rights
from tests.support.node_features import address_of, agent_device, agent_feature

REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
CONFIGURATION = f"{REGISTRATION}/mutatingwebhookconfigurations/zz-gpu-control-plane"
VALIDATION = f"{REGISTRATION}/validatingwebhookconfigurations/gpu-control-plane"
DAEMON_SETS = f"/apis/apps/v1/namespaces/{installation.NAMESPACE}/daemonsets"
LONG_QUEUE = 40
"""So many waiting pods that the last ones are nominated."""


def granted_by(document) -> set[Right]:
    namespace = document["metadata"].get("namespace", "*")
    return {
        Right(namespace, group, resource, verb)
        for rule in document["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


SERVICE = f"/api/v1/namespaces/{installation.NAMESPACE}/services/gpu-control-plane"


async def our_rights(system) -> set[Right]:
    rendered = yaml.safe_load_all(await system.render("rbac"))
    return set().union(
        *(
            granted_by(document)
            for document in rendered
            if document["kind"] in {"ClusterRole", "Role"}
            and document["metadata"]["name"] == "gpu-control-plane"
        )
    )


async def call_bind(api, system, pod, node: str, *, folder: Path):
    """Ask for a binding as kube-scheduler does."""
    data = (await api.get(installation.SECRET))["data"]
    context = ssl.create_default_context(cadata=base64.b64decode(data["ca.crt"]).decode())
    pair = folder / "client.pem"
    pair.write_bytes(
        b"".join(map(base64.b64decode, (data["scheduler.crt"], data["scheduler.key"])))
    )
    context.load_cert_chain(pair)
    args = {
        "PodName": pod["metadata"]["name"],
        "PodNamespace": pod["metadata"]["namespace"],
        "PodUID": pod["metadata"]["uid"],
        "Node": node,
    }
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{system.url}/scheduler/bind", json=args, ssl=context) as answer,
    ):
        return await answer.json()


async def nominate(make_pool, api, namespace) -> None:
    """Let pods wait in a queue that is long enough."""
    pool = await make_pool(nodes=2, devices=4, slices=8)
    for number in range(LONG_QUEUE):
        await api.create(pods.collection(namespace), a_pod(f"queue-{number:02d}", pool))
    await pods.wait_for_pods(
        api,
        namespace,
        lambda found: any(pod.get("status", {}).get("nominatedNodeName") for pod in found.values()),
    )


async def expire_and_wake(make_pool, api, namespace) -> None:
    """Let a reservation run out, and its pod wait although it would fit; twice the same, for one Event."""
    pool = await make_pool(devices=1, reservation={"ttl": "5s"})

    def woken(pod) -> bool:
        return "gpu.deckhouse.io/woken" in pod["metadata"].get("annotations", {})

    for _ in range(2):
        await api.create(pods.collection(namespace), a_pod("late", pool))
        await pods.wait_for_pod(api, namespace, "late", woken)
        await api.delete(f"{pods.collection(namespace)}/late", options={"gracePeriodSeconds": 0})
        await pods.wait_for_pod_gone(api, namespace, "late")
    await api.create(pods.collection(namespace), a_pod("late", pool))


async def await_volumes(make_pool, api, namespace) -> list[str]:
    """Let a pod wait for a node near its volumes: one is there, the other one of a class that waits for a pod.

    Returns the paths of what is in no namespace.
    """
    pool = await make_pool(
        devices=1,
        assignment={"requireAnnotation": False},
        autoscaling={"shapes": [{"name": "pair", "devices": 2}]},
    )
    name, size = f"{namespace}-volumes", {"storage": "1Gi"}
    spec = {"accessModes": ["ReadWriteOnce"]}
    classes, volumes = "/apis/storage.k8s.io/v1/storageclasses", "/api/v1/persistentvolumes"
    made = {"metadata": {"name": name}, "provisioner": "example.com/none"}
    await api.create(classes, {**made, "volumeBindingMode": "WaitForFirstConsumer"})
    there = {**spec, "capacity": size, "hostPath": {"path": "/nowhere"}}
    await api.create(volumes, {"metadata": {"name": name}, "spec": there})
    claims = {
        "there": {"volumeName": name, "storageClassName": ""},
        "awaited": {"storageClassName": name},
    }
    for claim, terms in claims.items():
        pod_spec = {**spec, **terms, "resources": {"requests": size}}
        path = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
        await api.create(path, {"metadata": {"name": claim}, "spec": pod_spec})
    pod = a_pod("near-volumes", pool, units=2)
    pod["spec"]["volumes"] = [
        {"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims
    ]
    await api.create(pods.collection(namespace), pod)
    return [f"{collection}/{name}" for collection in (classes, volumes)]


async def bind_what_is_gated(make_pool, system, api, namespace, *, folder: Path) -> None:
    """A binding that the API server refuses is resolved by a read of the pod."""
    pool = await make_pool(devices=1)
    gated = a_pod("gated", pool)
    gated["spec"]["schedulingGates"] = [{"name": "example.com/quota"}]
    created = await api.create(pods.collection(namespace), gated)
    answer = await call_bind(api, system, created, pool.nodes[0], folder=folder)
    assert "gated" in json.dumps(answer)


async def take_stock(api, create_nodes) -> None:
    """Let a node tell of a device, and of another one in its place; leave an inventory without a node."""
    node, older = await create_nodes(2, gpus=0)
    await own_inventory(api, older)
    feature = agent_feature(node, [agent_device(node, 0)])
    await apply_feature(api, feature)
    await polling.eventually(lambda: uuids_on(api, node), what=f"the device of {node}")
    await apply_feature(api, agent_feature(node, [agent_device(node, 0, uuid="GPU-another")]))

    async def is_swapped() -> bool:
        return await uuids_on(api, node) == ["GPU-another"]

    await polling.eventually(is_swapped, what=f"the other device of {node}")
    body = {"apiVersion": "gpu.deckhouse.io/v1alpha1", "kind": "GPUNodeInventory"}
    await api.create(f"{API}/gpunodeinventories", {**body, "metadata": {"name": "nowhere"}})
    await api.delete(f"{FEATURES}/{feature['metadata']['name']}")


async def own_inventory(api, node: str) -> None:
    """Make a device and an inventory that their Node owns, as earlier versions did; they are taken from it."""
    uid = (await api.get(f"/api/v1/nodes/{node}"))["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}
    labels = {"gpu.deckhouse.io/node": "x"}
    device = device_name(NodeName(node), address_of(0))
    kinds = {
        f"{DEVICES}/{device}": "GPUDevice",
        f"{API}/gpunodeinventories/{node}": "GPUNodeInventory",
    }
    for path, kind in kinds.items():
        collection, _, name = path.rpartition("/")
        metadata = {"name": name, "labels": labels, "ownerReferences": [owner]}
        version = "gpu.deckhouse.io/v1alpha1"
        await api.create(collection, {"apiVersion": version, "kind": kind, "metadata": metadata})
    status = {"nodeName": node, "pci": {"address": address_of(0)}}
    await api.patch(f"{DEVICES}/{device}/status", {"status": status})

    async def are_nobodys() -> bool:
        return not any([(await api.get(path))["metadata"].get("ownerReferences") for path in kinds])

    await polling.eventually(are_nobodys, what=f"{node} owns nothing")


async def uuids_on(api, node: str) -> list[str]:
    """Return the UUIDs of the devices of a node."""
    statuses = [item.get("status", {}) for item in (await api.get(DEVICES))["items"]]
    return [status.get("uuid", "") for status in statuses if status.get("nodeName") == node]


async def evict(make_pool, api, namespace) -> None:
    """Change what units are under a pod that runs, and then delete the pool."""
    pool = await make_pool(devices=1, maintenance={"policy": "Evict"})
    await api.create(pods.collection(namespace), a_pod("evicted", pool))
    await pods.wait_for_pod(api, namespace, "evicted", pods.is_running)
    slices = {"mode": "TimeSlice", "slicesPerDevice": 2}
    await api.patch(pool.path, {"spec": {"allocation": slices}})
    await pods.wait_for_pod_gone(api, namespace, "evicted")

    async def runs_plugins() -> bool:
        found = await api.get(DAEMON_SETS, labelSelector=f"gpu.deckhouse.io/pool={pool.name}")
        return bool(found["items"])

    await polling.eventually(runs_plugins, what=f"the plugins of {pool.name}")
    await api.delete(pool.path)


async def overtake(api) -> None:
    """Write another term, as nobody should; ours is written again after the next Binding."""
    number = (await api.get(installation.TERM))["spec"]["number"] + 1
    await api.patch(installation.TERM, {"spec": {"holder": "nobody", "number": number}})


async def damage_certificates(api) -> None:
    await api.patch(installation.SECRET, {"data": {"tls.crt": ""}})
    for path in (CONFIGURATION, VALIDATION):
        remove = [{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]
        await api.patch(path, remove, kind="json")


async def unlabel_namespace(api) -> None:
    """Take the labels of pod security from our namespace, which the server puts back."""
    path = f"/api/v1/namespaces/{installation.NAMESPACE}"
    await api.patch(path, {"metadata": {"labels": dict.fromkeys(POD_SECURITY_LABELS)}})

    async def are_back() -> bool:
        labels = (await api.get(path))["metadata"]["labels"]
        return bool(POD_SECURITY_LABELS.items() <= labels.items())

    await polling.eventually(are_back, what="the labels of pod security")


async def lead_service(api: client.ApiClient) -> None:
    """Install the Service without a selector, which the leader leads to itself."""
    name = SERVICE.rpartition("/")[2]
    ports = [{"name": "https", "port": 443, "targetPort": "https"}]
    await api.create(
        SERVICE.rpartition("/")[0], {"metadata": {"name": name}, "spec": {"ports": ports}}
    )
    slices = f"/apis/discovery.k8s.io/v1/namespaces/{installation.NAMESPACE}/endpointslices"

    async def leads_here() -> bool:
        found = (await api.get(slices))["items"]
        addresses = [
            item["addresses"] for slice_ in found for item in slice_.get("endpoints") or ()
        ]
        return addresses == [[installation.ADVERTISED]]

    await polling.eventually(leads_here, what="an EndpointSlice with the leader's address")


async def test_every_right_is_used(  # fixtures
    make_pool, system, api, namespace, audit, create_nodes, kubectl, progress, tmp_path
):
    # Kinds that are not served are listed, and never watched. They stay.
    await karpenter.install_definitions(kubectl, binaries.find_karpenter(progress)[1])
    await evict(make_pool, api, namespace)
    await system.scheduler.stop()
    await nominate(make_pool, api, namespace)
    await expire_and_wake(make_pool, api, namespace)
    cluster_wide = await await_volumes(make_pool, api, namespace)
    await bind_what_is_gated(make_pool, system, api, namespace, folder=tmp_path)
    await take_stock(api, create_nodes)
    await overtake(api)
    await unlabel_namespace(api)
    await lead_service(api)
    await certificates.install_scheduler_deployment(api)
    await certificates.trusted_by_pods(api)
    await system.scheduler.start()
    await pods.wait_for_pod(api, namespace, "late")
    await damage_certificates(api)
    # Those are used in tests/cluster/operands, autoscaling, manifests and node/caches.
    elsewhere = {
        Right(namespace, group, resource, verb)
        for of in (
            rights.rights_of_operands,
            rights.rights_of_autoscaling,
            rights.rights_of_kernel_caches,
            rights.rights_of_reviews,
        )
        for namespace, group, resource, _, verb in of(installation.NAMESPACE)
    }
    granted = await our_rights(system) - elsewhere
    assert Right("*", "", "pods/binding", "create") in granted

    async def all_used() -> bool:
        unused = granted - await audit.rights_used(installation.SERVER_USER)
        assert not unused, (
            "rights that nothing here uses: take them out of the RBAC of their part, or add to this"
            f" scenario what needs them: {'; '.join(map(str, sorted(unused)))}"
        )
        return True

    await polling.eventually(all_used, what="the use of every right", every=1)
    for path in (installation.DEPLOYMENT, *cluster_wide):
        await api.delete(path)
    await api.delete(SERVICE)
    # Leave the installation to the next test as it was.
    pool = await make_pool(devices=1)
    await certificates.until_repaired(api, namespace, pool, CONFIGURATION, VALIDATION)
