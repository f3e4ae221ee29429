"""A ClusterPolicy takes the place of the operands of the settings: no operand is there twice, and they come back after it."""

from collections import Counter
from typing import Any

import pytest

from api.names import OPERAND_LABEL
from kube.resources import CLUSTER_POLICIES, DAEMON_SETS, SERVICES
from reconciler.node_software.policy_controller import FIELD_MANAGER
from tests.component.reconciler.operator_world import NAMESPACE, OperatorWorld, an_operator_world
from tests.unit.operands.operand_cases import ALL_ON, NVML, OWN

pytestmark = pytest.mark.looptime

OPERANDS = {"gpu-feature-discovery", "nvidia-dcgm", "nvidia-dcgm-exporter"}
"""Those of either policy."""
METRICS = "gpu-node-agent-metrics"


async def images_of(world: OperatorWorld) -> dict[str, set[str]]:
    """Return the images of each DaemonSet."""
    return {
        item["metadata"]["name"]: {
            container["image"]
            for of in ("containers", "initContainers")
            for container in item["spec"]["template"]["spec"].get(of, ())
        }
        for item in await world.found(DAEMON_SETS)
    }


async def test_the_operands_of_the_settings_stand_back_and_come_again():
    async with an_operator_world() as world:
        world.built_in = ALL_ON
        world.begin_term()
        await world.add_node()
        await world.until_stable()
        before = await world.names()
        assert set(await images_of(world)) == OPERANDS | {"gpu-node-validator"}
        await world.add_policy()
        await world.until_stable()
        images = await images_of(world)
        assert images.keys() >= OPERANDS
        assert "gpu-node-validator" not in images
        assert "nvidia-operator-validator" in images
        assert not any(OWN in found for found in images.values())
        states = Counter(
            item["metadata"]["labels"][OPERAND_LABEL]
            for item in await world.found(DAEMON_SETS)
            if item["metadata"]["name"] in OPERANDS
        )
        assert set(states.values()) == {1}
        selector = (await world.daemon_set("nvidia-dcgm"))["spec"]["template"]["spec"]
        assert selector["nodeSelector"] == {"nvidia.com/gpu.deploy.dcgm": "true"}
        assert "affinity" not in selector
        await world.client.delete(CLUSTER_POLICIES, "gpus")
        await world.until_stable()
        assert await world.names() == before
        assert OWN in (await images_of(world))["nvidia-dcgm"]


async def test_metrics_of_the_node_agents_stay_beside_a_policy_without_an_exporter():
    async with an_operator_world() as world:
        world.built_in = NVML
        world.begin_term()
        await world.add_node()
        await world.add_policy(dcgmExporter={"enabled": False})
        await world.until_stable()
        assert ("Service", METRICS) in await world.names()
        status = await world.status_of()
        assert "telemetry" not in {item["name"] for item in status["states"]}
        await world.change_policy(dcgmExporter={"enabled": True})
        await world.until_stable()
        assert ("Service", METRICS) not in await world.names()
        assert ("Service", "nvidia-dcgm-exporter") in await world.names()


async def test_a_policy_that_nobody_was_seen_to_delete_keeps_its_operands():
    """As its kind does while its definition is missing; the settings' own would change them on every node."""
    async with an_operator_world() as world:
        world.built_in = ALL_ON
        world.begin_term()
        await world.add_node()
        await world.add_policy()
        await world.until_stable()
        before = await images_of(world)
        await world.client.merge_patch(
            CLUSTER_POLICIES, {"metadata": {"finalizers": None}}, name="gpus"
        )
        await world.client.delete(CLUSTER_POLICIES, "gpus")
        await world.until_stable()
        assert await images_of(world) == before


async def test_a_daemon_set_of_an_earlier_version_is_replaced_without_a_gap():
    """Its selector is another; its pods stay until the next one has them."""
    old = {"app.kubernetes.io/name": "gpu-feature-discovery"}
    former: dict[str, Any] = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {
            "name": "gpu-feature-discovery",
            "namespace": NAMESPACE,
            "labels": {OPERAND_LABEL: "gfd"},
        },
        "spec": {
            "selector": {"matchLabels": old},
            "template": {
                "metadata": {"labels": old},
                "spec": {"containers": [{"name": "gfd", "image": "registry.example.com/gfd:0"}]},
            },
        },
    }
    dcgm = {**former, "metadata": {**former["metadata"], "name": "gpu-dcgm"}}
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {**former["metadata"], "name": "gpu-dcgm"},
        "spec": {"ports": [{"port": 5555}]},
    }
    async with an_operator_world() as world:
        world.built_in = ALL_ON
        world.begin_term()
        await world.add_node()
        for resource, body in ((DAEMON_SETS, former), (DAEMON_SETS, dcgm), (SERVICES, service)):
            await world.client.apply(resource, body, field_manager=FIELD_MANAGER)
        uid = (await world.daemon_set("gpu-feature-discovery"))["metadata"]["uid"]
        await world.until_stable()
        assert not {name for _, name in await world.names()} & {"gpu-dcgm"}
        found = await world.daemon_set("gpu-feature-discovery")
        assert found["metadata"]["uid"] == uid
        assert found["spec"]["selector"] == {"matchLabels": old}
        labels = found["spec"]["template"]["metadata"]["labels"]
        assert old.items() <= labels.items()
        await world.roll_out()
        await world.until_stable()
        found = await world.daemon_set("gpu-feature-discovery")
        assert found["metadata"]["uid"] != uid
        assert found["spec"]["selector"]["matchLabels"].items() <= labels.items()
        assert [event.note for event in world.recorder.events] == []
