"""Derives, from the definitions that other projects publish, the facts that our tests compare with.

A file of tests/data/published has the names of a kind and a line for each field: its type, and what else its schema
says of values. Texts for people are left out. To make the files again, or of newer commits after editing `SOURCES`:

    git clone https://github.com/NVIDIA/gpu-operator CHECKOUTS/gpu-operator   # and so on, each of SOURCES
    .venv/bin/python -m tests.support.published_facts CHECKOUTS
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

Json = dict[str, Any]

FOLDER: Final = Path(__file__).parents[1] / "data" / "published"
_STEP = re.compile(r"\.[^.\[{]+|\[\]|\{\}")
_NESTED = {"properties": "", "items": "[]", "additionalProperties": "{}"}
_IN_NAMES = ("kind", "listKind", "plural", "singular", "shortNames", "categories")


@dataclass(frozen=True, kw_only=True)
class Source:
    """A repository at a commit, with the definitions that are read there."""

    repository: str
    commit: str
    version: str
    """What people call the commit."""
    files: Mapping[str, str]
    """Name of a definition -> file in the repository."""
    samples: Mapping[str, str] = field(default_factory=dict)
    """Name of a definition -> file of the object that the project documents."""

    def read(self, checkouts: Path, file: str) -> list[Json]:
        checkout = checkouts / self.repository.rpartition("/")[2]
        command = ["git", "-C", str(checkout), "show", f"{self.commit}:{file}"]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        return [document for document in yaml.safe_load_all(text) if document]


_BASES = "config/crd/bases"
_NFD_KINDS = "deployment/base/nfd-crds/nfd-api-crds.yaml"
SOURCES: Final = (
    Source(
        repository="https://github.com/NVIDIA/gpu-operator",
        commit="a22dbf671f2e26f9a1e342f8eea28e196235e110",
        version="main of 2026-08-21, after v26.7.0",
        files={
            "clusterpolicies.nvidia.com": f"{_BASES}/nvidia.com_clusterpolicies.yaml",
            "nvidiadrivers.nvidia.com": f"{_BASES}/nvidia.com_nvidiadrivers.yaml",
        },
        samples={
            "clusterpolicies.nvidia.com": "config/samples/v1_clusterpolicy.yaml",
            "nvidiadrivers.nvidia.com": "config/samples/nvidia_v1alpha1_nvidiadriver.yaml",
        },
    ),
    Source(
        repository="https://github.com/redhat-et/GKM",
        commit="f0e65de484f45cae1c05577b3b2d7880cd515fe8",
        version="main of 2026-08-20",
        files={
            f"{plural}.gkm.io": f"{_BASES}/gkm.io_{plural}.yaml"
            for plural in ("gkmcaches", "clustergkmcaches", "gkmcachenodes", "clustergkmcachenodes")
        },
        samples={
            f"{kind}s.gkm.io": f"config/samples/v1alpha1_{kind}.yaml"
            for kind in ("gkmcache", "clustergkmcache")
        },
    ),
    Source(
        repository="https://github.com/prometheus-operator/prometheus-operator",
        commit="6adcebc5076c34f4f55f8f5f7b1e528929373ac7",
        version="0.93.0",
        files={
            "servicemonitors.monitoring.coreos.com": (
                "example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml"
            )
        },
    ),
    Source(
        repository="https://github.com/kubernetes-sigs/node-feature-discovery",
        commit="76e6cc8cc0d54b8bce037098b72611ffdf66ef5a",
        version="master of 2026-07-30",
        files={
            "nodefeaturerules.nfd.k8s-sigs.io": _NFD_KINDS,
            "nodefeatures.nfd.k8s-sigs.io": _NFD_KINDS,
        },
    ),
)


def facts_of(definition: Json) -> Json:
    """Return the facts of a definition with one version."""
    spec = definition["spec"]
    [version] = spec["versions"]
    return {
        "group": spec["group"],
        "scope": spec["scope"],
        "names": {key: spec["names"][key] for key in _IN_NAMES if key in spec["names"]},
        "version": version["name"],
        "subresources": version.get("subresources", {}),
        "columns": [
            {key: value for key, value in column.items() if key != "description"}
            for column in version.get("additionalPrinterColumns", ())
        ],
        "fields": dict(sorted(_fields(version["schema"]["openAPIV3Schema"], ""))),
    }


def definition_of(facts: Json) -> Json:
    """Return the definition with these facts, as an API server takes it."""
    names = facts["names"]
    schema: Json = {}
    for path, fact in facts["fields"].items():
        _place(schema, path).update({"type": fact} if isinstance(fact, str) else fact)
    version = {
        "name": facts["version"],
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": facts["subresources"],
        "additionalPrinterColumns": facts["columns"],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names['plural']}.{facts['group']}"},
        "spec": {
            "group": facts["group"],
            "names": names,
            "scope": facts["scope"],
            "versions": [version],
        },
    }


def _fields(schema: Json, path: str) -> Iterator[tuple[str, Any]]:
    fact = {
        key: value for key, value in schema.items() if key != "description" and key not in _NESTED
    }
    yield path, fact["type"] if fact.keys() == {"type"} else fact
    for name, inner in schema.get("properties", {}).items():
        yield from _fields(inner, f"{path}.{name}")
    for keyword in ("items", "additionalProperties"):
        if keyword in schema:
            yield from _fields(schema[keyword], path + _NESTED[keyword])


def _place(schema: Json, path: str) -> Json:
    for step in _STEP.findall(path):
        if step == "[]":
            schema = schema.setdefault("items", {})
        elif step == "{}":
            schema = schema.setdefault("additionalProperties", {})
        else:
            schema = schema.setdefault("properties", {}).setdefault(step[1:], {})
    return schema


def values_of(sample: Json) -> Json:
    """Return the name and each value of the spec of an object, by path."""
    name = {".metadata.name": sample["metadata"]["name"]}
    return name | dict(_values(sample["spec"], ".spec"))


def sample_of(facts: Json) -> Json:
    """Return the object whose values are among the facts of its kind."""
    body: Json = {
        "apiVersion": f"{facts['group']}/{facts['version']}",
        "kind": facts["names"]["kind"],
    }
    for path, given in facts["sample"].items():
        *way, last = path[1:].split(".")
        holder = body
        for step in way:
            holder = holder.setdefault(step, {})
        holder[last] = given
    return body


def _values(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _values(inner, f"{path}.{key}")
    else:
        yield path, value


def _text(facts: Json) -> str:
    """Return JSON with a line for each field, so that a difference between two versions reads well."""
    parts = []
    for key, value in facts.items():
        text = json.dumps(value)
        if key in {"fields", "sample"}:
            lines = (f"  {json.dumps(path)}: {json.dumps(fact)}" for path, fact in value.items())
            text = "{\n" + ",\n".join(lines) + "\n }"
        parts.append(f" {json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def write(checkouts: Path, folder: Path) -> None:
    """Write a file for each definition of `SOURCES`, from checkouts named as their repositories."""
    for source in SOURCES:
        for name, file in source.files.items():
            documents = source.read(checkouts, file)
            [definition] = [
                document for document in documents if document["metadata"]["name"] == name
            ]
            facts: Json = {
                "source": f"{source.repository}/blob/{source.commit}/{file}",
                "source version": source.version,
            }
            facts |= facts_of(definition)
            if name in source.samples:
                [sample] = source.read(checkouts, source.samples[name])
                facts["sample"] = values_of(sample)
            (folder / f"{name}.json").write_text(_text(facts), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]), FOLDER)
