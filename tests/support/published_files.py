"""Judges files that other people have published by the schema of their kind's project, and by ours.

tests/data/published-files.tsv lists each with its source and what both say; the files themselves are not here. To judge
them again:

    git clone https://github.com/NVIDIA/gpu-operator CHECKOUTS/gpu-operator   # and so on, each of the table
    .venv/bin/python -m tests.support.published_files CHECKOUTS
"""

import copy
import csv
import functools
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from api.foreign.core import Taint
from api.foreign.karpenter import NodePool
from api.names import AGENT_NOT_READY_TAINT, SCALE_REQUEST_LABEL
from autoscaling.node_pool_checks import node_pool_fault
from cli.operands.policy_files import without_nulls
from manifests.caches.crds import build_cache_crds
from manifests.nvidia.operator_crds import build_operator_crds
from reconciler.sinks.karpenter import observe_node_pool
from simulator.apiserver.schema.cel_rules import NOT_CHECKED
from simulator.apiserver.schema.structural import StructuralSchema
from tests.support.published_crds import published_crd
from tests.support.published_facts import FOLDER
from tests.support.scaling_plans import some_parameters

Json = dict[str, Any]

TABLE: Final = FOLDER.with_name("published-files.tsv")
ACCEPTED: Final = "accepted"
NODE_POOL_SCHEMA: Final = ("karpenter", "HEAD", "pkg/apis/crds/karpenter.sh_nodepools.yaml")
OURS: Final = {
    crd["spec"]["names"]["kind"]: crd for crd in (*build_operator_crds(), *build_cache_crds())
}
WARNED: Final = ("consolidationPolicy", "consolidateAfter", "expireAfter")


@dataclass(frozen=True)
class PublishedFile:
    repository: str
    commit: str
    """Or a tag."""
    path: str
    kind: str
    result: str
    """Of their schema and of ours."""
    remark: str
    """Of a NodePool: the parts to add, each of which the condition NodePoolValid names, and what it warns of."""


def published_files() -> list[PublishedFile]:
    with TABLE.open(encoding="utf-8") as file:
        return [PublishedFile(*row) for row in csv.reader(file, delimiter="\t")]


@functools.cache
def schemas_of(kind: str) -> tuple[StructuralSchema, StructuralSchema]:
    """Return the schema that others publish for a kind, and ours."""
    ours = OURS[kind]
    return structural(published_crd(ours["metadata"]["name"])), structural(ours)


def structural(crd: Json) -> StructuralSchema:
    return StructuralSchema(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"])


def result(body: Json, schema: StructuralSchema) -> str:
    """Return the unknown fields, and those that are missing or have a value that the schema refuses."""
    judged = copy.deepcopy(body)
    unknown = [f"unknown {path}" for path in schema.prune(judged)]
    schema.default(judged)
    refused = [
        f"{fault.reason.removeprefix('FieldValue').lower()} {fault.field}"
        for fault in schema.validate(judged, None)
        # Functions of CEL that Karpenter's rules on labels call are not known here.
        if fault != NOT_CHECKED and "compilation failed" not in fault.message
    ]
    return "; ".join((*unknown, *refused)) or ACCEPTED


def results(body: Json) -> set[str]:
    """Return what both schemas say: one text where they agree."""
    return {result(body, schema) for schema in schemas_of(body["kind"])}


def remark_on(body: Json, schema: StructuralSchema) -> str:
    """Carry out the cures of the condition NodePoolValid one by one, and return them with its warnings."""
    body = copy.deepcopy(body)
    schema.default(body)
    spec = body["spec"]["template"]["spec"]
    done: list[str] = []
    while True:
        facts = observe_node_pool(msgspec.convert(body, NodePool))
        taints = tuple(Taint(item.key, item.value, item.effect) for item in facts.taints)
        parameters = some_parameters(taints=taints)
        fault, warning = node_pool_fault(parameters, facts.name, facts)
        if f"no requirement {SCALE_REQUEST_LABEL}" in fault:
            spec["requirements"].append({"key": SCALE_REQUEST_LABEL, "operator": "Exists"})
            done.append("add the requirement")
        elif f"no startup taint {AGENT_NOT_READY_TAINT}" in fault:
            taint = {"key": AGENT_NOT_READY_TAINT, "effect": "NoSchedule"}
            spec.setdefault("startupTaints", []).append(taint)
            done.append("add the startup taint")
        elif "create it without replicas" in fault:
            del body["spec"]["replicas"]
            done.append("create it without replicas")
        else:
            assert not fault, fault
            warned = [field for field in WARNED if f"has {field} " in warning]
            return ", ".join(done) + (f"; warns of {', '.join(warned)}" if warned else "")


def judge(file: PublishedFile, checkouts: Path) -> PublishedFile:
    """Return the row as the file is judged now."""
    (body,) = read(checkouts, file.repository.rpartition("/")[2], file.commit, file.path, file.kind)
    if file.kind == "NodePool":
        (crd,) = read(checkouts, *NODE_POOL_SCHEMA, "CustomResourceDefinition")
        schema = structural(crd)
        found, remark = {result(body, schema)}, remark_on(body, schema)
    else:
        found, remark = results(body), ""
    return PublishedFile(
        file.repository, file.commit, file.path, file.kind, " | ".join(sorted(found)), remark
    )


def read(checkouts: Path, repository: str, commit: str, path: str, kind: str) -> Iterator[Json]:
    command = ["git", "-C", str(checkouts / repository), "show", f"{commit}:{path}"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    for document in yaml.safe_load_all(text):
        if document and document["kind"] == kind:
            yield {key: value for key, value in without_nulls(document).items() if key != "status"}


if __name__ == "__main__":
    rows = [judge(file, Path(sys.argv[1])) for file in published_files()]
    with TABLE.open("w", encoding="utf-8") as output:
        writer = csv.writer(output, delimiter="\t", lineterminator="\n")
        writer.writerows(
            (row.repository, row.commit, row.path, row.kind, row.result, row.remark) for row in rows
        )
