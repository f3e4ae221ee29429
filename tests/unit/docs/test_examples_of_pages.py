"""Objects that the pages for users and operators show are valid, and request what a pool can give."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from api.kinds.gpupool import GPUPool
from api.names import RESOURCE_PREFIX, pool_name_fault
from inventory.pools.spec_rules import spec_faults
from manifests.install.crds import build_crds
from tests.support.kubernetes_schemas import check_object

DOCS = Path(__file__).parents[3] / "docs"
PAGES = ("quick-start.md", "using-gpus.md", "concepts.md", "migration.md", "faq.md")
VERSIONS = ("1.30", "1.36")
Object = dict[str, Any]


def objects() -> Iterator[Any]:
    for page in PAGES:
        text = (DOCS / page).read_text(encoding="utf-8")
        for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL):
            for document in yaml.safe_load_all(block):
                name = f"{page}: {document['kind']} {document['metadata']['name']}"
                yield pytest.param(document, id=name)


OBJECTS = list(objects())
OF_KUBERNETES = [item for item in OBJECTS if item.values[0]["kind"] != "GPUPool"]
POOLS = [item for item in OBJECTS if item.values[0]["kind"] == "GPUPool"]


def pod_spec_of(document: Object) -> Object | None:
    if document["kind"] == "Pod":
        return dict(document["spec"])
    template = document["spec"].get("template")
    return None if template is None else dict(template["spec"])


def unknown_fields(value: Any, schema: Object, path: str = "") -> Iterator[str]:
    for key, nested in value.items() if isinstance(value, dict) else ():
        properties = schema.get("properties")
        if properties is not None and key not in properties:
            yield f"{path}.{key}"
        elif properties is not None:
            yield from unknown_fields(nested, properties[key], f"{path}.{key}")


def test_every_kind_of_workload_is_shown():
    kinds = {item.values[0]["kind"] for item in OBJECTS}
    assert kinds == {"GPUPool", "Pod", "Job", "Deployment", "ResourceQuota"}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("document", OF_KUBERNETES)
def test_an_object_is_valid_for_the_oldest_and_the_tested_version(document: Object, version: str):
    check_object(document, version)


@pytest.mark.parametrize("document", OF_KUBERNETES)
def test_a_workload_requests_one_pool_that_can_have_its_name(document: Object):
    spec = pod_spec_of(document)
    if spec is None:
        assert document["kind"] == "ResourceQuota"
        (resource,) = document["spec"]["hard"]
        resource = resource.removeprefix("requests.")
    else:
        (resource,) = {
            name
            for container in spec["containers"]
            for name in container["resources"]["limits"]
            if "/" in name
        }
        assert not {"schedulerName", "nodeName", "tolerations"} & spec.keys()
    assert resource.startswith(RESOURCE_PREFIX)
    assert pool_name_fault(resource.removeprefix(RESOURCE_PREFIX)) is None


@pytest.mark.parametrize("document", POOLS)
def test_a_pool_has_known_fields_and_breaks_no_rule(document: Object):
    (definition,) = [crd for crd in build_crds() if crd["spec"]["names"]["kind"] == "GPUPool"]
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    spec = schema["properties"]["spec"]
    assert list(unknown_fields(document["spec"], spec)) == []
    assert list(spec_faults(msgspec.convert(document, GPUPool).spec)) == []


def test_the_pod_of_the_quick_start_requests_its_pool():
    found = {
        item.values[0]["kind"]: item.values[0]
        for item in OBJECTS
        if str(item.id).startswith("quick-start")
    }
    pool = msgspec.convert(found["GPUPool"], GPUPool)
    (container,) = found["Pod"]["spec"]["containers"]
    assert container["resources"]["limits"] == {pool.resource_name: 1}
    assert not pool.spec.assignment.require_annotation
