"""Pools and their devices, for the tests of node workloads."""

from typing import Any

from api.foreign.core import Taint
from api.kinds.gpupool import (
    Allocation,
    AllocationMode,
    GPUPool,
    GPUPoolSpec,
    Scheduling,
)
from api.meta import ObjectMeta
from api.names import NodeName
from api.nodefiles.poolconfig import ConfiguredDevice
from manifests.node import device_plugin
from manifests.node.agent_daemonset import build_node_agent

SETTINGS = device_plugin.WorkloadSettings(image="gpu-control-plane:1.0")
TAINT = Taint(key="gpu.deckhouse.io/only", value="training", effect="NoSchedule")
WHOLE, SLICES, MIG = AllocationMode.EXCLUSIVE, AllocationMode.TIME_SLICE, AllocationMode.MIG


def a_pool(name: str = "training", *taints: Taint, **allocation: Any) -> GPUPool:
    return GPUPool(
        metadata=ObjectMeta(name=name, uid=f"uid-{name}"),
        spec=GPUPoolSpec(
            allocation=Allocation(**allocation), scheduling=Scheduling(taints=list(taints) or None)
        ),
    )


DEVICES = {
    NodeName("n1"): (
        ConfiguredDevice(uuid="GPU-1a", numa_node=0),
        ConfiguredDevice(uuid="GPU-1b", numa_node=1, is_withheld=True),
    ),
    NodeName("n2"): (ConfiguredDevice(uuid="GPU-2a"),),
}
MIG_DEVICES = {NodeName("n1"): (ConfiguredDevice(uuid="GPU-1a", instances=["MIG-1", "MIG-2"]),)}


def objects_of(
    pool: GPUPool, devices: Any = None, settings: device_plugin.WorkloadSettings = SETTINGS
) -> list[dict[str, Any]]:
    config = device_plugin.pool_config(pool, DEVICES if devices is None else devices)
    return device_plugin.build_pool_workloads(pool, config, settings)


def node_agent(settings: device_plugin.WorkloadSettings) -> list[dict[str, Any]]:
    return build_node_agent(settings)
