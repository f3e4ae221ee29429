"""The node detector's DaemonSet: what the command makes of it, and what it must not have."""

from typing import Any

import pytest

from agent.settings import AgentRole
from api.names import PRESENT_LABEL
from manifests.node.detector_daemonset import build_node_detector
from manifests.node.device_plugin import (
    NodeAgentSettings,
    NodeDetectorSettings,
    PluginMode,
    WorkloadSettings,
)
from server.controllers.settings import workload_settings
from server.settings import Settings
from tests.unit.manifests.test_node_agent import pod_of, settings, understood


def pod(**given: Any) -> dict[str, Any]:
    return pod_of(build_node_detector(workload_settings(Settings(**given))))


def test_command_understands_its_arguments():
    parsed = understood(pod_of(build_node_detector(settings(namespace="gpus"))))
    assert (parsed.roles, parsed.namespace) == (frozenset({AgentRole.DETECT}), "gpus")


def test_pod_has_no_privilege_and_nothing_of_the_node():
    spec = pod()
    (container,) = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        "runAsGroup": 65532,
        "runAsNonRoot": True,
        "runAsUser": 65532,
    }
    assert not {"hostPID", "hostNetwork", "hostIPC", "volumes"} & spec.keys()
    assert not {"volumeMounts", "ports", "livenessProbe"} & container.keys()


def test_pod_runs_on_every_linux_node_but_those_labelled_false():
    spec = pod()
    assert spec["nodeSelector"] == {"kubernetes.io/os": "linux"}
    assert spec["tolerations"] == [{"operator": "Exists"}]
    affinity = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert affinity["nodeSelectorTerms"] == [
        {"matchExpressions": [{"key": PRESENT_LABEL, "operator": "NotIn", "values": ["false"]}]}
    ]


def test_settings_place_the_pods():
    spec = pod(
        node_detector={
            "node_selector": {"pool": "gpu"},
            "node_affinity": [{"key": "zone", "operator": "Exists"}],
        },
        node_agent={"image": "registry.example.com/agent:1", "priority_class": ""},
    )
    assert spec["containers"][0]["image"] == "registry.example.com/agent:1"
    assert spec["nodeSelector"] == {"pool": "gpu"}
    affinity = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (term,) = affinity["nodeSelectorTerms"]
    assert term["matchExpressions"][1] == {"key": "zone", "operator": "Exists"}
    assert "priorityClassName" not in spec


@pytest.mark.parametrize(
    "off",
    [
        pytest.param({"detector": NodeDetectorSettings(is_enabled=False)}, id="the detector"),
        pytest.param({"agent": NodeAgentSettings(is_enabled=False)}, id="the node agent"),
    ],
)
def test_nothing_is_made_where_it_is_off(off: dict[str, Any]):
    given = WorkloadSettings(image="i", mode=PluginMode.NONE, **off)
    assert build_node_detector(given) == []
