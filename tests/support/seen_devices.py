"""Devices as bus and driver show them, and what is published of them as the control plane reads it."""

from dataclasses import dataclass
from typing import Any

import msgspec

from agent.driver.pci import PciDevice
from agent.driver.port import DriverDevice, DriverSnapshot
from agent.inventory.node_devices import PublishedFeatures
from agent.inventory.node_feature import feature_body, feature_shows
from api.foreign.nodefeature import NodeFeature
from api.names import NodeName
from inventory.discovery.sources import DeviceList, FeatureReport, feature_report
from tests.support.builders import EPOCH


@dataclass(frozen=True)
class ReadBack:
    """What the reader made of it."""

    report: FeatureReport
    agent: DeviceList


FIRST, SECOND = "0000:17:00.0", "0000:18:00.0"


def pci(address: str = FIRST, **changes: Any) -> PciDevice:
    fields: dict[str, Any] = {
        "vendor": "10de",
        "device": "2335",
        "class_": "0302",
        "numa_node": 0,
        "driver": "nvidia",
    }
    return PciDevice(address=address, **{**fields, **changes})


def said(address: str = FIRST, uuid: str = "GPU-1", **changes: Any) -> DriverDevice:
    fields: dict[str, Any] = {"minor": 0, "product": "NVIDIA H200", "memory_mib": 143771}
    return DriverDevice(address=address, uuid=uuid, **{**fields, **changes})


def snapshot(*devices: DriverDevice) -> DriverSnapshot:
    return DriverSnapshot(driver_version="570.86.15", cuda_version="12.8", devices=devices)


def read_back(published: PublishedFeatures) -> ReadBack:
    body = feature_body(
        published, node=NodeName("n1"), namespace="gpu", owner_uid="uid-n1", now=EPOCH
    )
    feature = msgspec.json.decode(msgspec.json.encode(body), type=NodeFeature)
    assert feature_shows(feature, published, NodeName("n1"))
    report = feature_report(feature)
    assert report.agent is not None
    return ReadBack(report, report.agent)
