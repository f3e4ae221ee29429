"""What kubelet and containerd make of a device plugin's answer; the plugin is the test's own."""

import json
from pathlib import Path

import pytest

from tests.cluster.environment import client, pods, polling
from tests.cluster.node.environment import paths, real_node
from tests.cluster.node.environment.own_plugin import OwnPlugin, offers, served


def _write_specification(directory: Path, kind: str, device: Path) -> Path:
    document = {
        "cdiVersion": "0.6.0",
        "kind": kind,
        "devices": [
            {
                "name": device.name,
                "containerEdits": {
                    "env": [f"INJECTED={device.name}"],
                    "deviceNodes": [{"path": f"/dev/{device.name}", "hostPath": str(device)}],
                },
            }
        ],
    }
    directory.mkdir(parents=True, exist_ok=True)
    specification = directory / "injected.json"
    specification.write_text(json.dumps(document), encoding="utf-8")
    return specification


@pytest.mark.parametrize(
    ("directory", "resource"),
    [
        pytest.param(paths.CDI, "gpu.deckhouse.io/own", id="own directory"),
        pytest.param(paths.USUAL_CDI, "gpu.deckhouse.io/usual", id="usual directory"),
    ],
)
async def test_a_pod_gets_exactly_the_cdi_devices_that_its_plugin_names(
    api: client.ApiClient, namespace: str, node: real_node.RealNode, directory: Path, resource: str
):
    names = ["nvidia0", "nvidia1"]
    devices = {name: await node.make_device(name) for name in names}
    specification = _write_specification(directory, resource, devices["nvidia1"])
    try:
        async with served(node, OwnPlugin(resource, ["nvidia1"])):
            await polling.eventually(offers(api, node, resource), what=f"{resource} on the node")
            has = node.a_pod("has", limits={resource: 1})

            async def is_admitted() -> bool:
                try:
                    await api.create(pods.collection(namespace), has, dryRun="All")
                except client.ApiRefusedError:
                    return False
                return True

            # The API server may still apply the policy of an installation that a test before this one removed.
            await polling.eventually(is_admitted, what="pods that no control plane admits")
            await api.create(pods.collection(namespace), has)
            await pods.wait_for_pod(api, namespace, "has", pods.is_running)

            listed = await node.exec(namespace, "has", ["ls", "/dev"])
            assert [name for name in listed.split() if name.startswith("nvidia")] == ["nvidia1"]
            await node.exec(namespace, "has", ["sh", "-c", "echo x > /dev/nvidia1"])
            assert "INJECTED=nvidia1\n" in await node.exec(namespace, "has", ["env"])

            refused = node.a_pod("too-late", limits={resource: 1})
            await api.create(pods.collection(namespace), refused)
            found = await pods.wait_for_pod(
                api, namespace, "too-late", lambda pod: pod["status"].get("phase") == "Failed"
            )
            assert found["status"]["reason"] == "UnexpectedAdmissionError"
    finally:
        specification.unlink()
        for device in devices.values():
            device.unlink()
