"""State `state-dcgm-exporter`: what each field of its block changes, and which rights it gets."""

from typing import Any

import pytest

from operands.nvidia.states.dcgm_exporter import STATE
from operands.operand_state import ServedKinds
from operands.transforms import object_of, pod_spec_of
from tests.unit.operands.nvidia.state_changes import (
    BLOCK,
    FULL,
    Json,
    changes,
    check_golden,
    kinds_of,
    objects_of,
    settings_of,
)

MAIN = "nvidia-dcgm-exporter"
POD = f"pod.containers[{MAIN}]"
SERVICE = f"Service/{MAIN}:spec"
MONITOR = {
    "enabled": True,
    "interval": "30s",
    "scrapeTimeout": "10s",
    "honorLabels": True,
    "additionalLabels": {"release": "prometheus"},
    "relabelings": [{"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "node"}],
}
POD_LABELS = "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS"
POD_UID = "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_UID"
EXPRESSIONS = "DCGM_EXPORTER_KUBERNETES_POD_LABEL_ALLOWLIST_REGEX"
OF_PODS = {
    ("ClusterRole", "nvidia-dcgm-exporter-read-pods"),
    ("ClusterRoleBinding", "nvidia-dcgm-exporter-read-pods"),
}


def exporter(**fields: Any) -> Json:
    return {"dcgmExporter": fields}


def given(name: str, value: str) -> list[dict[str, str]]:
    return [{"name": name, "value": value}]


def variable(name: str, value: str) -> dict[str, str]:
    return {f"{POD}.env[{name}].name": name, f"{POD}.env[{name}].value": value}


def mount(name: str, path: str, **fields: Any) -> Json:
    found = {"name": name, "mountPath": path, "readOnly": True, **fields}
    return {f"{POD}.volumeMounts[{name}].{key}": value for key, value in found.items()}


def without_rights(found: Json) -> Json:
    """The changes besides those of the right to read pods."""
    return {
        path: value
        for path, value in found.items()
        if not path.startswith(("ClusterRole/", "ClusterRoleBinding/"))
    }


def test_objects_by_default_are_the_approved_ones():
    check_golden(STATE, "default", {})


def test_objects_of_a_full_block_are_the_approved_ones():
    block = {
        **BLOCK,
        "annotations": {"example.com/scrape": "true"},
        "config": {"name": "metrics"},
        "serviceMonitor": MONITOR,
        "service": {"type": "NodePort", "internalTrafficPolicy": "Local"},
        "hostPID": True,
        "hpcJobMapping": {"enabled": True, "directory": "/data/jobs"},
        "enablePodLabels": True,
        "enablePodUID": True,
        "podLabelAllowlistRegex": ["^app$", "^team$"],
    }
    check_golden(STATE, "full", {**FULL, "dcgmExporter": block, "dcgm": {"enabled": False}})


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param(
            exporter(annotations={"example.com/a": "b"}),
            {"pod.metadata.annotations.example.com/a": "b"},
            id="annotations",
        ),
        pytest.param(
            exporter(config={"name": "metrics"}),
            {
                f"{POD}.env[DCGM_EXPORTER_COLLECTORS].value": "/etc/dcgm-exporter/dcgm-metrics.csv",
                **mount(
                    "metrics-config",
                    "/etc/dcgm-exporter/dcgm-metrics.csv",
                    subPath="dcgm-metrics.csv",
                ),
                "pod.volumes[metrics-config].name": "metrics-config",
                "pod.volumes[metrics-config].configMap.name": "metrics",
                "pod.volumes[metrics-config].configMap.items[0].key": "dcgm-metrics.csv",
                "pod.volumes[metrics-config].configMap.items[0].path": "dcgm-metrics.csv",
            },
            id="metrics of a ConfigMap",
        ),
        pytest.param(
            exporter(service={"type": "NodePort"}),
            {f"{SERVICE}.type": "NodePort"},
            id="service type",
        ),
        pytest.param(
            exporter(service={"internalTrafficPolicy": "Local"}),
            {f"{SERVICE}.internalTrafficPolicy": "Local"},
            id="traffic policy",
        ),
        pytest.param(exporter(hostPID=True), {"pod.hostPID": True}, id="processes of the node"),
        pytest.param(
            exporter(hpcJobMapping={"enabled": True}),
            {
                **variable("DCGM_HPC_JOB_MAPPING_DIR", "/var/lib/dcgm-exporter/job-mapping"),
                **mount("hpc-job-mapping", "/var/lib/dcgm-exporter/job-mapping"),
                "pod.volumes[hpc-job-mapping].name": "hpc-job-mapping",
                "pod.volumes[hpc-job-mapping].hostPath.path": "/var/lib/dcgm-exporter/job-mapping",
                "pod.volumes[hpc-job-mapping].hostPath.type": "DirectoryOrCreate",
            },
            id="jobs",
        ),
        pytest.param(exporter(hpcJobMapping={"directory": "/data/jobs"}), {}, id="jobs off"),
        pytest.param(
            exporter(podLabelAllowlistRegex=["^app$", "^team$"]),
            variable(EXPRESSIONS, "^app$,^team$"),
            id="expressions of pod labels",
        ),
        pytest.param(
            exporter(enablePodLabels=True),
            {"pod.automountServiceAccountToken": True, **variable(POD_LABELS, "true")},
            id="labels of pods",
        ),
        pytest.param(
            exporter(enablePodUID=True),
            {"pod.automountServiceAccountToken": True, **variable(POD_UID, "true")},
            id="UIDs of pods",
        ),
        pytest.param(
            {"dcgm": {"enabled": False}},
            {
                f"{POD}.env[DCGM_REMOTE_HOSTENGINE_INFO].name": None,
                f"{POD}.env[DCGM_REMOTE_HOSTENGINE_INFO].value": None,
            },
            id="an engine of its own",
        ),
        pytest.param(
            {"hostPaths": {"kubeletRootDir": "/data/kubelet"}},
            {"pod.volumes[pod-gpu-resources].hostPath.path": "/data/kubelet/pod-resources"},
            id="kubelet's directory",
        ),
    ],
)
def test_a_field_changes_what_it_says_and_no_more(spec, expected):
    assert without_rights(changes(STATE, spec)) == expected


@pytest.mark.parametrize(
    ("fields", "reads_pods", "has_token"),
    [
        pytest.param({}, False, False, id="nothing"),
        pytest.param({"enablePodLabels": True}, True, True, id="labels of pods"),
        pytest.param({"enablePodUID": True}, True, True, id="UIDs of pods"),
        pytest.param({"env": given(POD_LABELS, "True")}, True, True, id="labels by variable"),
        pytest.param({"env": given(POD_UID, "true")}, True, True, id="UIDs by variable"),
        pytest.param({"env": given(POD_UID, "false")}, False, False, id="no UIDs by variable"),
        pytest.param(
            {"env": given("DCGM_EXPORTER_CONFIGMAP_DATA", "gpu:metrics")},
            False,
            True,
            id="metrics by API",
        ),
        pytest.param(
            {"env": given("DCGM_EXPORTER_CONFIGMAP_DATA", "none")},
            False,
            False,
            id="no metrics by API",
        ),
        pytest.param({"podLabelAllowlistRegex": ["x"]}, False, False, id="expressions alone"),
    ],
)
def test_pods_are_read_only_where_metrics_tell_of_them(fields, reads_pods, has_token):
    objects = objects_of(STATE, exporter(**fields))
    assert set(kinds_of(objects)) & OF_PODS == (OF_PODS if reads_pods else set())
    assert pod_spec_of(object_of(objects, "DaemonSet"))["automountServiceAccountToken"] is has_token


def test_an_engine_of_the_node_itself_is_asked_by_the_network_of_the_node():
    localhost = {"env": given("DCGM_REMOTE_HOSTENGINE_INFO", "localhost:5555")}
    off = {"dcgm": {"enabled": False}}
    assert changes(STATE, {**off, **exporter(**localhost)}, off) == {
        **variable("DCGM_REMOTE_HOSTENGINE_INFO", "localhost:5555"),
        "pod.hostNetwork": True,
        "pod.dnsPolicy": "ClusterFirstWithHostNet",
    }


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({"interval": "30s"}, {"endpoints[0].interval": "30s"}, id="interval"),
        pytest.param({"scrapeTimeout": "9s"}, {"endpoints[0].scrapeTimeout": "9s"}, id="timeout"),
        pytest.param({"honorLabels": False}, {"endpoints[0].honorLabels": False}, id="labels win"),
        pytest.param(
            {"relabelings": MONITOR["relabelings"]},
            {
                "endpoints[0].relabelings[0].sourceLabels[0]": "__meta_kubernetes_pod_node_name",
                "endpoints[0].relabelings[0].targetLabel": "node",
            },
            id="relabelings",
        ),
    ],
)
def test_a_field_of_the_monitor_changes_it_alone(fields, expected):
    on = exporter(serviceMonitor={"enabled": True})
    found = changes(STATE, exporter(serviceMonitor={"enabled": True, **fields}), on)
    assert found == {
        f"ServiceMonitor/{MAIN}:spec.{path}": value for path, value in expected.items()
    }


def test_the_monitor_has_further_labels_and_keeps_its_own():
    labels = {"release": "prometheus", "app": "mine"}
    objects = objects_of(
        STATE, exporter(serviceMonitor={"enabled": True, "additionalLabels": labels})
    )
    found = object_of(objects, "ServiceMonitor")["metadata"]["labels"]
    assert found["release"] == "prometheus"
    assert found["app"] == MAIN


def test_there_is_no_monitor_unless_it_is_on_and_its_kind_served():
    on = exporter(serviceMonitor={"enabled": True})
    assert ("ServiceMonitor", MAIN) in kinds_of(objects_of(STATE, on))
    assert ("ServiceMonitor", MAIN) not in kinds_of(objects_of(STATE, {}))
    assert ("ServiceMonitor", MAIN) not in kinds_of(STATE.objects(settings_of(on), ServedKinds()))
