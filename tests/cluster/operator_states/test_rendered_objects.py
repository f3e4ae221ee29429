"""Objects of the matrix of ClusterPolicies and of NVIDIADrivers, against the real API server and against kubeconform.

The unit tests check them by Kubernetes' schemas of eight versions. Here one version's validation is the API server's own,
with all that its schemas do not say: names, selectors, mounts, roles.
"""

import asyncio
import copy
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from manifests.yaml import render
from operands.operand_state import OPTIONAL_KINDS
from tests.cluster.environment import binaries, definitions
from tests.cluster.operator_states.openapi_schemas import write_schemas
from tests.support.published_crds import published_crd
from tests.unit.operands.nvidia.policy_cases import distinct_objects

Json = dict[str, Any]

MONITORS = "servicemonitors.monitoring.coreos.com"
DRY_RUN = ("--server-side", "--dry-run=server", "--validate=strict")
WITHIN_S = 120


@pytest.fixture
async def monitors(kubectl) -> AsyncIterator[None]:
    """The definition of ServiceMonitor, as its project has it."""
    definition = published_crd(MONITORS)
    await kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump(definition))
    await definitions.until_served(kubectl, [definition])
    yield
    await kubectl("delete", "crd", MONITORS)


def in_namespace(namespace: str) -> list[Json]:
    """Every distinct object of the matrix, in another namespace."""
    objects = copy.deepcopy(distinct_objects())
    for object_ in objects:
        if "namespace" in object_["metadata"]:
            object_["metadata"]["namespace"] = namespace
    return objects


def with_a_typo(objects: list[Json]) -> Json:
    daemon_set = copy.deepcopy(
        next(object_ for object_ in objects if object_["kind"] == "DaemonSet")
    )
    daemon_set["spec"]["template"]["spec"]["hostPid"] = True
    return daemon_set


@pytest.mark.usefixtures("monitors")
async def test_the_api_server_takes_every_object_of_the_matrix_strictly(
    kubectl, namespace: str, progress: Callable[[str], None]
):
    objects = in_namespace(namespace)
    done = await kubectl("apply", *DRY_RUN, "-f", "-", stdin=render(objects), timeout_s=180)
    assert len(done.stdout.splitlines()) == len(objects)
    progress(f"the API server takes {len(objects)} objects of states")
    typo = render([with_a_typo(objects)])
    refused = await kubectl("apply", *DRY_RUN, "-f", "-", stdin=typo, check=False)
    assert ".spec.template.spec.hostPid: field not declared in schema" in refused.stderr


async def test_kubeconform_takes_every_object_of_built_in_kinds(
    api, tmp_path: Path, progress: Callable[[str], None]
):
    schemas = write_schemas(await api.get("/openapi/v2"), tmp_path)
    program = binaries.find_kubeconform(progress)
    objects = [object_ for object_ in distinct_objects() if object_["kind"] not in OPTIONAL_KINDS]
    report = await kubeconform(program, schemas, objects)
    assert not report["resources"]
    assert report["summary"] == {"valid": len(objects), "invalid": 0, "errors": 0, "skipped": 0}
    progress(f"kubeconform takes {len(objects)} objects of states")
    (refused,) = (await kubeconform(program, schemas, [with_a_typo(objects)]))["resources"]
    assert refused["status"] == "statusInvalid"
    assert "hostPid" in refused["msg"]


async def kubeconform(program: Path, schemas: str, objects: list[Json]) -> Json:
    """Return its report, which lists objects that it refuses."""
    process = await asyncio.create_subprocess_exec(
        program,
        *("-strict", "-summary", "-output", "json", "-schema-location", schemas),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(WITHIN_S):
            output, errors = await process.communicate(render(objects).encode())
    finally:
        if process.returncode is None:
            process.kill()
    assert not errors, errors.decode()
    report: Json = json.loads(output)
    return report
