"""What a default installation may do, runs and has on its nodes: rights of its accounts, images, and privileges of its pods.

Written with what version 9ebf5422 has too, so that it runs there:

    git worktree add ../before 9ebf5422 && cp tests/support/installation_surface.py ../before/tests/support
    cd ../before && python -m tests.support.installation_surface > installation-surface.json
"""

import contextlib
import io
import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import yaml

from cli.installed_objects import build_installed_objects
from cli.main import run
from manifests.install.values import ChartValues
from manifests.node.agent_daemonset import build_node_agent
from manifests.node.detector_daemonset import build_node_detector
from server.controllers.settings import workload_settings
from server.settings import load_settings
from server.values_file import build_installation
from tests.support.installed_settings import installed_settings
from tests.unit.manifests import pool_objects

Json = dict[str, Any]

NAMESPACE: Final = "gpu"
_TAG: Final = re.compile(r":[^/]*$")
_IMAGE: Final = {"registry": "registry.example.com", "repository": "gpu-control-plane", "tag": "1"}


def default_installation() -> list[Json]:
    """Return all objects of the chart with its defaults, and those that the server makes of them, with a pool."""
    values = ChartValues.model_validate({"image": _IMAGE})
    objects = build_installed_objects(build_installation(values, namespace=NAMESPACE))
    with TemporaryDirectory() as directory, contextlib.redirect_stdout(io.StringIO()) as printed:
        path = Path(directory, "settings.yaml")
        path.write_text(yaml.safe_dump(installed_settings(objects)))
        settings = workload_settings(load_settings([], path))
        run(["render", "operands", "--settings", str(path)])
    return [
        *objects,
        *yaml.safe_load_all(printed.getvalue()),
        *build_node_agent(settings),
        *build_node_detector(settings),
        *pool_objects.objects_of(pool_objects.a_pool(), settings=settings),
    ]


def surface(objects: Iterable[Json]) -> set[str]:
    """Return a line for each right, image and privilege."""
    listed = [item for item in objects if item is not None]
    return {*_rights(listed), *_privileges(listed)}


def _rights(objects: list[Json]) -> Iterator[str]:
    """Yield `account may verb resource.group/name`; a role that is bound to no account stands for itself."""
    accounts: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for binding in objects:
        if binding["kind"] in {"RoleBinding", "ClusterRoleBinding"}:
            role = binding["roleRef"]
            where = f" in {binding['metadata'].get('namespace', 'all namespaces')}"
            names = [f"{item['kind']} {item['name']}{where}" for item in binding["subjects"]]
            accounts[role["kind"], role["name"]] += names
    bound = dict(accounts)
    for item in objects:
        if item["kind"] in {"Role", "ClusterRole"}:
            key = item["kind"], item["metadata"]["name"]
            for account in bound.pop(key, [" ".join(key)]):
                for rule in item.get("rules") or ():
                    yield from (f"{account} may {right}" for right in _of_rule(rule))
    for role, names in bound.items():
        yield from (f"{account} has {' '.join(role)}" for account in names)


def _of_rule(rule: Json) -> Iterator[str]:
    for verb in rule["verbs"]:
        yield from (f"{verb} {path}" for path in rule.get("nonResourceURLs", ()))
        for group in rule.get("apiGroups", ()):
            for resource in rule["resources"]:
                for name in rule.get("resourceNames", ("*",)):
                    yield f"{verb} {resource}.{group}/{name}"


def _privileges(objects: list[Json]) -> Iterator[str]:
    for item in objects:
        pod, name = _pod_of(item), f"{item['kind']} {item['metadata']['name']}"
        if pod is None:
            continue
        yield from (
            f"{name} has {field}"
            for field in ("hostNetwork", "hostPID", "hostIPC")
            if pod.get(field)
        )
        yield from (
            f"{name} mounts {volume['hostPath']['path']} of the node"
            for volume in pod.get("volumes") or ()
            if "hostPath" in volume
        )
        for container in (*(pod.get("initContainers") or ()), *pod["containers"]):
            yield f"image {_TAG.sub('', container['image'].partition('@')[0])}"
            context = container.get("securityContext") or {}
            owner = f"{name}, container {container['name']},"
            if context.get("privileged"):
                yield f"{owner} is privileged"
            for capability in (context.get("capabilities") or {}).get("add") or ():
                yield f"{owner} has capability {capability}"


def _pod_of(item: Json) -> Json | None:
    """Return the spec of the pods that an object makes, or is."""
    spec: Json = item.get("spec") or {}
    while (inner := spec.get("jobTemplate") or spec.get("template")) is not None:
        spec = inner["spec"]
    return spec if "containers" in spec else None


if __name__ == "__main__":
    json.dump(sorted(surface(default_installation())), sys.stdout, indent=1)
    print()
