"""Objects of one state of a ClusterPolicy for the tests: approved texts, and what one field of the spec changes in them."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from api.kinds.nvidia.clusterpolicy import ClusterPolicySpec
from manifests.yaml import render
from operands.nvidia.node_software import HostSoftware
from operands.nvidia.policy_operands import PolicyOperands
from operands.operand_state import ALL_KINDS_SERVED, OperandState

Json = dict[str, Any]
State = OperandState[PolicyOperands]

GOLDEN = Path(__file__).parent / "golden"
CONTAINERD, CRI_O, DOCKER = (
    HostSoftware(os_tag="ubuntu24.04", kernel="6.8.0-60-generic", runtime=runtime)
    for runtime in ("containerd", "cri-o", "docker")
)
IMAGES = {
    f"{name}_IMAGE": f"registry.example.com/{name.lower()}:1"
    for name in (
        "CONTAINER_TOOLKIT", "DCGM", "DCGM_EXPORTER", "DEVICE_PLUGIN", "GFD", "MIG_MANAGER", "VALIDATOR",
    )
}  # fmt: skip
VALIDATOR: Json = {
    "image": "registry.example.com/own-validator:2",
    "imagePullPolicy": "Never",
    "imagePullSecrets": ["of-validator"],
    "resources": {"limits": {"memory": "64Mi"}},
    "driver": {"env": [{"name": "DISABLE_DEV_CHAR_SYMLINK_CREATION", "value": "true"}]},
    "toolkit": {"env": [{"name": "STEP", "value": "toolkit"}]},
}
BLOCK: Json = {
    "repository": "registry.example.com/own",
    "image": "operand",
    "version": "2",
    "imagePullPolicy": "Always",
    "imagePullSecrets": ["registry"],
    "env": [{"name": "LEVEL", "value": "debug"}, {"name": "EMPTY"}],
    "args": ["--verbose"],
    "resources": {"limits": {"memory": "1Gi"}, "requests": {"cpu": "100m"}},
    "hostNetwork": True,
    "enabled": True,
}
"""What any operand's block may say."""
FULL: Json = {
    "validator": VALIDATOR,
    "operator": {"runtimeClass": "gpus"},
    "daemonsets": {
        "labels": {"team": "gpu"},
        "annotations": {"example.com/a": "b"},
        "tolerations": [{"operator": "Exists"}],
        "priorityClassName": "gpus",
        "rollingUpdate": {"maxUnavailable": "10%"},
    },
    "hostPaths": {
        "rootFS": "/node",
        "driverInstallDir": "/opt/driver",
        "kubeletRootDir": "/data/kubelet",
    },
}
"""What concerns every operand."""


def settings_of(
    spec: Mapping[str, Any], software: tuple[HostSoftware, ...] = (CONTAINERD,)
) -> PolicyOperands:
    """A ClusterPolicy, its spec in JSON."""
    return PolicyOperands(
        name="gpus",
        spec=msgspec.convert(spec, ClusterPolicySpec),
        namespace="gpu",
        environment=IMAGES,
        software=software,
    )


def objects_of(
    state: State, spec: Mapping[str, Any], software: tuple[HostSoftware, ...] = (CONTAINERD,)
) -> list[Json]:
    return state.objects(settings_of(spec, software), ALL_KINDS_SERVED)


def check_golden(
    state: State,
    case: str,
    spec: Mapping[str, Any],
    software: tuple[HostSoftware, ...] = (CONTAINERD,),
) -> None:
    """Compare the objects with those that were read and approved."""
    text = render(objects_of(state, spec, software))
    file = GOLDEN / state.name / f"{case}.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8"), "run `make golden` and read the difference"


def changes(
    state: State,
    after: Mapping[str, Any],
    before: Mapping[str, Any] | None = None,
    software: tuple[HostSoftware, ...] = (CONTAINERD,),
) -> Json:
    """Return each field that differs by its path, with its new value; None: the field is gone.

    Paths begin with `Kind/name:`, those of the only DaemonSet's pods with `pod.`; entries of lists have the place
    of their name, or of their number.
    """
    old, new = (dict(_leaves(objects_of(state, spec, software))) for spec in (before or {}, after))
    return {
        path: new.get(path)
        for path in sorted(old.keys() | new.keys())
        if old.get(path) != new.get(path)
    }


def _leaves(objects: list[Json]) -> Iterator[tuple[str, Any]]:
    for object_ in objects:
        for path, value in _fields(object_):
            name = f"{object_['kind']}/{object_['metadata']['name']}:{path}"
            if object_["kind"] == "DaemonSet":
                _, separator, tail = name.partition(":spec.template.")
                name = f"pod.{tail.removeprefix('spec.')}" if separator else name
            yield name, value


def _fields(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _fields(item, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and value:
        for number, item in enumerate(value):
            place = item.get("name", number) if isinstance(item, dict) else number
            yield from _fields(item, f"{path}[{place}]")
    else:
        yield path, value


def env_of(objects: list[Json], container: str) -> dict[str, str]:
    """Return the variables of a container of the only DaemonSet; those of a field of the pod are left out."""
    (found,) = (
        item
        for daemon_set in objects
        if daemon_set["kind"] == "DaemonSet"
        for item in daemon_set["spec"]["template"]["spec"]["containers"]
        if item["name"] == container
    )
    return {item["name"]: item.get("value", "") for item in found["env"] if "valueFrom" not in item}


def kinds_of(objects: list[Json]) -> list[tuple[str, str]]:
    return [(object_["kind"], object_["metadata"]["name"]) for object_ in objects]
