"""What NFD, gpu-feature-discovery and our node agent write, in exactly their formats.

NFD: github.com/kubernetes-sigs/node-feature-discovery, source/pci. GFD: github.com/NVIDIA/k8s-device-plugin,
internal/lm. The agent: `api.foreign.nodefeature`.
"""

import datetime as dt
import json
import uuid
from typing import Any

from agent.detection.report import detected_labels, detector_feature_name
from agent.driver.pci import PciDevice
from api.foreign.nodefeature import (
    AGENT_ATTRIBUTES,
    AGENT_INSTANCES,
    GPU_INSTANCES,
    HEARTBEAT_ANNOTATION,
    NODE_NAME_LABEL,
)
from simulator.node.nfd import NAMESPACE

Json = dict[str, Any]


def a_node_feature(
    name: str,
    node: str,
    *,
    labels: dict[str, str] | None = None,
    instances: dict[str, list[dict[str, str]]] | None = None,
    attributes: dict[str, dict[str, str]] | None = None,
    annotations: dict[str, str] | None = None,
) -> Json:
    """A NodeFeature about a node."""
    features: Json = {
        "flags": {},
        "attributes": {key: {"elements": value} for key, value in (attributes or {}).items()},
        "instances": {
            key: {"elements": [{"attributes": item} for item in value]}
            for key, value in (instances or {}).items()
        },
    }
    return {
        "apiVersion": "nfd.k8s-sigs.io/v1alpha1",
        "kind": "NodeFeature",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": {NODE_NAME_LABEL: node},
            "annotations": annotations or {},
        },
        "spec": {"features": features, "labels": labels or {}},
    }


def detector_feature(node: str, count: int) -> Json:
    """What our detector tells of a node with so many devices."""
    devices = [
        PciDevice(
            address=address_of(number),
            vendor="10de",
            device="2330",
            class_="0302",
            numa_node=0,
            driver=None,
        )
        for number in range(count)
    ]
    return a_node_feature(detector_feature_name(node), node, labels=detected_labels(devices))


def address_of(number: int) -> str:
    """The address of a device, in canonical form."""
    return f"0000:{number + 23:02x}:00.0"


def uuid_of(node: str, number: int) -> str:
    """The UUID of a device, as NVML writes it."""
    return f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{number}.{node}')}"


def gpu_instance(node: str, number: int, **more: str) -> dict[str, str]:
    """A device as instances `nvidia.com/gpu` show it; the domain has NVML's eight digits."""
    return {
        "index": str(number),
        "uuid": uuid_of(node, number),
        "pci.address": f"0000{address_of(number).upper()}",
        "pci.vendor": "10DE",
        "pci.device": "2335",
        "pci.class": "0302",
        "product": "NVIDIA H200",
        "memory.total": "143771 MiB",
        "compute.major": "9",
        "compute.minor": "0",
        "numa.node": str(number // 4),
        "mig.capable": "true",
        **more,
    }


def gpu_feature(node: str, count: int = 2, **more: str) -> Json:
    """The NodeFeature that has the instances of a node's devices."""
    devices = [gpu_instance(node, number, **more) for number in range(count)]
    return a_node_feature(f"nvidia-features-for-{node}", node, instances={GPU_INSTANCES: devices})


def agent_device(node: str, number: int, *, of: int = 1, **more: str) -> dict[str, str]:
    """A device as our agent shows it, one of so many."""
    links = [
        {"peer": address_of(other), "type": "NVLink", "count": 18}
        for other in range(of)
        if other != number
    ]
    return {
        "uuid": uuid_of(node, number),
        "pci.address": address_of(number),
        "pci.vendor": "10de",
        "pci.device": "2335",
        "pci.class": "0302",
        "product": "NVIDIA H200",
        "memory.mib": "143771",
        "compute.capability": "9.0",
        "numa.node": str(number // 4),
        "links": json.dumps(links),
        "mig.capable": "true",
        "mig.mode": "Disabled",
        "mig.profiles": "1g.18gb,3g.71gb",
        "mig.instances": "[]",
        "health": "Healthy",
        **more,
    }


def agent_feature(
    node: str, devices: list[dict[str, str]], *, heartbeat: dt.datetime | None = None
) -> Json:
    """The NodeFeature of our agent."""
    annotations = {HEARTBEAT_ANNOTATION: heartbeat.isoformat()} if heartbeat is not None else None
    return a_node_feature(
        f"gpu-control-plane-agent-{node}",
        node,
        instances={AGENT_INSTANCES: devices},
        attributes={
            AGENT_ATTRIBUTES: {
                "driver.version": "570.86.15",
                "cuda.version": "12.8",
                "toolkit.version": "1.17.4",
            }
        },
        annotations=annotations,
    )


def rule_labels(count: int = 2, **more: str) -> dict[str, str]:
    """Labels of the NodeFeatureRule for so many devices."""
    labels = {
        "gpu.deckhouse.io/present": "true",
        "gpu.deckhouse.io/device-count": str(count),
    }
    for number in range(count):
        at = f"gpu.deckhouse.io/device.{number:02d}"
        labels |= {f"{at}.vendor": "10de", f"{at}.device": "2335", f"{at}.class": "0302"}
    return labels | more


def gfd_labels(count: int = 2, **more: str) -> dict[str, str]:
    """Labels of gpu-feature-discovery for so many devices of one model."""
    return {
        "nvidia.com/gfd.timestamp": "1763740800",
        "nvidia.com/gpu.product": "NVIDIA-H200",
        "nvidia.com/gpu.memory": "143771",
        "nvidia.com/gpu.count": str(count),
        "nvidia.com/gpu.replicas": "1",
        "nvidia.com/gpu.family": "hopper",
        "nvidia.com/gpu.compute.major": "9",
        "nvidia.com/gpu.compute.minor": "0",
        "nvidia.com/mig.capable": "true",
        "nvidia.com/cuda.driver-version.full": "570.86.15",
        "nvidia.com/cuda.runtime-version.full": "12.8",
        **more,
    }


def nfd_feature(node: str, *, cpu_features: int = 200) -> Json:
    """NFD's own NodeFeature of a node: mostly about other things."""
    feature = a_node_feature(
        node,
        node,
        labels={
            "feature.node.kubernetes.io/pci-0302_10de.present": "true",
            "feature.node.kubernetes.io/cpu-model.vendor_id": "AMD",
        },
        instances={"pci.device": [{"class": "0302", "vendor": "10de", "device": "2335"}]},
        attributes={"kernel.config": {f"OPTION_{n}": "y" for n in range(cpu_features)}},
    )
    feature["spec"]["features"]["flags"] = {
        "cpu.cpuid": {"elements": {f"FEATURE{n}": {} for n in range(cpu_features)}}
    }
    return feature
