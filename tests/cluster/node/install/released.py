"""This project as it was at 9ebf5422: its chart, its image, and every value of that chart.

The archive has what a server, an agent and a plugin of it need, and was made by

    git archive 9ebf5422 charts/gpu-control-plane admission agent api autoscaling certs cli console inventory \
        kernelcache kube kubectl_gpu manifests oci operands pool reconciler scheduler server telemetry \
        ':!console/web' ':!console/edge/static' ':!*.proto' ':!*.pyi' | xz -9e
"""

import compileall
import copy
import json
import py_compile
import tarfile
from pathlib import Path
from typing import Any, Final

from image import layout

from server.retired_settings import RETIRED
from tests.cluster.environment import binaries
from tests.cluster.node.environment import nvidia_image

TAG: Final = "9ebf5422"
IMAGE: Final = f"localhost/gpu-control-plane:{TAG}"
_ARCHIVE: Final = binaries.ROOT / "tests" / "data" / "released" / f"0.1.0-{TAG}" / "sources.tar.xz"
_AT: Final = "opt/released"

_CHANGED: Final[dict[str, Any]] = {
    "image": {"tag": TAG, "pullPolicy": "Never"},
    "server": {"replicas": 1, "podAnnotations": {"example.com/note": "yes"}},
    "scheduler": {"replicas": 1, "podAnnotations": {"example.com/note": "yes"}},
    "networkPolicy": {"enabled": True},
    "monitoring": {"dashboards": {"enabled": True, "labels": {"dashboards": "yes"}}},
    "console": {"plainHttp": True, "hosts": ["gpu.example.com"]},
    "poolViewers": ["system:authenticated", "team:ml"],
    "settings": {
        "log_level": "debug",
        "log_format": "JSON",
        "bootstrap": {
            "namespaces": ["operands"],
            "period_s": 0.5,
            "validator": {"image_pull_policy": "Never"},
            **{
                operand: {
                    "enabled": True,
                    "image": {
                        "repository": "localhost",
                        "image": "nvidia-programs",
                        "version": "1",
                    },
                    "image_pull_policy": "Never",
                    "image_pull_secrets": ["registry"],
                    "resources": {"limits": {"memory": "512Mi"}},
                }
                for operand in ("gfd", "dcgm", "dcgm_exporter")
            },
        },
        "health": {"period_s": 0.5, "ignored_xids": [13, 31]},
        "device_plugin": {"image_pull_policy": "Never", "image_pull_secrets": ["registry"]},
        "node_agent": {"image_pull_policy": "Never", "image_pull_secrets": ["registry"]},
        "node_detector": {
            "image": IMAGE,
            "image_pull_policy": "Never",
            "image_pull_secrets": ["registry"],
        },
    },
}
"""Beside the numbers: counts are one more than by default, and times half as long again."""
_NOT_SET: Final = {
    "global",
    "settings.device_plugin.cdi_kind",
    "settings.device_plugin.image",
    "settings.namespace",
    "settings.node_agent.image",
    "settings.webhooks.client_names",
}
"""Of this cluster alone, or worked out by the chart."""


def unpack(directory: Path) -> Path:
    """Unpack it into an empty directory, with bytecode as in an image; return the chart."""
    with tarfile.open(_ARCHIVE) as archive:
        archive.extractall(directory, filter="data")
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    assert compileall.compile_dir(directory, quiet=1, invalidation_mode=mode)
    return directory / "charts" / "gpu-control-plane"


def write_image(tar: Path, ours: Path, unpacked: Path) -> None:
    """Write its image: Debian and the libraries of today's, and its own packages before ours."""
    base = nvidia_image.blobs(ours)
    config = json.loads(base.pop("config").content)
    added = layout.build_layer([layout.Tree(unpacked, at=_AT)])
    run = config["config"] | {"Env": [*config["config"]["Env"], f"PYTHONPATH=/{_AT}"]}
    layers = base | {f"packages of {TAG}": added}
    image = layout.build_image(layers, architecture=config["architecture"], run=run, labels={})
    layout.write_layout(tar, [image], name=IMAGE)


def every_value(chart: Path) -> dict[str, Any]:
    """Return values for its chart with every setting set, most of them unlike their defaults."""
    schema = json.loads((chart / "values.schema.json").read_text(encoding="utf-8"))
    made = _values_of(schema, schema["$defs"], "")
    _put_over(made, _CHANGED)
    bootstrap = made["settings"]["bootstrap"]
    bootstrap["dcgm_exporter"]["source"] = "DCGM"
    # The double of the program reads no GFD_USE_NODE_FEATURE_API.
    bootstrap["gfd"]["env"] = {"USE_NODE_FEATURE_API": "true"}
    found: dict[str, Any] = made
    return found


def retired_names(values: dict[str, Any]) -> list[str]:
    """Return the settings among the values that are none any more."""
    return [name for name in RETIRED if _section_of(values, name) is not None]


def without_retired(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values as they are once each advice of the refusal is followed."""
    made = copy.deepcopy(values)
    for name in RETIRED:
        section = _section_of(made, name)
        if section is not None:
            del section[name.rpartition(".")[2]]
    bootstrap = made["settings"]["bootstrap"]
    for operand in ("gfd", "dcgm", "dcgm_exporter"):
        bootstrap[operand]["image"] = nvidia_image.NAME
    # Of files: there was a NodeFeature.
    del bootstrap["gfd"]["features_dir"]
    del made["image"]["tag"]
    return made


def _section_of(values: dict[str, Any], name: str) -> dict[str, Any] | None:
    """Return the section with the setting of this name, where it is set."""
    *sections, last = name.split(".")
    found: Any = values["settings"]
    for section in sections:
        found = found.get(section) if isinstance(found, dict) else None
    return found if isinstance(found, dict) and last in found else None


def _values_of(schema: dict[str, Any], definitions: dict[str, Any], path: str) -> Any:
    """Return a value for each leaf of a schema that has a default or a first choice."""
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rpartition("/")[2]] | schema
    if "properties" in schema:
        below = {
            name: _values_of(inner, definitions, f"{path}.{name}".lstrip("."))
            for name, inner in schema["properties"].items()
        }
        return {name: value for name, value in below.items() if value is not None}
    if path in _NOT_SET:
        return None
    match schema.get("default", schema.get("enum", [None])[0]):
        case int() as count if not isinstance(count, bool):
            return count + 1
        case float() as seconds:
            return seconds * 1.5
        case default:
            return default


def _put_over(values: dict[str, Any], changes: dict[str, Any]) -> None:
    for name, change in changes.items():
        if isinstance(change, dict) and isinstance(values.get(name), dict):
            _put_over(values[name], change)
        else:
            values[name] = copy.deepcopy(change)
