"""A server of the system as installed that follows its GPUControlPlaneConfig, on the real API server."""

import json
import secrets
import time
from typing import TYPE_CHECKING, Any

import pytest

from manifests import constants
from manifests.yaml import render
from tests.cluster.environment import definitions, polling
from tests.cluster.environment.client import ApiRefusedError
from tests.cluster.system.installation import NAMESPACE
from tests.support.module_configs import MODULE_CONFIG_CRD

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.cluster.environment.client import ApiClient
    from tests.cluster.environment.server_process import ServerProcess

Json = dict[str, Any]

CONFIGS = "/apis/gpu.deckhouse.io/v1alpha1/gpucontrolplaneconfigs"
CONFIG = f"{CONFIGS}/gpu-control-plane"
MODULES = "/apis/deckhouse.io/v1alpha1/moduleconfigs"
MODULE = f"{MODULES}/gpu-control-plane"
AGENT = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/{constants.NODE_AGENT}"
AT_ONCE_S = 2.0


@pytest.fixture
async def server(system, api, kubectl) -> "AsyncIterator[ServerProcess]":
    """A server with an object in place of that with a file."""
    await kubectl("apply", "-f", "-", stdin=render([MODULE_CONFIG_CRD]))
    await definitions.until_served(kubectl, [MODULE_CONFIG_CRD])
    await system.server.terminate()
    port = int(system.url.rpartition(":")[2])
    server = await system.new_server(f"follower-{secrets.token_hex(3)}", port, has_object=True)
    await server.start()
    yield server
    await server.terminate()
    await kubectl("delete", "--ignore-not-found", "gconfig", "gpu-control-plane")
    await kubectl("delete", "-f", "-", stdin=render([MODULE_CONFIG_CRD]))


async def conditions(api: "ApiClient") -> dict[str, tuple[str, str]]:
    """Return status and message by type, once they are of the present generation."""

    async def current() -> Json:
        found: Json = await api.get(CONFIG)
        status: Json = found.get("status", {})
        assert status.get("observedGeneration") == found["metadata"]["generation"], status
        return status

    status = await polling.eventually(current, what="status of the settings", within=10)
    return {item["type"]: (item["status"], item["message"]) for item in status["conditions"]}


async def until_xid(api: "ApiClient", xid: str, *, within: float = AT_ONCE_S) -> float:
    """Wait until node agents are told of the Xid; return after how long."""
    since = time.monotonic()

    async def is_there() -> bool:
        (container,) = (await api.get(AGENT))["spec"]["template"]["spec"]["containers"]
        assert f"{xid}=None" in json.dumps(container), container.get("args")
        return True

    await polling.eventually(is_there, what=f"Xid {xid} in the agents' arguments", within=within)
    return time.monotonic() - since


def of_xid(xid: str, **further: Any) -> Json:
    return {"spec": {"health": {"xid_actions": {xid: "None"}}, **further}}


async def test_settings_follow_the_object(server, api, kubectl):
    assert (await conditions(api))["Applied"][0] == "True"
    assert (await api.get(CONFIG))["spec"]["drain_s"] == 0.5

    await api.patch(CONFIG, of_xid("31"))
    print(f"in force after {await until_xid(api, '31'):.2f} s")
    assert (await conditions(api))["Applied"][0] == "True"

    await api.patch(CONFIG, {"spec": {"health": {"xid_action": {}}}})
    status, message = (await conditions(api))["Refused"]
    assert status == "True"
    assert "spec.health.xid_action: no such setting; did you mean" in message
    await until_xid(api, "31")
    await api.patch(CONFIG, {"spec": {"health": {"xid_action": None}}})

    await api.patch(CONFIG, {"spec": {"drain_s": 0.75}})
    status, message = (await conditions(api))["RestartNeeded"]
    assert status == "True"
    assert message.startswith("drain_s: ")
    await server.restart()

    async def is_applied() -> bool:
        # Ready is earlier than the first report.
        found = await conditions(api)
        assert (found["RestartNeeded"][0], found["Applied"][0]) == ("False", "True")
        return True

    await polling.eventually(is_applied, what="report of the restarted server", within=10)
    await until_xid(api, "31")
    header, row = (await kubectl("get", "gconfig")).stdout.splitlines()
    assert header.split() == ["NAME", "APPLIED", "RESTART", "REFUSED", "AGE"]
    assert row.split()[:4] == ["gpu-control-plane", "True", "False", "False"]


async def test_a_second_object_and_a_value_of_a_wrong_type_are_refused_at_once(server, api):
    second = {
        "apiVersion": "gpu.deckhouse.io/v1alpha1",
        "kind": "GPUControlPlaneConfig",
        "metadata": {"name": "second"},
    }
    with pytest.raises(ApiRefusedError, match="the only GPUControlPlaneConfig"):
        await api.create(CONFIGS, second)
    with pytest.raises(ApiRefusedError, match=r"spec\.listen\.port"):
        await api.patch(CONFIG, {"spec": {"listen": {"port": 99999}}})
    assert (await conditions(api))["Applied"][0] == "True"


async def test_settings_of_a_deleted_object_stay_until_the_next_start(server, api):
    await api.patch(CONFIG, of_xid("31"))
    await until_xid(api, "31")
    await api.delete(CONFIG)

    async def is_logged() -> bool:
        lines = [line.get("event", "") for line in server.logs()]
        assert any("its last settings stay in force" in line for line in lines)
        return True

    await polling.eventually(is_logged, what="the line on the deleted object")
    await until_xid(api, "31")
    await server.restart()
    assert "xid_actions" not in (await api.get(CONFIG))["spec"]["health"]


async def test_a_module_config_overrides_the_object(server, api):
    await api.patch(CONFIG, of_xid("31"))
    await until_xid(api, "31")
    settings = of_xid("45")["spec"]
    module = {
        "apiVersion": "deckhouse.io/v1alpha1",
        "kind": "ModuleConfig",
        "metadata": {"name": "gpu-control-plane"},
        "spec": {"version": 1, "enabled": True, "settings": settings},
    }
    # Found at the start of a watch, which waits a minute where the kind was not served before.
    await api.create(MODULES, module)
    await until_xid(api, "45")
    await api.delete(MODULE)
    await until_xid(api, "31")
