"""What the builders give is what was read and approved: `UPDATE_GOLDEN=1` rewrites the files."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from api.kinds.gpupool import GPUPool
from cli.uninstall.hook_rights import build_hook
from manifests.caches.claim_policies import build_claim_policies
from manifests.caches.crds import build_cache_crds
from manifests.install import rbac, webhooks
from manifests.install.agent_policy import build_agent_policy
from manifests.install.annotation_policy import build_annotation_policy
from manifests.install.crds import build_crds
from manifests.install.leadership_policy import build_fencing_policies
from manifests.install.managed_policy import build_managed_policy
from manifests.install.node_feature_rule import build_node_feature_rule
from manifests.install.scheduler import (
    ApiConnection,
    ExtenderEndpoint,
    ExtenderTls,
    SchedulerLeaderElection,
    build_extender_snippet,
    build_scheduler_configuration,
)
from manifests.install.server_policy import OwnObjects, build_server_policies
from manifests.install.uninstall_hook import HookPod
from manifests.node.agent_daemonset import build_node_agent
from manifests.node.csi_driver import build_csi_driver
from manifests.node.detector_daemonset import build_node_detector
from manifests.node.device_plugin import PluginKind, PluginMode, WorkloadSettings
from manifests.nvidia.operator_crds import build_operator_crds
from manifests.scaling.node_pool import NodeClassRef, build_node_pools
from manifests.scaling.priority_class import build_balloon_priority_class
from manifests.scaling.signal_pod import build_signal
from manifests.yaml import render
from server.configuration.config_definition import build_config_crd
from server.rbac import build_agent_roles, build_node_software_roles
from tests.support.examples import load_example
from tests.support.node_requests import (
    TAINT,
    a_node_request,
    a_requirement,
    a_shape,
    some_parameters,
)
from tests.unit.manifests import pool_objects

GOLDEN = Path(__file__).parent / "golden"

IN_CLUSTER = webhooks.WebhookSettings(client=webhooks.ServiceClient())
BESIDE_CLUSTER = webhooks.WebhookSettings(
    client=webhooks.UrlClient(base_url="https://127.0.0.1:8443/"), ca_bundle=b"a certificate"
)
EXTENDER = ExtenderEndpoint(
    base_url="https://gpu-control-plane.gpu-control-plane.svc",
    tls=ExtenderTls(ca_file="/tls/ca.crt", cert_file="/tls/tls.crt", key_file="/tls/tls.key"),
)
RULES = [
    rbac.PolicyRule(resources=("pods",), verbs=("watch", "list")),
    rbac.PolicyRule(resources=("pods/binding",), verbs=("create",)),
    rbac.PolicyRule(resources=("nodes", "pods"), verbs=("get", "list", "watch")),
]

SCALING = msgspec.convert(load_example("pool-autoscaling")[0], GPUPool)

DOCUMENTS: dict[str, Callable[[], list[dict[str, Any]]]] = {
    "crds": build_crds,
    "config-crd": lambda: [build_config_crd()],
    "cache-crds": build_cache_crds,
    "operator-crds": build_operator_crds,
    "webhooks-service": lambda: [
        webhooks.build_mutating_configuration(IN_CLUSTER),
        webhooks.build_validating_configuration(IN_CLUSTER),
    ],
    "webhooks-url": lambda: [
        webhooks.build_mutating_configuration(BESIDE_CLUSTER),
        webhooks.build_validating_configuration(BESIDE_CLUSTER),
    ],
    "annotation-policy": lambda: build_annotation_policy(
        ["system:serviceaccount:gpu:engine"], server="system:serviceaccount:gpu:engine"
    ),
    "managed-policy": lambda: build_managed_policy(
        ["system:serviceaccount:gpu:engine"], namespace="gpu"
    ),
    "server-policy": lambda: build_server_policies(
        OwnObjects(images=("registry.example.com/gpu-control-plane:1.0",))
    ),
    "server-policy-with-node-software": lambda: build_server_policies(
        OwnObjects(images=("registry.example.com/gpu-control-plane:1.0",), runs_node_software=True)
    ),
    "node-software-rbac": lambda: build_node_software_roles(OwnObjects()),
    "fencing-policy": build_fencing_policies,
    "rbac": lambda: rbac.build_rbac(RULES, namespaced_rules=RULES[1:2]),
    "user-roles": rbac.build_user_roles,
    "scheduler-rbac": rbac.build_scheduler_rbac,
    "scheduler-configuration": lambda: [
        build_scheduler_configuration(EXTENDER, leader_election=SchedulerLeaderElection())
    ],
    "scheduler-configuration-beside-cluster": lambda: [
        build_scheduler_configuration(
            ExtenderEndpoint(base_url="http://127.0.0.1:8080"),
            connection=ApiConnection(kubeconfig="kubeconfig"),
            percentage_of_nodes_to_score=100,
        )
    ],
    "pool-of-whole-devices": lambda: pool_objects.objects_of(
        pool_objects.a_pool("training", pool_objects.TAINT)
    ),
    "pool-of-mig-instances": lambda: pool_objects.objects_of(
        pool_objects.a_pool("parts", mode=pool_objects.MIG, mig_profile="1g.10gb"),
        pool_objects.MIG_DEVICES,
    ),
    "pool-with-nvidias-plugin": lambda: pool_objects.objects_of(
        pool_objects.a_pool("small", mode=pool_objects.SLICES, slices_per_device=4),
        settings=WorkloadSettings(image="k8s-device-plugin:patched", plugin=PluginKind.NVIDIA),
    ),
    "node-pool": lambda: [
        *build_node_pools(SCALING, NodeClassRef("karpenter.k8s.aws", "EC2NodeClass", "default")),
        build_balloon_priority_class(),
    ],
    "node-feature-rule": lambda: [build_node_feature_rule()],
    "agent-policy": build_agent_policy,
    "agent-rbac": build_agent_roles,
    "csi-driver": lambda: [build_csi_driver()],
    "claim-policies": build_claim_policies,
    "node-detector": lambda: build_node_detector(pool_objects.SETTINGS),
    "node-agent": lambda: build_node_agent(pool_objects.SETTINGS),
    "node-agent-of-all-pools": lambda: build_node_agent(
        WorkloadSettings(image="gpu-control-plane:1.0", mode=PluginMode.PER_NODE)
    ),
    "uninstall-hook": lambda: build_hook(
        OwnObjects(),
        HookPod(
            image="registry.example.com/gpu-control-plane:1.0",
            image_pull_policy="IfNotPresent",
            fields={"priorityClassName": "system-cluster-critical"},
        ),
        is_forced=True,
    ),
    "scale-signal": lambda: [
        build_signal(
            a_node_request(shape=a_shape(requirements=(a_requirement(),))),
            some_parameters(taints=(TAINT,), signal_resource="nvidia.com/gpu"),
            namespace="gpu-control-plane",
            image="registry.example.com/gpu-control-plane:1.0",
        )
    ],
    "extender-snippet": lambda: [
        build_extender_snippet(EXTENDER, ["gpu.deckhouse.io/b", "gpu.deckhouse.io/a"])
    ],
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_manifest_is_as_approved(name):
    rendered = render(DOCUMENTS[name]())
    path = GOLDEN / f"{name}.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.mkdir(exist_ok=True)
        path.write_text(rendered, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == rendered


@pytest.mark.parametrize("name", DOCUMENTS)
def test_rendering_loses_nothing(name):
    assert list(yaml.safe_load_all(render(DOCUMENTS[name]()))) == DOCUMENTS[name]()


def test_no_golden_file_is_left_over():
    assert {path.stem for path in GOLDEN.glob("*")} == set(DOCUMENTS)
