"""All four operands as DaemonSets on a real kubelet."""

from typing import TYPE_CHECKING

from tests.cluster.environment import nodes, polling
from tests.cluster.node.operands.operand_pods import at, condition, container
from tests.cluster.node.operands.switches import DAEMON_SETS
from tests.cluster.system.installation import NAMESPACE

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.node.operands.operand_pods import OperandPods
    from tests.cluster.node.operands.switches import SwitchedSystem
    from tests.cluster.node.stories.devices import NodeDevices

CONFIG_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"


async def test_all_four_become_ready_in_the_order_of_their_needs(
    operands: "OperandPods", devices: "NodeDevices"
):
    pods = {state: await operands.ready(state) for state in DAEMON_SETS}

    # The others start once the validator has written its file for the toolkit.
    toolkit = container(pods["validator"], "toolkit-validation")["state"]["terminated"]
    for state, main in (
        ("gfd", "gpu-feature-discovery"),
        ("dcgm", "nvidia-dcgm-ctr"),
        ("dcgm-exporter", "nvidia-dcgm-exporter"),
    ):
        started = container(pods[state], main)["state"]["running"]["startedAt"]
        assert at(started) >= at(toolkit["finishedAt"])
    # The exporter asks the engine through its Service, and ends where that has no ready endpoint.
    since = {
        state: at(condition(pod, "Ready")["lastTransitionTime"]) for state, pod in pods.items()
    }
    assert since["dcgm-exporter"] >= since["dcgm"]

    async def are_written() -> bool:
        current = await operands.current()
        assert current.keys() == DAEMON_SETS.keys(), f"{current}"
        assert all(item.get("ready") for item in current.values()), f"{current}"
        conditions = await operands.conditions()
        assert conditions["ReadyForPooling"] == "True", f"{conditions}"
        assert conditions["GFDReady"] == "True", f"{conditions}"
        faults = ("DriverMissing", "ToolkitMissing", "MonitoringMissing")
        assert [conditions[fault] for fault in faults] == ["False"] * len(faults), f"{conditions}"
        return True

    await polling.eventually(are_written, what="operands and conditions")

    feature = await operands.api.get(operands.node_feature)
    labels = feature["spec"]["labels"]
    assert labels["nvidia.com/gpu.count"] == str(len(devices.devices))
    assert labels["nvidia.com/gpu.product"] == "NVIDIA-H100-80GB-HBM3"
    assert labels["nvidia.com/gpu.memory"] == "81559"


async def test_features_are_a_file_where_nfd_reads_files(
    operands: "OperandPods", installed_with_operands: "SwitchedSystem", tmp_path: "Path"
):
    before = await operands.ready("gfd")
    gfd = installed_with_operands.now["bootstrap"]["gfd"]
    await installed_with_operands.switch(gfd=gfd | {"features_dir": str(tmp_path)})
    await operands.ready("gfd", other_than=before["metadata"]["uid"])
    file = tmp_path / "gfd"
    await polling.eventually(file.exists, what="file of features")
    written = file.read_text(encoding="utf-8").splitlines()
    assert "nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3" in written


async def test_a_label_of_the_node_chooses_the_configuration_of_gfd(
    operands: "OperandPods", installed_with_operands: "SwitchedSystem"
):
    before = await operands.ready("gfd")
    data = {
        f"{item}": f"version: v1\nflags: {{migStrategy: {item}}}\n" for item in ("single", "mixed")
    }
    await operands.api.create(CONFIG_MAPS, {"metadata": {"name": "gfd-configs"}, "data": data})
    gfd = installed_with_operands.now["bootstrap"]["gfd"]
    chosen = {"config_map": "gfd-configs", "default_config": "single"}
    await installed_with_operands.switch(gfd=gfd | chosen)
    pod = await operands.ready("gfd", other_than=before["metadata"]["uid"])

    async def has_strategy(expected: str) -> bool:
        labels = (await operands.api.get(operands.node_feature))["spec"]["labels"]
        return bool(labels["nvidia.com/mig.strategy"] == expected)

    await polling.eventually(lambda: has_strategy("single"), what="the default configuration")
    await label(operands, "mixed")
    try:
        await polling.eventually(lambda: has_strategy("mixed"), what="the chosen configuration")
    finally:
        await label(operands, None)
    (after,) = await operands.of("gfd")
    assert after["metadata"]["uid"] == pod["metadata"]["uid"]
    assert [status["restartCount"] for status in after["status"]["containerStatuses"]] == [0, 0]


async def label(operands: "OperandPods", value: str | None) -> None:
    labels = {"metadata": {"labels": {"nvidia.com/device-plugin.config": value}}}
    await operands.api.patch(f"{nodes.NODES}/{operands.node}", labels)
