"""What a check says of invented clusters."""

import dataclasses
import datetime as dt
import io
import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from api.foreign.core import Node, Pod
from api.foreign.leases import PartialLease
from api.kinds.gpudevice import GPUDevice
from api.kinds.gpunodeinventory import GPUNodeInventory
from api.kinds.gpupool import GPUPool
from api.names import POOL_LABEL
from api.version import VERSION
from kube.resources import DEPLOYMENTS, GPU_CONTROL_PLANE_CONFIGS, NODES, PODS, Resource
from kubectl_gpu.check.checked_cluster import (
    CheckedCluster,
    CheckedDefinition,
    CheckedWebhooks,
    CheckedWorkload,
    read_bare_cluster,
    read_cluster_state,
)
from kubectl_gpu.check.findings import CheckFinding, Level, report_of
from kubectl_gpu.check.installation import (
    KINDS,
    check_installation,
    check_kubernetes,
    fields_of_model,
    fields_of_schema,
)
from kubectl_gpu.check.pools import check_devices, check_nodes, check_pods, check_pools
from kubectl_gpu.check.preflight import INSTALLED, check_cluster, check_rights
from kubectl_gpu.check.verb import text_of_report
from kubectl_gpu.dump.dumped_lists import collect
from kubectl_gpu.dumped.dump_source import DumpSource
from kubectl_gpu.terminal import Terminal
from manifests.install.crds import build_crds
from server.configuration.config_definition import build_config_crd
from tests.support.cluster_objects import (
    a_bound_pod_object,
    a_device_object,
    a_node_object,
    a_pod_object,
    a_pool_object,
)
from tests.support.object_source import NOON, ObjectSource

Json = dict[str, Any]
OURS = "gpu-control-plane"


def condition(kind: str, status: str, reason: str = "Because", message: str = "of this") -> Json:
    return {"type": kind, "status": status, "reason": reason, "message": message}


def a_definition(crd: Json) -> Json:
    return crd | {"status": {"conditions": [condition("Established", "True")]}}


def a_workload(kind: str, name: str, *, ready: int = 2, image: str = f"r.io/gpu:{VERSION}") -> Json:
    return {
        "kind": kind,
        "metadata": {"name": name, "namespace": OURS},
        "spec": {"replicas": 2, "template": {"spec": {"containers": [{"image": image}]}}},
        "status": {"readyReplicas": ready, "desiredNumberScheduled": 2, "numberReady": ready},
    }


def a_lease(name: str, *, age_s: float = 1, holder: str = "server-1") -> Json:
    renewed = (NOON - dt.timedelta(seconds=age_s)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {
        "kind": "Lease",
        "metadata": {"name": name, "namespace": OURS},
        "spec": {"holderIdentity": holder, "renewTime": renewed},
    }


def webhooks(kind: str, name: str, *, ca: str = "Y2E=") -> Json:
    return {
        "kind": kind,
        "metadata": {
            "name": name,
            "labels": {"app.kubernetes.io/part-of": "gpu-control-plane"},
        },
        "webhooks": [{"name": "pods", "clientConfig": {"caBundle": ca}}],
    }


def a_ready_pool(**spec: Any) -> Json:
    status = {
        "capacity": {"total": 2, "available": 1},
        "conditions": [condition("Ready", "True"), condition("CapacityLow", "True")],
    }
    return a_pool_object(**spec) | {"status": status}


def an_inventory(*conditions: Json, **status: Any) -> Json:
    found = conditions or (
        condition("ReadyForPooling", "True"),
        condition("AgentDegraded", "False"),
    )
    return {
        "kind": "GPUNodeInventory",
        "metadata": {"name": "n1"},
        "status": {"conditions": list(found), **status},
    }


def a_pool_pod(pod: Json) -> Json:
    pod["metadata"] |= {
        "labels": {POOL_LABEL: "whole"},
        "creationTimestamp": "2026-11-23T11:58:00Z",
    }
    return pod


TAINT = {"key": "team", "value": "ml", "effect": "NoSchedule"}
A_NODE_POOL = {
    "kind": "NodePool",
    "metadata": {"name": "whole"},
    "spec": {
        "template": {
            "spec": {
                "taints": [TAINT, {"key": "of-karpenter", "effect": "NoSchedule"}],
                "startupTaints": [{"key": "of-network", "effect": "NoSchedule"}],
            }
        }
    },
}


def a_node_daemon(*tolerations: Json) -> Json:
    spec = {"nodeSelector": {"nvidia.com/gpu.deploy.driver": "true"}, "tolerations": tolerations}
    return {
        "kind": "DaemonSet",
        "metadata": {"name": "nvidia-driver-daemonset", "namespace": "gpu-operator"},
        "spec": {"template": {"spec": spec}},
    }


def a_good_cluster() -> list[Json]:
    return [
        *(a_definition(crd) for crd in (*build_crds(), build_config_crd())),
        a_workload("Deployment", OURS),
        a_workload("Deployment", "gpu-scheduler"),
        a_workload("DaemonSet", "gpu-node-agent"),
        a_lease(OURS),
        a_lease("gpu-scheduler", holder="scheduler-1"),
        {
            "kind": "GPUControlPlaneTerm",
            "metadata": {"name": OURS},
            "spec": {"holder": "server-1", "number": 3},
        },
        {"kind": "GPUControlPlaneConfig", "metadata": {"name": OURS}, "spec": {}},
        webhooks("MutatingWebhookConfiguration", "zz-gpu-control-plane"),
        webhooks("ValidatingWebhookConfiguration", OURS),
        a_ready_pool(),
        a_device_object("n1", 0),
        a_device_object("n1", 1),
        an_inventory(),
        a_pool_pod(a_bound_pod_object("mine", "n1", [0])),
    ]


def source_of(objects: list[Json], *, version: str = "v1.36.3", **options: Any) -> ObjectSource:
    answers = {"/version": json.dumps({"gitVersion": version}).encode()}
    return ObjectSource(objects, answers=answers, **options)


def findings_of(cluster: CheckedCluster) -> list[CheckFinding]:
    checks = (
        check_kubernetes,
        check_installation,
        check_pools,
        check_nodes,
        check_devices,
        check_pods,
    )
    return [item for check in checks for item in check(cluster)]


def check(objects: list[Json], **options: Any) -> list[CheckFinding]:
    return findings_of(read_cluster_state(source_of(objects, **options), namespace=OURS))


def test_a_console_that_does_not_run_keeps_no_pod_from_its_units():
    found = check([a_workload("Deployment", "gpu-console", ready=0)])
    (console,) = [item for item in found if item.subject == "Deployment gpu-console"]
    assert (console.level, console.text) == (Level.WARNING, "0 of 2 replicas are ready")


def worse(found: list[CheckFinding]) -> list[tuple[str, str]]:
    return [(item.level.value, item.subject) for item in found if item.level is not Level.GOOD]


def changed(name: str, kind: str, **changes: Any) -> list[Json]:
    objects = a_good_cluster()
    (one,) = (
        object_
        for object_ in objects
        if object_["kind"] == kind and object_["metadata"]["name"] == name
    )
    one |= changes
    return objects


def without(kind: str, name: str = "") -> list[Json]:
    return [
        item
        for item in a_good_cluster()
        if item["kind"] != kind or (name and item["metadata"]["name"] != name)
    ]


def test_a_good_cluster_has_no_finding_to_act_on():
    found = check(a_good_cluster())
    assert worse(found) == []
    assert all(not item.cure for item in found)
    assert report_of(found).is_good


def a_stale_definition() -> list[Json]:
    objects = json.loads(json.dumps(a_good_cluster()))
    pools = next(
        object_ for object_ in objects if object_["metadata"]["name"].startswith("gpupools.")
    )
    schema = pools["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    del schema["properties"]["status"]["properties"]["capacity"]["properties"]["largestFree"]
    return objects  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("objects", "level", "subject", "said"),
    [
        pytest.param(
            without("CustomResourceDefinition", "gpupools.gpu.deckhouse.io"),
            "Fault",
            "kind gpupools.gpu.deckhouse.io",
            "not installed",
            id="a kind is missing",
        ),
        pytest.param(
            a_stale_definition(),
            "Fault",
            "kind gpupools.gpu.deckhouse.io",
            r"drops the fields status\.capacity\.largestFree$",
            id="a kind is older than the plugin",
        ),
        pytest.param(
            changed(
                "gpudevices.gpu.deckhouse.io", "CustomResourceDefinition", status={"conditions": []}
            ),
            "Fault",
            "kind gpudevices.gpu.deckhouse.io",
            "not established",
            id="a kind is not established",
        ),
        pytest.param(
            changed(
                "gpudevices.gpu.deckhouse.io", "CustomResourceDefinition", spec={"versions": []}
            ),
            "Fault",
            "kind gpudevices.gpu.deckhouse.io",
            "v1alpha1 is not served",
            id="a kind is of another version",
        ),
        pytest.param(
            changed(OURS, "Deployment", status={}),
            "Fault",
            f"Deployment {OURS}",
            "0 of 2",
            id="no server is ready",
        ),
        pytest.param(
            changed(OURS, "Deployment", status={"readyReplicas": 1}),
            "Warning",
            f"Deployment {OURS}",
            "1 of 2",
            id="one server is ready",
        ),
        pytest.param(
            without("Deployment", OURS),
            "Warning",
            f"Deployment {OURS}",
            "there is none in namespace",
            id="no server is deployed",
        ),
        pytest.param(
            without("Deployment", "gpu-scheduler"),
            "Warning",
            "Deployment gpu-scheduler",
            "another kube-scheduler",
            id="no kube-scheduler is deployed",
        ),
        pytest.param(
            changed(
                OURS,
                "Deployment",
                spec={"template": {"spec": {"containers": [{"image": "r.io/gpu:9.9.9"}]}}},
            ),
            "Warning",
            "version of the server",
            "9.9.9, and that of kubectl gpu is",
            id="the server is newer",
        ),
        pytest.param(
            changed(OURS, "Lease", spec={}),
            "Fault",
            f"Lease {OURS}",
            "no replica leads",
            id="none leads",
        ),
        pytest.param(
            changed(OURS, "Lease", spec=a_lease(OURS, age_s=60)["spec"]),
            "Fault",
            f"Lease {OURS}",
            "has not renewed it since",
            id="the leader is gone",
        ),
        pytest.param(
            changed(OURS, "Lease", spec={"holderIdentity": "x", "renewTime": "yesterday"}),
            "Fault",
            f"Lease {OURS}",
            "has not renewed it",
            id="the Lease is malformed",
        ),
        pytest.param(
            changed(OURS, "GPUControlPlaneTerm", spec={"holder": "server-2", "number": 1}),
            "Warning",
            f"GPUControlPlaneTerm {OURS}",
            "bindings are refused",
            id="the term is another replica's",
        ),
        pytest.param(
            changed(
                OURS,
                "GPUControlPlaneConfig",
                status={
                    "conditions": [
                        {"type": "Refused", "status": "True", "message": "spec.x: no such setting"}
                    ]
                },
            ),
            "Fault",
            f"GPUControlPlaneConfig {OURS}",
            "Refused: spec.x: no such setting",
            id="a setting is refused",
        ),
        pytest.param(
            changed("gpu-scheduler", "Lease", spec=a_lease("x", age_s=60)["spec"]),
            "Fault",
            "Lease gpu-scheduler",
            "no kube-scheduler",
            id="kube-scheduler is gone",
        ),
        pytest.param(
            without("ValidatingWebhookConfiguration"),
            "Fault",
            f"validatingwebhookconfigurations/{OURS}",
            "not there",
            id="webhooks are missing",
        ),
        pytest.param(
            changed(
                "zz-gpu-control-plane",
                "MutatingWebhookConfiguration",
                webhooks=[{"name": "pods", "clientConfig": {}}],
            ),
            "Fault",
            "mutatingwebhookconfigurations/zz-gpu-control-plane",
            "pods has no caBundle",
            id="a webhook has no caBundle",
        ),
        pytest.param(
            changed("gpu-node-agent", "DaemonSet", status={"desiredNumberScheduled": 3}),
            "Warning",
            "DaemonSet gpu-node-agent",
            "0 of 3",
            id="agents are missing",
        ),
        pytest.param(
            without("GPUPool"), "Warning", "pools", "there is none", id="there is no pool"
        ),
        pytest.param(
            changed(
                "whole", "GPUPool", status={"conditions": [condition("Ready", "False", "X", "why")]}
            ),
            "Fault",
            "GPUPool whole",
            "Ready is False: X: why",
            id="a pool is not ready",
        ),
        pytest.param(
            changed("whole", "GPUPool", status={"conditions": [condition("Conflict", "True")]}),
            "Warning",
            "GPUPool whole",
            "Conflict is True",
            id="pools are in conflict",
        ),
        pytest.param(
            changed("whole", "GPUPool", status={}),
            "Warning",
            "GPUPool whole",
            "not looked at it",
            id="a pool is new",
        ),
        pytest.param(
            changed("n1", "GPUNodeInventory", status={"conditions": []}),
            "Warning",
            "node n1",
            "no node agent has reported it",
            id="a node has no agent",
        ),
        pytest.param(
            changed(
                "n1",
                "GPUNodeInventory",
                status={"conditions": [condition("AgentDegraded", "True", "DriverHangs", "")]},
            ),
            "Warning",
            "node n1",
            "AgentDegraded is True: DriverHangs$",
            id="an agent is degraded",
        ),
        pytest.param(
            changed(
                "n1",
                "GPUNodeInventory",
                status={"conditions": [condition("ReadyForPooling", "False", "DriverMissing")]},
            ),
            "Fault",
            "node n1",
            "DriverMissing",
            id="a node has no driver",
        ),
        pytest.param(
            without("GPUNodeInventory"),
            "Warning",
            "nodes with devices",
            "there is none",
            id="there is no node",
        ),
        pytest.param(
            [
                *without("GPUDevice"),
                a_device_object("n1", 0, state="Faulted"),
            ],
            "Fault",
            "GPUDevice n1-0",
            "no pod gets it: no reason is given",
            id="a device is faulted",
        ),
        pytest.param(
            [
                *without("GPUDevice"),
                a_device_object(
                    "n1", 0, conditions=[condition("Healthy", "False", "NodeReboot", "Xid 79")]
                ),
            ],
            "Fault",
            "GPUDevice n1-0",
            "NodeReboot: Xid 79",
            id="a device is faulted, with a reason",
        ),
        pytest.param(
            [
                *without("GPUDevice"),
                a_device_object("n1", 0, conditions=[condition("Stale", "True", "SourceSilent")]),
            ],
            "Warning",
            "GPUDevice n1-0",
            "facts are old",
            id="facts are old",
        ),
        pytest.param(
            [
                *without("GPUDevice"),
                a_device_object(
                    "n1", 0, poolRef=None, conditions=[condition("Assigned", "False", "NoPool")]
                ),
            ],
            "Warning",
            "1 in no pool",
            "NoPool",
            id="a device is in no pool",
        ),
        pytest.param(
            [
                *without("GPUDevice"),
                a_device_object(
                    "n1",
                    0,
                    poolRef=None,
                    conditions=[condition("Assigned", "False", "AwaitsDecision", "selected by a")],
                ),
            ],
            "Warning",
            "GPUDevice n1-0",
            "selected by a",
            id="a device waits for a decision",
        ),
        pytest.param(
            [*a_good_cluster(), a_pool_pod(a_pod_object("waits"))],
            "Warning",
            "pod default/waits",
            "waits for gpu.deckhouse.io/whole since",
            id="a pod waits",
        ),
        pytest.param(
            [*a_good_cluster(), a_pool_pod(a_pod_object("inadmissible_units", nodeName="n1"))],
            "Fault",
            "pod default/inadmissible_units",
            "takes no further pod",
            id="a pod is unaccounted",
        ),
        pytest.param(
            [*a_good_cluster(), a_pod_object("static", nodeName="n1")],
            "Fault",
            "pod default/static",
            "takes no further pod that asks for gpu.deckhouse.io/whole$",
            id="a pod that bypassed admission is unaccounted",
        ),
        pytest.param(
            [
                *without("GPUPool"),
                a_ready_pool(scheduling={"taints": [TAINT]}),
                a_node_daemon({"key": "nvidia.com/gpu", "operator": "Exists"}),
            ],
            "Warning",
            "nodes of GPUPool whole",
            "gpu-operator/nvidia-driver-daemonset has no pod .* tolerate team=ml:NoSchedule$",
            id="a pool's taint keeps node software away",
        ),
        pytest.param(
            [
                *a_good_cluster(),
                a_node_daemon({"key": "team", "operator": "Exists"}),
                a_ready_pool(autoscaling={"shapes": [{"name": "one", "devices": 1}]}),
                A_NODE_POOL,
            ],
            "Warning",
            "nodes of GPUPool whole",
            "gpu-operator/nvidia-driver-daemonset has no pod .* tolerate "
            "gpu.deckhouse.io/agent-not-ready:NoSchedule, of-karpenter:NoSchedule$",
            id="taints of new nodes keep node software away",
        ),
    ],
)
def test_each_fault_has_a_row_and_a_cure(objects: list[Json], level: str, subject: str, said: str):
    found = check(objects)
    rows = [item for item in found if (item.level.value, item.subject) == (level, subject)]
    assert len(rows) == 1, worse(found)
    assert re.search(said, rows[0].text), rows[0].text
    assert rows[0].cure
    assert worse(found) == [(level, subject)]
    assert report_of(found).is_good is (level != "Fault")


@pytest.mark.parametrize(
    ("version", "level"),
    [
        ("v1.36.3", "Good"),
        ("v1.30.0-eks-1", "Good"),
        ("v1.29.11", "Fault"),
        ("v2.0.0", "Good"),
        ("", "Warning"),
        ("devel", "Warning"),
    ],
)
def test_kubernetes_is_as_new_as_the_policies_need(version: str, level: str):
    found = check(a_good_cluster(), version=version)
    assert [item.level.value for item in found if item.subject == "API server"] == [level]


def test_the_fields_of_a_model_are_those_of_its_definition():
    definitions = {crd["metadata"]["name"]: crd for crd in (*build_crds(), build_config_crd())}
    assert {f"{resource.plural}.{resource.group}" for resource, _ in KINDS} == definitions.keys()
    for resource, model in KINDS:
        (version,) = definitions[f"{resource.plural}.{resource.group}"]["spec"]["versions"]
        fields = fields_of_schema(version["schema"]["openAPIV3Schema"])
        # The model of settings is the server's, which refuses what it does not have.
        fields = (
            {field for field in fields if not field.startswith("spec.")}
            if (resource is GPU_CONTROL_PLANE_CONFIGS)
            else fields
        )
        assert fields_of_model(model) == fields - {"apiVersion", "kind", "metadata"}


def test_a_new_pod_and_an_ended_one_are_no_findings():
    new, ended = a_pool_pod(a_pod_object("new")), a_pool_pod(a_pod_object("ended", nodeName="n1"))
    new["metadata"]["creationTimestamp"] = "2026-11-23T11:59:50Z"
    ended["status"] = {"phase": "Succeeded"}
    assert worse(check([*a_good_cluster(), new, ended])) == []


def test_a_pod_that_kubelet_reports_is_accounted_for():
    pod = a_pool_pod(a_pod_object("reported", nodeName="n1"))
    objects = [*without("GPUNodeInventory"), pod]
    entry = {"namespace": "default", "pod": "reported", "container": "main", "uid": "pod-reported"}
    objects.append(
        an_inventory(allocations=[entry | {"resource": "gpu.deckhouse.io/whole", "units": []}])
    )
    assert worse(check(objects)) == []


def test_what_may_not_be_read_is_named_and_stops_nothing():
    found = check(a_good_cluster(), forbidden=[DEPLOYMENTS, PODS])
    assert worse(found) == [("Warning", "deployments"), ("Warning", "pods")]
    assert all(
        "may not be read" in item.text and "can-i" in item.cure for item in found if item.cure
    )


def test_a_check_of_a_dump_says_the_same_as_one_of_its_cluster():
    for objects in (a_good_cluster(), a_stale_definition()):
        dump = collect(source_of(objects), namespace=OURS)
        of_dump = findings_of(read_cluster_state(DumpSource(dump, "f.tgz"), namespace=OURS))
        assert of_dump == check(objects)


def test_empty_objects_raise_nothing():
    bare = CheckedCluster(
        now=NOON,
        namespace=OURS,
        definitions=[CheckedDefinition()],
        deployments=[CheckedWorkload()],
        daemon_sets=[CheckedWorkload()],
        leases=[PartialLease()],
        terms=[],
        mutating=[CheckedWebhooks()],
        validating=[CheckedWebhooks()],
        pools=[GPUPool()],
        devices=[GPUDevice()],
        inventories=[GPUNodeInventory()],
        nodes=[Node()],
        pods=[Pod()],
    )
    assert not report_of([*findings_of(bare), *check_cluster(bare)]).is_good
    unread = CheckedCluster(now=NOON, namespace=OURS)
    assert all(
        finding.level is Level.WARNING for finding in [*findings_of(unread), *check_cluster(unread)]
    )


def a_bare_cluster() -> list[Json]:
    node = a_node_object("n1")
    node["metadata"]["labels"]["nvidia.com/gpu.present"] = "true"
    return [
        node,
        {"kind": "CustomResourceDefinition", "metadata": {"name": "nodefeatures.nfd.k8s-sigs.io"}},
    ]


def check_before(objects: list[Json], **options: Any) -> list[CheckFinding]:
    cluster = read_bare_cluster(source_of(objects, **options), namespace=OURS)
    return [*check_kubernetes(cluster), *check_cluster(cluster)]


def offering(**allocatable: str) -> Callable[[Json], Json]:
    def change(node: Json) -> Json:
        node["status"]["allocatable"] |= {
            name.replace("__", "/").replace("_", "."): value for name, value in allocatable.items()
        }
        return node

    return change


def test_a_cluster_that_is_fit_has_nothing_to_act_on_before_an_installation():
    assert worse(check_before(a_bare_cluster())) == []


@pytest.mark.parametrize(
    ("objects", "level", "subject", "said"),
    [
        pytest.param(a_bare_cluster()[:1], "Fault", "NodeFeature", "missing", id="no NodeFeature"),
        pytest.param(
            [a_node_object("n1"), a_bare_cluster()[1]],
            "Warning",
            "devices",
            "no label",
            id="no device",
        ),
        pytest.param(
            [offering(nvidia_com__gpu="8")(a_bare_cluster()[0]), a_bare_cluster()[1]],
            "Warning",
            "NVIDIA's device plugin",
            "nodes n1 offer nvidia.com/gpu",
            id="NVIDIA's device plugin",
        ),
        pytest.param(
            [offering(nvidia_com__gpumem="80")(a_bare_cluster()[0]), a_bare_cluster()[1]],
            "Warning",
            "a device plugin that shares devices",
            "gpumem",
            id="HAMi",
        ),
        pytest.param(
            [offering(gpu_deckhouse_io__whole="8")(a_bare_cluster()[0]), a_bare_cluster()[1]],
            "Fault",
            "resources of gpu.deckhouse.io",
            "no control plane is in",
            id="another owner of our resources",
        ),
        pytest.param(
            [*a_bare_cluster(), build_crds()[0]],
            "Warning",
            "kinds of gpu.deckhouse.io",
            "is, or was, installed",
            id="our kinds are there",
        ),
        pytest.param(
            [
                *a_bare_cluster(),
                {"kind": "Deployment", "metadata": {"name": OURS, "namespace": "other"}},
            ],
            "Fault",
            f"Deployment other/{OURS}",
            "one installation",
            id="another installation",
        ),
    ],
)
def test_what_an_installation_would_meet_has_a_row(
    objects: list[Json], level: str, subject: str, said: str
):
    found = check_before(objects)
    assert worse(found) == [(level, subject)]
    (row,) = (item for item in found if item.subject == subject)
    assert said in row.text
    assert row.cure


@pytest.mark.parametrize("is_installed", [False, True])
@pytest.mark.parametrize(
    "node",
    [
        {"metadata": {"labels": {"feature.node.kubernetes.io/pci-1200_1002.present": "true"}}},
        {"status": {"allocatable": {"amd.com/gpu": "8"}}},
    ],
)
def test_nodes_with_devices_of_amd_are_named_as_not_supported(node: Json, *, is_installed: bool):
    amd = a_node_object("amd-1")
    amd["metadata"] |= node.get("metadata", {})
    amd["status"] |= node.get("status", {})
    found = check([amd]) if is_installed else check_before([*a_bare_cluster(), amd])
    (row,) = [item for item in found if item.subject == "AMD's devices"]
    assert row.level is Level.WARNING
    assert "amd-1" in row.text
    assert "not supported" in row.text
    others = check([a_node_object("n1")]) if is_installed else check_before(a_bare_cluster())
    assert all(item.subject != "AMD's devices" for item in others)


def test_a_device_plugin_that_offers_none_of_its_devices_is_in_nobodys_way():
    node = offering(nvidia_com__gpu="0", gpu_deckhouse_io__x="many")(a_bare_cluster()[0])
    assert worse(check_before([node, a_bare_cluster()[1]])) == []


def test_nodes_that_may_not_be_read_are_named():
    assert worse(check_before(a_bare_cluster(), forbidden=[NODES])) == [("Warning", "nodes")]


def test_each_missing_right_has_a_row_and_the_command_that_shows_it():
    def only_namespaced(resource: Resource) -> bool:
        return resource.namespaced

    found = list(check_rights("team", only_namespaced))
    assert len(found) == sum(not item.namespaced for item in INSTALLED)
    assert (
        found[0].cure == "kubectl auth can-i create customresourcedefinitions.apiextensions.k8s.io"
    )
    (row,) = check_rights("team", lambda _: True)
    assert row.level is Level.GOOD
    refused = list(check_rights("team", lambda _: False))
    assert refused[-1].cure == "kubectl auth can-i create deployments.apps -n team"


def a_terminal(*, encoding: str = "utf-8", width: int | None = None) -> Terminal:
    return Terminal(io.TextIOWrapper(io.BytesIO(), encoding=encoding), io.StringIO(), width=width)


def a_report(count: int = 1) -> Any:
    rows = [
        CheckFinding(section="pools", subject="a", level=Level.GOOD, text="3 of 4 units are free"),
        *(
            CheckFinding(
                section="pools",
                subject=f"b{item}",
                level=Level.FAULT,
                text="broken",
                cure="mend it",
            )
            for item in range(count)
        ),
        CheckFinding(section="pods", subject="c", level=Level.WARNING, text="waits", cure="look"),
    ]
    return report_of(rows)


def test_a_report_has_a_sign_for_each_state_and_its_cure():
    assert text_of_report(a_report(), a_terminal(), shows_all=False) == (
        "pools\n× b0: broken\n    do: mend it\n√ a: 3 of 4 units are free\n\n"  # noqa: RUF001
        "pods\n‼ c: waits\n    do: look\n\n1 fault, 1 warning\n"
    )


def test_a_report_for_ascii_has_words_for_signs():
    text = text_of_report(a_report(), a_terminal(encoding="ascii"), shows_all=False)
    assert text.isascii()
    assert {line.split()[0] for line in text.splitlines() if ": " in line} >= {"ok", "!!", "XX"}


def test_a_report_fits_forty_columns():
    text = text_of_report(a_report(), a_terminal(width=40), shows_all=False)
    assert max(map(len, text.splitlines())) <= 40


def test_alike_rows_are_counted_beyond_ten():
    text = text_of_report(a_report(14), a_terminal(), shows_all=False)
    assert "  4 more (--all shows them)" in text
    assert "b13" in text_of_report(a_report(14), a_terminal(), shows_all=True)
    assert "b13" not in text


def test_a_report_without_findings_to_act_on_says_so():
    good = report_of([CheckFinding(section="pools", subject="a", level=Level.GOOD, text="fine")])
    assert text_of_report(good, a_terminal(), shows_all=False).endswith("\nAll is well.\n")


def test_colours_are_never_the_only_sign():
    coloured = dataclasses.replace(a_terminal(), has_colours=True)
    text = text_of_report(a_report(), coloured, shows_all=False)
    assert "\x1b[31m" in text
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert plain == text_of_report(a_report(), a_terminal(), shows_all=False)
