"""Cards as bus and driver show them, and what is published of them as the control plane reads it."""

from dataclasses import dataclass
from typing import Any

import msgspec

from agent.driver.pci import PciCard
from agent.driver.port import DriverCard, DriverLook
from agent.inventory.cards import Published
from agent.inventory.node_feature import feature_body, feature_shows
from api.foreign.nodefeature import NodeFeature
from api.names import NodeName
from inventory.discovery.sources import CardList, FeatureReport, feature_report
from tests.support.builders import EPOCH


@dataclass(frozen=True)
class ReadBack:
    """What the reader made of it."""

    report: FeatureReport
    agent: CardList


FIRST, SECOND = "0000:17:00.0", "0000:18:00.0"


def pci(address: str = FIRST, **changes: Any) -> PciCard:
    fields: dict[str, Any] = {
        "vendor": "10de",
        "device": "2335",
        "class_": "0302",
        "numa_node": 0,
        "driver": "nvidia",
    }
    return PciCard(address=address, **{**fields, **changes})


def said(address: str = FIRST, uuid: str = "GPU-1", **changes: Any) -> DriverCard:
    fields: dict[str, Any] = {"minor": 0, "product": "NVIDIA H200", "memory_mib": 143771}
    return DriverCard(address=address, uuid=uuid, **{**fields, **changes})


def look(*cards: DriverCard) -> DriverLook:
    return DriverLook(driver_version="570.86.15", cuda_version="12.8", cards=cards)


def read_back(published: Published) -> ReadBack:
    body = feature_body(
        published, node=NodeName("n1"), namespace="gpu", owner_uid="uid-n1", now=EPOCH
    )
    feature = msgspec.json.decode(msgspec.json.encode(body), type=NodeFeature)
    assert feature_shows(feature, published, NodeName("n1"))
    report = feature_report(feature)
    assert report.agent is not None
    return ReadBack(report, report.agent)
