"""What we show to users works as it stands."""

from typing import TYPE_CHECKING

import pytest
import yaml

from tests.cluster.environment import pods
from tests.cluster.system.objects import RESERVATION_KEY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.cluster.environment.client import JsonObject


@pytest.fixture
async def examples(system, kubectl):
    """The objects of `gpu-control-plane render examples`; those that can be created are deleted after."""
    shown = list(yaml.safe_load_all(await system.render("examples")))
    yield shown
    for example in shown:
        namespace = example["metadata"].get("namespace")
        pool = ["gpool", example["metadata"]["name"]] if example["kind"] == "GPUPool" else []
        target = ["namespace", namespace] if namespace else pool
        if target:
            await kubectl("delete", *target, "--ignore-not-found", "--wait=false")


async def test_pools_and_pods_of_the_examples_are_accepted(examples, api, kubectl):
    await kubectl.apply_yaml([one for one in examples if one["kind"] == "GPUPool"])
    asking = [one for one in examples if one["kind"] in {"Pod", "Deployment"}]
    assert asking
    for example in asking:
        namespace = example["metadata"]["namespace"]
        await kubectl("create", "namespace", namespace)
        for account in {"default", _pod_spec(example).get("serviceAccountName", "default")}:
            await kubectl.apply_yaml(
                {
                    "apiVersion": "v1",
                    "kind": "ServiceAccount",
                    "metadata": {"name": account, "namespace": namespace},
                }
            )
        created = await kubectl.apply_yaml(example)
        assert created.stdout.endswith(" created\n")
        await pods.wait_for_pods(api, namespace, _are_admitted)


def _pod_spec(example: "JsonObject") -> "JsonObject":
    spec: JsonObject = example["spec"].get("template", example)["spec"]
    return spec


def _are_admitted(found: "Mapping[str, JsonObject]") -> bool:
    return bool(found) and all(
        RESERVATION_KEY in pod["metadata"]["annotations"] for pod in found.values()
    )
