"""What we show to users works as it stands."""

import functools
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.cluster.environment import pods, polling
from tests.cluster.system.objects import RESERVATION_KEY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.cluster.environment.client import JsonObject


@pytest.fixture
async def examples(system, kubectl):
    """The objects of `gpu-control-plane render examples`; those that can be created are deleted after."""
    current = list(yaml.safe_load_all(await system.render("examples")))
    yield current
    for example in current:
        namespace = example["metadata"].get("namespace")
        pool = ["gpool", example["metadata"]["name"]] if example["kind"] == "GPUPool" else []
        target = ["namespace", namespace] if namespace else pool
        if target:
            await kubectl("delete", *target, "--ignore-not-found", "--wait=false")


async def test_pools_and_pods_of_the_examples_are_accepted(examples, api, kubectl):
    await kubectl.apply_yaml([item for item in examples if item["kind"] == "GPUPool"])
    asking = [item for item in examples if item["kind"] in {"Pod", "Deployment"}]
    assert asking
    for example in asking:
        namespace = example["metadata"]["namespace"]
        await kubectl("create", "namespace", namespace)
        accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        account = _pod_spec(example).get("serviceAccountName", "default")
        if account != "default":
            await api.create(accounts, {"metadata": {"name": account}})
        await polling.eventually(
            functools.partial(api.find, f"{accounts}/default"),
            what=f"the default account of {namespace}",
        )
        created = await kubectl.apply_yaml(example)
        assert created.stdout.endswith(" created\n")
        await pods.wait_for_pods(api, namespace, _are_admitted)


def _pod_spec(example: "JsonObject") -> "JsonObject":
    spec: JsonObject = example["spec"].get("template", example)["spec"]
    return spec


def _are_admitted(found: "Mapping[str, JsonObject]") -> bool:
    return bool(found) and all(
        RESERVATION_KEY in pod["metadata"].get("annotations", {}) for pod in found.values()
    )
