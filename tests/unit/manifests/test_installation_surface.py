"""A default installation may, runs and mounts no more than one of version 9ebf5422, but for what has a reason."""

import json
import re
from pathlib import Path

from tests.support.installation_surface import default_installation, surface

BEFORE = Path(__file__).parents[2] / "data/released/0.1.0-9ebf5422/installation-surface.json"
_OPERANDS = "(nvidia-gpu-feature-discovery|nvidia-dcgm(-exporter)?)"
ACCEPTED = {
    rf"ServiceAccount gpu-control-plane in (gpu|all namespaces) may (delete|patch) [\w.]+/{_OPERANDS}": (
        "operands have the names of NVIDIA's objects; those of the former names are only deleted"
    ),
    r"ServiceAccount gpu-control-plane in all namespaces may get"
    r" (persistentvolumeclaims\.|persistentvolumes\.|storageclasses\.storage\.k8s\.io)/\*": (
        "the zones of a waiting pod's volumes decide which node is asked for"
    ),
    r"ServiceAccount gpu-control-plane in all namespaces may list daemonsets\.apps/\*": (
        "a pool that scales names node software that its nodes' taints keep away"
    ),
    r"ClusterRole gpu-control-plane-edit may (get|list|watch) gpucontrolplaneconfigs\.gpu\.deckhouse\.io/\*": (
        "admins of the cluster read the settings"
    ),
    r"ServiceAccount gpu-control-plane in all namespaces may \w+ gpucontrolplaneconfigs(/status)?\.gpu\.deckhouse\.io/\S+": (
        "settings are an object, which the server makes, follows and reports on"
    ),
    r"ServiceAccount gpu-control-plane in all namespaces may (get|list|watch) moduleconfigs\.deckhouse\.io/gpu-control-plane": (
        "settings may be those of a ModuleConfig of the control plane's name"
    ),
    r"ServiceAccount gpu-control-plane in gpu may get deployments\.apps/gpu-control-plane": (
        "in a roll-out only pods of the Deployment's present values write these into the settings"
    ),
}
"""Pattern of what grew -> why."""


def test_a_default_installation_has_grown_by_nothing_without_a_reason():
    before, after = set(json.loads(BEFORE.read_text())), surface(default_installation())
    grown = after - before
    reasons = {line: [key for key in ACCEPTED if re.fullmatch(key, line)] for line in grown}
    assert sorted(line for line, keys in reasons.items() if not keys) == []
    assert {key for keys in reasons.values() for key in keys} == ACCEPTED.keys(), "left over"


def test_every_kind_of_growth_is_a_line():
    rule = {"apiGroups": ["apps"], "resources": ["daemonsets"], "verbs": ["get"]}
    role = {"kind": "Role", "metadata": {"name": "r"}}
    binding = {
        "kind": "RoleBinding",
        "metadata": {"name": "b", "namespace": "n"},
        "roleRef": {"kind": "Role", "name": "r"},
        "subjects": [{"kind": "ServiceAccount", "name": "s"}],
    }
    security = {"privileged": True, "capabilities": {"add": ["SYS_ADMIN"]}}
    pod = {
        "hostNetwork": True,
        "volumes": [{"hostPath": {"path": "/"}}],
        "initContainers": [{"name": "i", "image": "i.example.com/i:1"}],
        "containers": [
            {"name": "c", "image": "c.example.com:5000/c@sha256:0", "securityContext": security}
        ],
    }
    job = {
        "kind": "CronJob",
        "metadata": {"name": "j"},
        "spec": {"jobTemplate": {"spec": {"template": {"spec": pod}}}},
    }
    assert surface(
        [{**role, "rules": [rule, {"nonResourceURLs": ["/x"], "verbs": ["get"]}]}, binding, job]
    ) == {
        "ServiceAccount s in n may get daemonsets.apps/*",
        "ServiceAccount s in n may get /x",
        "CronJob j has hostNetwork",
        "CronJob j mounts / of the node",
        "image i.example.com/i",
        "image c.example.com:5000/c",
        "CronJob j, container c, is privileged",
        "CronJob j, container c, has capability SYS_ADMIN",
    }
    assert surface([binding]) == {"ServiceAccount s in n has Role r"}
