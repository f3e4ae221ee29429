"""ClusterPolicy and NVIDIADriver: our definitions, those that NVIDIA publishes, and objects of the latter's schema."""

import functools
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from api.kinds.nvidia.clusterpolicy import ClusterPolicy
from api.kinds.nvidia.nvidiadriver import NVIDIADriver
from api.meta import Model
from manifests.nvidia.operator_crds import build_operator_crds
from tests.support.nvidia.stricter_rules import OWNER
from tests.support.published_crds import published_crd, published_sample
from tests.support.seeded_objects import SeededObjects

Json = dict[str, Any]

MODELS: dict[str, type[Model]] = {"ClusterPolicy": ClusterPolicy, "NVIDIADriver": NVIDIADriver}
OURS: dict[str, Json] = {crd["spec"]["names"]["kind"]: crd for crd in build_operator_crds()}

CHOICES: Mapping[str, Sequence[Any]] = {
    "repository": ("", "", "", "registry.example.com/nvidia"),
    "image": ("driver", "registry.example.com/nvidia/driver:1"),
    "version": ("", "", "", "2.17.4", "2.17.5", "v2.20.0-rc.1", "10.1", "sha256:00"),
    "interval": ("", "0", "30s", "1h30m"),
    "scrapeTimeout": ("", "10s", "1y2w"),
    "limits[]": (1, "100m", "2Gi", "1e3", "-.5"),
    "requests[]": (0, "1", "+1.5Ki"),
    "nodeSelector": ({}, {"zone": "a"}, {OWNER: "gpus"}),
    "reason": ("Reconciled", "OperandNotReady"),
    "type": ("Ready", "Error", "example.com/Other"),
    "lastTransitionTime": ("2026-11-23T00:00:00Z", "2026-11-23T00:00:00.5+01:00"),
    "message": ("", "a state is not ready"),
    "upgradePolicy.maxUnavailable": (0, 1, 5, "25%", "0%", "100%", -1, "101%", "5", "many"),
    "rollingUpdate.maxUnavailable": ("", "1", "007", "20%", "0", "0%", "101%", "-1", "many"),
}
"""Of fields with a pattern, and of those that our rules judge."""


@functools.cache
def published(kind: str) -> Json:
    return published_crd(OURS[kind]["metadata"]["name"])


def schema_of(crd: Json) -> Json:
    found: Json = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


def api_version(crd: Json) -> str:
    return f"{crd['spec']['group']}/{crd['spec']['versions'][0]['name']}"


def sample(kind: str) -> Json:
    return published_sample(OURS[kind]["metadata"]["name"])


def published_objects(kind: str, *, seed: int, count: int) -> Iterator[Json]:
    """Yield objects that the published schema accepts; most keep our rules as well."""
    rng = random.Random(f"{kind} {seed}")
    schema = schema_of(published(kind))
    head = {"apiVersion": api_version(published(kind)), "kind": kind}
    objects = SeededObjects(rng=rng, choices=CHOICES, likelihood=0.35)
    for number in range(count):
        body: Json = {**head, "metadata": {"name": f"seeded-{number}"}}
        parts = [part for part in ("spec", "status") if rng.random() < 0.95]
        body |= {part: objects.value(schema["properties"][part]) for part in parts}
        if rng.random() < 0.9:
            _complete_images(body)
        spec = body.get("spec", {})
        if spec.get("default") and spec.get("nodeSelector"):  # upstream's own rule
            del spec["nodeSelector"]
        yield body


def _complete_images(value: Any) -> None:
    if isinstance(value, list):
        for item in value:
            _complete_images(item)
    elif isinstance(value, dict):
        if value.get("repository") or value.get("version"):
            whole = {"repository": "registry.example.com", "image": "driver", "version": "1.0.0"}
            value.update({key: value.get(key) or text for key, text in whole.items()})
        for item in value.values():
            _complete_images(item)
