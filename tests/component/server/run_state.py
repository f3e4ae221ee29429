"""What there is of all that our server decides or writes, in words that two runs can be compared by."""

import base64
import itertools
import json
from typing import Any, Final

from api import names
from api.annotations import decode_devices
from api.foreign.core import Pod
from api.nodefiles.poolconfig import CONFIG_KEY
from kube import resources
from kube.client import KubeClient
from manifests import constants
from reconciler.installation.scheduler_trust import hash_of
from tests.support.metric_samples import exported
from tests.support.running_server import Cluster, RunningServer

Json = dict[str, Any]

_MEMBERS: Final = ("status", "pools", "assigned")


async def state_of(cluster: Cluster, server: RunningServer) -> Json:
    """Return what is there now, of all that our server decides or writes."""
    client = cluster.client
    pods = (await client.list_(resources.PODS, Pod)).items
    units = list(itertools.chain.from_iterable(map(_units_of, pods)))
    authority = (await cluster.bundle()).trust_pem
    checks = await server.checks()
    return {
        "bound": {pod.metadata.name for pod in pods if pod.spec.node_name},
        "with devices": {pod.metadata.name for pod in pods if _units_of(pod)},
        "is any unit given twice": len(units) > len(set(units)),
        **await _pools(client),
        **await _devices(client),
        **await _nodes(client),
        **await _workloads(client),
        "reservations": sum(exported("gpu_reservations").values()),
        "are CAs injected": {ca == authority for ca in await _ca_bundles(client)},
        **await _installation(client, authority),
        "is all ready": bool(checks) and all(checks.values()),
    }


async def _pools(client: KubeClient) -> Json:
    pools = await objects(client, resources.GPU_POOLS)
    return {
        "pools": {name: item["status"].get("capacity") for name, item in pools.items()},
        "modes": {name: at(item, "status", "allocation", "mode") for name, item in pools.items()},
        "finalized": {name for name, item in pools.items() if item["metadata"].get("finalizers")},
        "said of pools": {name: true_ones(item) for name, item in pools.items()},
    }


async def _devices(client: KubeClient) -> Json:
    devices = await objects(client, resources.GPU_DEVICES)
    by_uuid = {item["status"].get("uuid", name): item for name, item in devices.items()}
    return {
        "devices": len(devices),
        "units": {uuid: at(item, "status", "units") for uuid, item in by_uuid.items()},
        "owners": {uuid: at(item, "status", "poolRef", "name") for uuid, item in by_uuid.items()},
        "said of devices": {uuid: true_ones(item) for uuid, item in by_uuid.items()},
    }


async def _nodes(client: KubeClient) -> Json:
    node = await client.get(resources.NODES, Json, "n1")
    inventories = await objects(client, resources.GPU_NODE_INVENTORIES)
    labels = node["metadata"]["labels"]
    return {
        "labels": {label for label in labels if label.startswith(names.POOL_NODE_LABEL_PREFIX)},
        "is a device present": labels.get(names.PRESENT_LABEL),
        "taints": {item["key"] for item in node["spec"].get("taints") or ()},
        "our taints": at(node, "metadata", "annotations", names.POOL_TAINTS_ANNOTATION),
        "phases": {name: item["status"].get("phase") for name, item in inventories.items()},
        "said of nodes": {name: true_ones(item) for name, item in inventories.items()},
        "members": {
            name: {item["pool"]: len(item["devices"]) for item in at(found, *_MEMBERS) or ()}
            for name, found in inventories.items()
        },
    }


async def _installation(client: KubeClient, authority: bytes) -> Json:
    """Return the state of our Namespace and of kube-scheduler's Deployment."""
    namespace = await client.get(resources.NAMESPACES, Json, constants.DEFAULT_NAMESPACE)
    deployment = await client.get(
        resources.DEPLOYMENTS,
        Json,
        constants.SCHEDULER_DEPLOYMENT,
        namespace=constants.DEFAULT_NAMESPACE,
    )
    leads_to = await client.get(
        resources.ENDPOINT_SLICES,
        Json,
        constants.SERVICE_NAME,
        namespace=constants.DEFAULT_NAMESPACE,
    )
    template = at(
        deployment, "spec", "template", "metadata", "annotations", names.TRUST_HASH_ANNOTATION
    )
    return {
        "is our namespace privileged": constants.POD_SECURITY_LABELS.items()
        <= namespace["metadata"]["labels"].items(),
        "does the Service lead here": [endpoint["addresses"] for endpoint in leads_to["endpoints"]]
        == [["127.0.0.1"]],
        "does the scheduler trust us": template == hash_of(authority),
    }


async def _workloads(client: KubeClient) -> Json:
    lists = {
        _pool_of(object_): json.loads(object_["data"][CONFIG_KEY])
        for object_ in (await objects(client, resources.CONFIG_MAPS)).values()
    }
    return {
        "lists": {
            pool: {item["uuid"] for item in _on_n1(config) if not item.get("isWithheld")}
            for pool, config in lists.items()
        },
        "plugins": {
            _pool_of(object_)
            for object_ in (await objects(client, resources.DAEMON_SETS)).values()
            if names.POOL_LABEL in object_["metadata"]["labels"]
        },
    }


async def objects(client: KubeClient, resource: resources.Resource) -> dict[str, Json]:
    found = (await client.list_(resource, Json)).items
    return {item["metadata"]["name"]: {"status": {}, **item} for item in found}


async def _ca_bundles(client: KubeClient) -> list[bytes]:
    found: list[bytes] = []
    for resource, name in (
        (resources.MUTATING_WEBHOOK_CONFIGURATIONS, constants.MUTATING_CONFIGURATION),
        (resources.VALIDATING_WEBHOOK_CONFIGURATIONS, constants.VALIDATING_CONFIGURATION),
    ):
        configuration = await client.get(resource, Json, name)
        bundles = [hook["clientConfig"]["caBundle"] for hook in configuration["webhooks"]]
        found += [base64.b64decode(bundle) for bundle in bundles]
    return found


def at(found: Any, *path: str) -> Any:
    """Return what is at the path; None where something on it is not there."""
    for key in path:
        found = (found or {}).get(key)
    return found


def true_ones(found: Json) -> set[str]:
    conditions = found["status"].get("conditions") or ()
    return {condition["type"] for condition in conditions if condition["status"] == "True"}


def _pool_of(found: Json) -> str:
    return str(found["metadata"]["labels"][names.POOL_LABEL])


def _on_n1(config: Json) -> list[Json]:
    return list(config["nodes"].get("n1", ()))


def _units_of(pod: Pod) -> list[str]:
    devices = decode_devices(pod.metadata.annotation(names.DEVICES_ANNOTATION)) or {}
    return list(itertools.chain(*devices.values()))
