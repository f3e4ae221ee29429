"""An in-memory cluster with everything that the control plane leaves in one, and what others have there."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from api import driver_upgrade, names
from cli.uninstall.own_kinds import RemovalOptions
from cli.uninstall.removal import Removal
from kube import resources
from kube.client import KubeClient
from manifests import constants
from manifests.caches.claim_policies import build_claim_policies
from manifests.caches.crds import build_cache_crds
from manifests.install import webhooks
from manifests.install.agent_policy import build_agent_policy
from manifests.install.annotation_policy import build_annotation_policy
from manifests.install.crds import build_crds
from manifests.install.leadership_policy import build_fencing_policies
from manifests.install.managed_policy import build_managed_policy
from manifests.install.rbac import build_cache_roles, build_pull_secret_rights
from manifests.install.server_policy import OwnObjects, build_server_policies
from manifests.node.agent_daemonset import build_node_agent
from manifests.node.csi_driver import build_csi_driver
from manifests.nvidia.operator_crds import build_operator_crds
from operands.nvidia.policy_states import build_operands
from operands.operand_state import ServedKinds
from reconciler.node_software.objects import RESOURCES as OPERAND_RESOURCES
from server.configuration.config_definition import build_config_crd
from server.rbac import build_roles
from simulator.apiserver.server import InMemoryApiServer
from simulator.node.nfd import node_feature_crd
from tests.support.client_of_api import a_client
from tests.support.loop_clock import LoopClock
from tests.unit.manifests import pool_objects
from tests.unit.operands.operand_cases import ALL_ON

Json = dict[str, Any]

OWN = OwnObjects()
WITH_NODE_SOFTWARE = replace(OWN, runs_node_software=True)
NAMESPACE = OWN.namespace
POOL = "training"
DEAD_URL = "https://127.0.0.1:9"
"""Nobody listens: a pod that needs a webhook is refused while its configuration is there."""


@dataclass
class InstalledCluster:
    """`client` is the administrator's, `server_client` the server's."""

    api: InMemoryApiServer
    client: KubeClient
    server_client: KubeClient
    clock: LoopClock
    lines: list[str] = field(default_factory=list)

    def removal(
        self, client: KubeClient | None = None, own: OwnObjects = OWN, **options: Any
    ) -> Removal:
        chosen = RemovalOptions(own=own, **options)
        return Removal(client or self.client, self.clock, chosen, report=self.lines.append)

    async def create(self, *bodies: Json) -> None:
        for body in bodies:
            group, _, version = body["apiVersion"].rpartition("/")
            plural = _plural(body["kind"])
            resource = resources.Resource(
                group, version, plural, body["kind"], "namespace" in body["metadata"]
            )
            await self.client.create(resource, body)

    async def add_cache_pod(self, name: str, **status: str) -> None:
        """Add a pod on a node that has a kernel cache, and no device of a pool."""
        attributes = {"csi.gkm.io/GKMCache": "llama", "csi.gkm.io/namespace": "default"}
        volume = {"name": "v", "csi": {"driver": "csi.gkm.io", "volumeAttributes": attributes}}
        containers = [{"name": "c", "image": "i"}]
        await self.client.create(
            resources.PODS,
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"nodeName": "n1", "containers": containers, "volumes": [volume]},
            },
        )
        await self.client.merge_patch(
            resources.PODS, {"status": status}, name=name, namespace="default", subresource="status"
        )

    async def add_pod(self, name: str, *, node: str = "", **annotations: str) -> None:
        container = {
            "name": "c",
            "image": "i",
            "resources": {"limits": {f"gpu.deckhouse.io/{POOL}": "2"}},
        }
        spec: Json = {"containers": [container]}
        if node:
            spec["nodeName"] = node
        metadata = {"name": name, "namespace": "default", "annotations": annotations}
        await self.client.create(
            resources.PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        )

    def world(self) -> dict[str, Json]:
        """Return every stored object by kind, namespace and name, without what each write changes."""
        found: dict[str, Json] = {}
        for collection in self.api._store.collections():
            for stored in collection.all():
                namespace, name = stored.key
                body = stored.copy()
                for key in ("managedFields", "resourceVersion", "generation"):
                    body["metadata"].pop(key, None)
                found[f"{body['kind']} {namespace}/{name}"] = body
        return found

    def ours(self) -> set[str]:
        """Return the objects that have our domain or our names anywhere but in a pod."""
        return {
            key
            for key, body in self.world().items()
            if not key.startswith("Pod ")
            and any(
                word in str(body) for word in ("gpu.deckhouse.io", "gkm.io", constants.NAME, "gpu-")
            )
        }


def _plural(kind: str) -> str:
    lower = kind.lower()
    return f"{lower[:-1]}ies" if lower.endswith("y") else f"{lower}s"


@asynccontextmanager
async def a_bare_cluster() -> AsyncIterator[InstalledCluster]:
    clock = LoopClock()
    async with (
        InMemoryApiServer(clock) as api,
        a_client(api, clock, user_agent="kubectl/1.36") as client,
        a_client(api, clock) as server_client,
    ):
        cluster = InstalledCluster(api, client, server_client, clock)
        await cluster.create(node_feature_crd())
        await _add_what_others_have(cluster)
        yield cluster


@asynccontextmanager
async def an_installed_cluster() -> AsyncIterator[InstalledCluster]:
    async with a_bare_cluster() as cluster:
        await _install(cluster)
        await _add_what_the_server_makes(cluster)
        # At the end: they refuse whatever concerns them.
        settings = webhooks.WebhookSettings(client=webhooks.UrlClient(base_url=DEAD_URL))
        await cluster.create(
            webhooks.build_mutating_configuration(settings),
            webhooks.build_validating_configuration(settings),
        )
        cluster.api.requests.clear()
        yield cluster


async def _add_what_others_have(cluster: InstalledCluster) -> None:
    client = cluster.client
    for name in ("n1", "n2"):
        labels = {"kubernetes.io/hostname": name, "nvidia.com/gpu.present": "true"}
        if name == "n2":
            labels["gpu.deckhouse.io/enabled"] = "false"
        metadata = {"name": name, "labels": labels, "annotations": {"example.com/note": "x"}}
        await client.create(
            resources.NODES, {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
        )
        taints = [{"key": "example.com/other", "effect": "NoSchedule", "value": "theirs"}]
        await client.merge_patch(resources.NODES, {"spec": {"taints": taints}}, name=name)
    await client.create(
        resources.CONFIG_MAPS,
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "theirs", "namespace": "default"},
        },
    )


async def _install(cluster: InstalledCluster) -> None:
    labels = dict(constants.LABELS)
    await cluster.create(
        *build_crds(),
        build_config_crd(),
        *build_cache_crds(),
        build_csi_driver(),
        *build_claim_policies(),
        *build_cache_roles(),
        *build_roles(OWN),
        *build_pull_secret_rights(["registry"], NAMESPACE),
        *build_annotation_policy([OWN.username]),
        *build_managed_policy([OWN.username], namespace=NAMESPACE),
        *build_fencing_policies(),
        *build_agent_policy(),
        *build_server_policies(OWN),
    )
    metadata = {"name": constants.NAME, "namespace": NAMESPACE, "labels": labels}
    await cluster.client.create(
        resources.DEPLOYMENTS,
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": metadata,
            "spec": {"replicas": 2},
        },
    )
    await cluster.client.create(
        resources.SERVICES,
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {}},
    )
    await cluster.client.create(
        resources.CONFIG_MAPS,
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {**metadata, "name": f"{constants.NAME}-settings"},
        },
    )


async def _add_what_the_server_makes(cluster: InstalledCluster) -> None:
    client = cluster.server_client
    pool = {
        "apiVersion": resources.GPU_POOLS.api_version,
        "kind": "GPUPool",
        "metadata": {"name": POOL, "finalizers": ["example.com/theirs", names.POOL_FINALIZER]},
        "spec": {},
    }
    await client.create(resources.GPU_POOLS, pool)
    for resource, namespace, finalizer in (
        (resources.GKM_CACHES, "default", names.CACHE_FINALIZER),
        (resources.CLUSTER_GKM_CACHES, None, names.CLUSTER_CACHE_FINALIZER),
        (resources.GKM_CACHE_NODES, "default", names.cache_node_finalizer("llama")),
        (resources.CLUSTER_GKM_CACHE_NODES, None, names.cache_node_finalizer("llama")),
    ):
        is_of_a_node = "Node" in resource.kind
        metadata = {
            "name": "n1" if is_of_a_node else "llama",
            "finalizers": ["example.com/theirs", finalizer],
            **({"namespace": namespace} if namespace else {}),
            # Without it the webhooks, whose server is not there, would be asked about each change.
            "annotations": {names.MUTATION_SIGNATURE_ANNOTATION: "signed"},
        }
        cache = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": metadata,
            **({} if is_of_a_node else {"spec": {"image": "registry.test/llama:1"}}),
        }
        await client.create(resource, cache)
    device = {
        "apiVersion": resources.GPU_DEVICES.api_version,
        "kind": "GPUDevice",
        "metadata": {"name": "n1-0"},
    }
    await client.create(resources.GPU_DEVICES, device)
    workloads = [
        *pool_objects.objects_of(pool_objects.a_pool(POOL, pool_objects.TAINT)),
        *build_node_agent(pool_objects.SETTINGS),
    ]
    for body in workloads:
        resource = resources.DAEMON_SETS if body["kind"] == "DaemonSet" else resources.CONFIG_MAPS
        await client.create(resource, body)
    for body in build_operands(replace(ALL_ON, namespace=NAMESPACE), ServedKinds()):
        await client.create(OPERAND_RESOURCES[body["kind"]], body)
    signal = {
        "name": "scale-x",
        "namespace": NAMESPACE,
        "labels": {
            "app.kubernetes.io/part-of": constants.NAME,
            names.COMPONENT_LABEL: names.SCALE_SIGNAL,
            names.SCALE_REQUEST_LABEL: "x",
        },
    }
    spec = {"schedulerName": "nobody", "containers": [{"name": "signal", "image": "i"}]}
    await client.create(
        resources.PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": signal, "spec": spec}
    )
    for name in ("n1", "n2"):
        await mark_node(client, name)
        await client.create(resources.NODE_FEATURES, _node_feature(name))
    for name in (
        constants.SERVING_SECRET,
        constants.SCHEDULER_SECRET,
        constants.RESERVATION_KEY_SECRET,
        constants.CACHE_KEY_SECRET,
    ):
        metadata = {"name": name, "namespace": NAMESPACE}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque"}
        await client.create(resources.SECRETS, secret)
    for name in (constants.LEASE_NAME, constants.SCHEDULER_LEASE_NAME):
        await client.create(resources.LEASES, a_lease(name))
    term = {
        "apiVersion": resources.GPU_CONTROL_PLANE_TERMS.api_version,
        "kind": "GPUControlPlaneTerm",
        "metadata": {"name": constants.LEASE_NAME},
        "spec": {"holder": "server_1", "number": 7},
    }
    await client.create(resources.GPU_CONTROL_PLANE_TERMS, term)
    config = {
        "apiVersion": resources.GPU_CONTROL_PLANE_CONFIGS.api_version,
        "kind": "GPUControlPlaneConfig",
        "metadata": {"name": constants.NAME},
    }
    await client.create(resources.GPU_CONTROL_PLANE_CONFIGS, config)


async def mark_node(client: KubeClient, name: str) -> None:
    """Do what the server does to a node of a pool with a taint."""
    taints = [
        {"key": "example.com/other", "effect": "NoSchedule", "value": "theirs"},
        {"key": "gpu.deckhouse.io/only", "effect": "NoSchedule", "value": POOL},
    ]
    metadata = {
        "labels": {
            f"pool.gpu.deckhouse.io/{POOL}": "",
            "gpu.deckhouse.io/present": "true",
        },
        "annotations": {names.POOL_TAINTS_ANNOTATION: "gpu.deckhouse.io/only:NoSchedule"},
    }
    await client.merge_patch(
        resources.NODES, {"metadata": metadata, "spec": {"taints": taints}}, name=name
    )


def a_lease(name: str, holder: str = "server_1") -> Json:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 2},
    }


def _node_feature(node: str) -> Json:
    return {
        "apiVersion": resources.NODE_FEATURES.api_version,
        "kind": "NodeFeature",
        "metadata": {"name": f"{constants.AGENT_FEATURE_PREFIX}{node}", "namespace": NAMESPACE},
        "spec": {},
    }


REQUIRED_OF_A_POLICY = (
    *("daemonsets", "dcgm", "dcgmExporter", "devicePlugin", "driver"),
    *("gfd", "nodeStatusExporter", "operator", "toolkit"),
)


async def add_node_software(cluster: InstalledCluster) -> None:
    """Add a policy, an object of a state in the namespace and in the cluster, and an upgrade of a node's driver.

    Another client has cordoned the operator's node.
    """
    await cluster.create(*build_operator_crds())
    labels = {names.OPERAND_LABEL: "state-mig-manager"}
    metadata = {"name": "nvidia-mig-manager", "namespace": OWN.namespace, "labels": labels}
    await cluster.create(
        {
            "apiVersion": "nvidia.com/v1",
            "kind": "ClusterPolicy",
            "metadata": {
                "name": "gpus",
                "finalizers": ["example.com/theirs", names.POLICY_FINALIZER],
            },
            "spec": {key: {} for key in REQUIRED_OF_A_POLICY},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": metadata,
            "spec": {
                "selector": {"matchLabels": {"app": "nvidia-mig-manager"}},
                "template": {
                    "metadata": {"labels": {"app": "nvidia-mig-manager"}},
                    "spec": {"containers": [{"name": "dcgm", "image": "dcgm:1"}]},
                },
            },
        },
    )
    runtime_class = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "nvidia", "labels": labels},
        "handler": "nvidia",
    }
    await cluster.client.create(resources.RUNTIME_CLASSES, runtime_class)
    change = {
        "labels": {
            driver_upgrade.UPGRADE_STATE_LABEL: driver_upgrade.UpgradeState.VALIDATION_REQUIRED.value,
            driver_upgrade.AGENT_DEPLOY_LABEL: driver_upgrade.PAUSED_FOR_UPGRADE,
        },
        "annotations": {
            driver_upgrade.UPGRADE_RECORD_ANNOTATION: "x",
            driver_upgrade.UNITS_WITHHELD_ANNOTATION: driver_upgrade.DRIVER_UPGRADE,
            driver_upgrade.VALIDATION_START_ANNOTATION: "1700000000",
        },
    }
    await cluster.server_client.merge_patch(resources.NODES, {"metadata": change}, name="n1")
    cordon = {"unschedulable": True}
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "spec": cordon}
    await cluster.server_client.apply(
        resources.NODES, body, field_manager=driver_upgrade.CORDON_MANAGER
    )
    await cluster.client.merge_patch(resources.NODES, {"spec": cordon}, name="n2")
