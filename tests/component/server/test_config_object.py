"""A server that follows its GPUControlPlaneConfig: what counts at once, what is refused, and what the object says of it."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from api.kinds.gpucontrolplaneconfig import GPUControlPlaneConfig
from kube.errors import Invalid, NotFound
from kube.resources import (
    CUSTOM_RESOURCE_DEFINITIONS,
    DAEMON_SETS,
    DEPLOYMENTS,
    EVENTS,
    GPU_CONTROL_PLANE_CONFIGS,
    MODULE_CONFIGS,
    Resource,
)
from manifests import constants
from server.configuration.config_definition import build_config_crd
from server.configuration.config_source import ConfigSource
from tests.support.module_configs import MODULE_CONFIG_CRD
from tests.support.polling import until_async
from tests.support.ports import free_port
from tests.support.running_server import Cluster, RunningServer, a_server, settings_for

pytestmark = pytest.mark.looptime

Json = dict[str, Any]

NAME = constants.NAME


def the_source(cluster: Cluster, **changes: Any) -> ConfigSource:
    settings = settings_for(cluster, cluster.port, **changes)
    return ConfigSource(installation=settings.model_dump(mode="json", exclude_unset=True))


@asynccontextmanager
async def a_following_server(cluster: Cluster, **changes: Any) -> AsyncIterator[RunningServer]:
    async with a_server(cluster, source=the_source(cluster, **changes)) as server:
        await server.until_ready()
        yield server


@pytest.fixture
async def defined(cluster: Cluster) -> Cluster:
    for definition in (build_config_crd(), MODULE_CONFIG_CRD):
        await cluster.client.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
    return cluster


async def stored(cluster: Cluster) -> GPUControlPlaneConfig:
    return await cluster.client.get(GPU_CONTROL_PLANE_CONFIGS, GPUControlPlaneConfig, NAME)


async def change(cluster: Cluster, spec: Json) -> None:
    await cluster.client.merge_patch(GPU_CONTROL_PLANE_CONFIGS, {"spec": spec}, name=NAME)


async def said(cluster: Cluster) -> dict[str, tuple[str, str]]:
    """Return status and message by condition, once they describe the present generation."""

    async def is_reported() -> bool:
        found = await stored(cluster)
        status = found.status
        return status is not None and status.observed_generation == found.metadata.generation

    async with asyncio.timeout(2):
        await until_async(is_reported)
    status = (await stored(cluster)).status
    assert status is not None
    return {item.type: (item.status, item.message) for item in status.conditions}


async def agent_arguments(cluster: Cluster) -> list[str]:
    try:
        agent = await cluster.client.get(
            DAEMON_SETS, Json, constants.NODE_AGENT, namespace=constants.DEFAULT_NAMESPACE
        )
    except NotFound:
        return []
    (container,) = agent["spec"]["template"]["spec"]["containers"]
    return [*container.get("args", ()), *container.get("command", ())]


async def until_xid(cluster: Cluster, xid: str, *, is_there: bool = True) -> None:
    """Wait until node agents are told of the Xid, two seconds at most."""

    async def holds() -> bool:
        return (f"{xid}=None" in " ".join(await agent_arguments(cluster))) is is_there

    async with asyncio.timeout(2):
        await until_async(holds)


async def test_the_installations_values_are_in_the_object_and_in_force(defined: Cluster) -> None:
    async with a_following_server(defined, health={"xid_actions": {13: "None"}}):
        found = await stored(defined)
        assert found.spec["health"] == {"xid_actions": {"13": "None"}}
        assert "kubeconfig" not in found.spec
        await until_xid(defined, "13")
        conditions = await said(defined)
    assert {type_: status for type_, (status, _) in conditions.items()} == {
        "Applied": "True",
        "RestartNeeded": "False",
        "Refused": "False",
    }


async def test_the_values_are_written_once_the_api_server_takes_them(defined: Cluster) -> None:
    defined.api.faults.fail("PATCH", "/gpucontrolplaneconfigs/", 503)
    async with a_following_server(defined, health={"xid_actions": {13: "None"}}):
        assert (await stored(defined)).spec["health"] == {"xid_actions": {"13": "None"}}


async def test_a_setting_of_controllers_is_in_force_within_two_seconds(defined: Cluster) -> None:
    async with a_following_server(defined) as server:
        await change(defined, {"health": {"xid_actions": {"31": "None"}}})
        await until_xid(defined, "31")
        assert (await said(defined))["Applied"][0] == "True"
        assert await server.is_ready()


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        pytest.param(
            {"health": {"xid_action": {}}},
            "spec.health.xid_action: no such setting; did you mean health.xid_actions",
            id="unknown",
        ),
        pytest.param(
            {"health": {"ignored_xids": [13]}}, "no setting any more: name an Xid", id="retired"
        ),
        pytest.param(
            {"device_plugin": {"plugin": "NVIDIA", "mode": "PerNode"}},
            "NVIDIA's plugin serves one pool",
            id="two-that-contradict",
        ),
        pytest.param({"log_level": "debug"}, "spec.log_level: a server needs it", id="flag"),
        pytest.param({"device_plugin": {"image": "unnamed"}}, "names no registry", id="image"),
    ],
)
async def test_what_is_refused_is_named_and_the_last_settings_stay(
    defined: Cluster, spec: Json, named: str
) -> None:
    async with a_following_server(defined) as server:
        await change(defined, {"health": {"xid_actions": {"31": "None"}}})
        await until_xid(defined, "31")
        await change(defined, {"inventory": {"label_nodes": False}} | spec)
        conditions = await said(defined)
        assert conditions["Refused"][0] == "True"
        assert named in conditions["Refused"][1]
        assert conditions["Applied"] == ("False", conditions["Refused"][1])
        assert 'config_problem{cause="Refused"} 1.0' in await server.metric(
            "gpu_control_plane_config_problem"
        )
        assert "31=None" in " ".join(await agent_arguments(defined))
        await until_event(defined, named)


async def until_event(cluster: Cluster, text: str) -> None:
    async def is_there() -> bool:
        events = (await cluster.client.list_(EVENTS, Json)).items
        return any(
            event["reason"] == "GPUConfigurationRefused" and text in event["note"]
            for event in events
        )

    await until_async(is_there)


async def test_a_refused_spec_counts_for_no_server_that_starts(defined: Cluster) -> None:
    async with a_following_server(defined):
        await change(defined, {"health": {"xid_actions": {"31": "None"}}})
        await said(defined)
        await change(defined, {"unknown": 1})
        assert (await said(defined))["Refused"][0] == "True"
    await defined.client.delete(
        DAEMON_SETS, constants.NODE_AGENT, namespace=constants.DEFAULT_NAMESPACE
    )
    async with a_following_server(defined):
        await until_xid(defined, "31")
        assert (await said(defined))["Refused"][0] == "True"


async def test_a_setting_that_servers_read_at_the_start_needs_a_restart(defined: Cluster) -> None:
    async with a_following_server(defined):
        await change(defined, {"drain_s": 1.5, "health": {"xid_actions": {"31": "None"}}})
        conditions = await said(defined)
        await until_xid(defined, "31")
        assert conditions["Applied"][0] == "False"
        assert conditions["RestartNeeded"][0] == "True"
        assert conditions["RestartNeeded"][1].startswith("drain_s: servers read it when they start")
        assert "rollout restart deployment" in conditions["RestartNeeded"][1]
    async with a_following_server(defined):
        # The same installation: what was changed by hand stays.
        async def is_applied() -> bool:
            # Ready is earlier than the first report.
            found = await said(defined)
            return (found["RestartNeeded"][0], found["Applied"][0]) == ("False", "True")

        await until_async(is_applied, within_s=10)
        assert (await stored(defined)).spec["drain_s"] == 1.5


async def test_settings_of_a_deleted_object_stay_until_the_next_start(defined: Cluster) -> None:
    async with a_following_server(defined) as server:
        await change(defined, {"health": {"xid_actions": {"31": "None"}}})
        await until_xid(defined, "31")
        await defined.client.delete(GPU_CONTROL_PLANE_CONFIGS, NAME)

        async def is_missed() -> bool:
            return 'cause="Missing"} 1.0' in await server.metric("gpu_control_plane_config_problem")

        await until_async(is_missed)
        assert "31=None" in " ".join(await agent_arguments(defined))
        assert await server.is_ready()
    async with a_following_server(defined):
        assert "health" not in (await stored(defined)).spec
        await until_xid(defined, "31", is_there=False)


async def deploy(cluster: Cluster, source: ConfigSource) -> None:
    """Make the Deployment one whose new pods have this source."""
    text = json.dumps(dict(source.installation), separators=(",", ":")).replace("$", "$$")
    container = {"name": NAME, "args": ["serve", "--installation", text]}
    body = {
        "apiVersion": DEPLOYMENTS.api_version,
        "kind": DEPLOYMENTS.kind,
        "metadata": {"name": NAME, "namespace": constants.DEFAULT_NAMESPACE},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }
    await cluster.client.apply(DEPLOYMENTS, body, field_manager="helm")


async def test_a_pod_of_an_earlier_installation_that_restarts_leaves_the_values_of_the_newer(
    defined: Cluster,
) -> None:
    older = the_source(defined, health={"xid_actions": {13: "None"}})
    newer = the_source(defined, health={"xid_actions": {31: "None"}})
    await deploy(defined, older)
    async with a_server(defined, source=older) as server:
        await server.until_ready()
        await until_xid(defined, "13")
    await deploy(defined, newer)
    async with a_server(defined, source=newer) as server:
        await server.until_ready()
        await until_xid(defined, "31")
        port = free_port()
        restarted = replace(older, arguments=("--listen.port", str(port)))
        async with a_server(defined, port=port, source=restarted) as old_pod:

            async def is_synced() -> bool:
                return (await old_pod.get(constants.SYNCED_PATH))[0] == 200

            await until_async(is_synced)
            assert (await stored(defined)).spec["health"] == {"xid_actions": {"31": "None"}}
    # A roll-back is a change of the Deployment like any other.
    await deploy(defined, older)
    async with a_server(defined, source=older) as server:
        await server.until_ready()
        await until_xid(defined, "13")


@pytest.mark.parametrize(
    ("changed", "stored_spec"),
    [
        pytest.param(
            {"health": {"xid_actions": {}}, "node_detector": {"node_selector": {}}},
            {"health": {"xid_actions": {}}, "node_detector": {"node_selector": {}}},
            id="mappings",
        ),
        pytest.param({"health": {}}, {"health": None}, id="section"),
    ],
)
async def test_what_the_installation_empties_is_empty_in_the_object(
    defined: Cluster, changed: Json, stored_spec: Json
) -> None:
    full = {
        "health": {"xid_actions": {13: "None"}},
        "node_detector": {"node_selector": {"example.com/a": "b"}},
    }
    async with a_following_server(defined, **full):
        await until_xid(defined, "13")
    async with a_following_server(defined, **changed):
        spec = (await stored(defined)).spec
        assert {name: spec[name] for name in full if name in spec} == stored_spec
        await until_xid(defined, "13", is_there=False)
        assert (await said(defined))["Applied"][0] == "True"
        status = (await stored(defined)).status
        assert status is not None
        assert status.applied == {name: value for name, value in spec.items() if value is not None}


async def test_a_section_that_was_emptied_by_hand_does_not_keep_the_installations_values(
    defined: Cluster,
) -> None:
    async with a_following_server(defined):
        await change(defined, {"health": {}})
    async with a_following_server(defined, health={"xid_actions": {13: "None"}}):
        await until_xid(defined, "13")
    async with a_following_server(defined):
        await until_xid(defined, "13", is_there=False)


async def test_there_is_no_second_object(defined: Cluster) -> None:
    second = {
        "apiVersion": GPU_CONTROL_PLANE_CONFIGS.api_version,
        "kind": GPU_CONTROL_PLANE_CONFIGS.kind,
        "metadata": {"name": "another"},
    }
    with pytest.raises(Invalid, match="the only GPUControlPlaneConfig, gpu-control-plane"):
        await defined.client.create(GPU_CONTROL_PLANE_CONFIGS, second)


async def test_settings_of_a_module_config_override_those_of_the_object(defined: Cluster) -> None:
    async with a_following_server(defined):
        await change(defined, {"health": {"xid_actions": {"31": "None"}}})
        await until_xid(defined, "31")
        await create_module(defined, {"health": {"xid_actions": {"45": "None"}}})
        await until_xid(defined, "45")

        async def is_reported() -> bool:
            # The object's generation is that of before.
            status = (await stored(defined)).status
            assert status is not None
            found: Json = status.applied["health"]["xid_actions"]
            return found == {"45": "None"}

        await until_async(is_reported)
        await defined.client.merge_patch(
            MODULE_CONFIGS, {"spec": {"settings": {"helth": {}}}}, name=NAME
        )

        async def is_refused() -> bool:
            status, message = (await said(defined))["Refused"]
            return status == "True" and "ModuleConfig gpu-control-plane: spec.settings.helth" in (
                message
            )

        await until_async(is_refused)
        assert "45=None" in " ".join(await agent_arguments(defined))
        await defined.client.delete(MODULE_CONFIGS, NAME)
        await until_xid(defined, "31")
        assert (await said(defined))["Refused"][0] == "False"


async def create_module(cluster: Cluster, settings: Json) -> None:
    resource: Resource = MODULE_CONFIGS
    body = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": NAME},
        "spec": {"version": 1, "enabled": True, "settings": settings},
    }
    await cluster.client.create(resource, body)


async def test_without_the_definition_the_installations_values_are_in_force(
    cluster: Cluster,
) -> None:
    async with a_following_server(cluster, health={"xid_actions": {13: "None"}}):
        await until_xid(cluster, "13")
