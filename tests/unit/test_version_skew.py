"""Agents and server of neighbouring versions understand each other: `tests/data/agents/<version>`.

Each folder has what the agents of a release write, and the pool's file that its plugins read. It is
never edited: a release adds its own, and the one before the last may be removed. `docs/install.md`
has the rules.
"""

import datetime as dt
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent.allocations.entries import body_of
from agent.inventory.node_devices import PublishedFeatures
from agent.inventory.node_feature import feature_body
from api.annotations import ReservationNote, decode_devices, decode_reservation
from api.driver_upgrade import UPGRADE_RECORD_ANNOTATION, UPGRADE_STATE_LABEL, UpgradeState
from api.foreign.nodefeature import AgentDevice, NodeFeature
from api.kinds.gpudevice import LastXid
from api.kinds.gpunodeinventory import ContainerDevices, GPUNodeInventory
from api.names import DEVICES_ANNOTATION, RESERVATION_ANNOTATION, NodeName, PodUid, UnitId
from api.nodefiles.node_devices_file import NodeDevices
from api.nodefiles.node_pods_file import NodePodsFile
from api.nodefiles.pluginproblems import PluginProblem
from api.nodefiles.poolconfig import PoolConfig
from inventory.discovery.sources import feature_report
from inventory.health.device import HealthReport
from operands.nvidia.label_change import DesiredLabels, LabelledNode, change_of
from operands.upgrade.facts import UpgradeNode
from operands.upgrade.reasons import UpgradeReason
from operands.upgrade.record import UpgradeRecord, read_record
from pool.facts import reports_of

RELEASES = sorted((Path(__file__).parents[1] / "data" / "agents").iterdir())
NEWEST = RELEASES[-1]
HEARTBEAT = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
UUID = "GPU-11111111-2222-3333-4444-555555555555"
FILES: dict[str, type[Any]] = {
    "cards.json": NodeDevices,
    "pods.json": NodePodsFile,
    "plugin-problem.json": PluginProblem,
    "config.json": PoolConfig,
}
of_each_release = pytest.mark.parametrize("release", RELEASES, ids=lambda path: path.name)


def includes(found: Any, expected: Any) -> bool:
    """Say whether all of `expected` is found, at its place; more may be there."""
    if isinstance(expected, dict):
        return isinstance(found, dict) and all(
            key in found and includes(found[key], value) for key, value in expected.items()
        )
    if isinstance(expected, list):
        return (
            isinstance(found, list)
            and len(found) == len(expected)
            and all(map(includes, found, expected))
        )
    return bool(found == expected)


def written(release: Path, file: str) -> Any:
    return json.loads((release / file).read_text(encoding="utf-8"))


@of_each_release
def test_server_reads_every_fact_of_an_agents_node_feature(release: Path):
    feature = msgspec.json.decode((release / "node-feature.json").read_bytes(), type=NodeFeature)
    report = feature_report(feature)
    assert feature.node == "n1"
    assert report.bad == frozenset()
    assert report.heartbeat == HEARTBEAT
    assert (report.versions.driver, report.versions.cuda) == ("570.86.15", "12.8")
    assert report.health == {
        UUID: HealthReport(
            "Unhealthy",
            "Xid79",
            "NodeReboot",
            "attempt-1-Refused",
            LastXid(79, "2026-01-01T00:00:00Z"),
        )
    }
    assert report.agent is not None
    assert report.agent.is_complete
    (device,) = report.agent.devices
    facts = {field: getattr(device, field) for field in device.__slots__}
    # No fact that a source can report is unread.
    assert None not in facts.values(), facts
    assert (device.uuid, device.address, device.numa_node) == (UUID, "0000:17:00.0", 0)
    assert (device.memory_mib, device.compute_capability) == (143771, "9.0")
    assert (device.mig_mode, device.mig_profiles) == ("Enabled", ("1g.18gb", "3g.71gb"))
    assert device.mig_capacities == (("1g.18gb", 7), ("3g.71gb", 2))


@of_each_release
def test_server_reads_the_allocations_that_an_agent_reports(release: Path):
    inventory = msgspec.json.decode(
        (release / "allocations.json").read_bytes(), type=GPUNodeInventory
    )
    (entries,) = reports_of(inventory).values()
    (uid,) = reports_of(inventory)
    assert uid == PodUid("uid-train")
    assert [(entry.resource, entry.units) for entry in entries] == [
        ("gpu.deckhouse.io/training", ["GPU-1", "GPU-2"])
    ]


@of_each_release
def test_annotations_of_pods_are_read_with_every_field(release: Path):
    annotations = written(release, "pod-annotations.json")
    assert decode_devices(annotations[DEVICES_ANNOTATION]) == {
        "init": ("GPU-1",),
        "main": ("GPU-1", "GPU-2"),
    }
    note = decode_reservation(annotations[RESERVATION_ANNOTATION])
    assert note == ReservationNote(
        id="r1",
        pool="training",
        node="n1",
        devices={"main": (UnitId("GPU-1"),)},
        expires_at=HEARTBEAT,
        signature="c2VhbA",
    )
    assert json.loads(note.encode()) == json.loads(annotations[RESERVATION_ANNOTATION])


@of_each_release
@pytest.mark.parametrize("file", FILES)
def test_file_on_a_node_is_read_with_every_field(release: Path, file: str):
    value = msgspec.json.decode((release / file).read_bytes(), type=FILES[file])
    # What is written back has all that was read: no field was ignored.
    assert includes(json.loads(msgspec.json.encode(value)), written(release, file))


def test_agents_of_today_write_what_the_newest_release_wrote():
    """A field that is left out or renamed is missed by a server of the release before."""
    expected = written(NEWEST, "node-feature.json")
    features = expected["spec"]["features"]
    (device,) = features["instances"]["gpu.deckhouse.io/device"]["elements"]
    published = PublishedFeatures(
        devices=(device["attributes"],),
        node=features["attributes"]["gpu.deckhouse.io/node"]["elements"],
    )
    body = feature_body(
        published,
        node=NodeName("n1"),
        namespace="gpu-control-plane",
        owner_uid="uid-n1",
        now=HEARTBEAT,
    )
    assert includes(body, expected)

    report = written(NEWEST, "allocations.json")
    entries = msgspec.convert(report["status"]["allocations"], tuple[ContainerDevices, ...])
    assert includes(json.loads(msgspec.json.encode(body_of("n1", entries))), report)


@pytest.mark.parametrize("file", FILES)
def test_reader_ignores_fields_of_a_newer_writer(file: str):
    newer = written(NEWEST, file) | {"unheardOf": {"x": 1}}
    msgspec.json.decode(msgspec.json.encode(newer), type=FILES[file])


def test_today_has_no_fact_of_a_device_that_the_newest_release_does_not_write():
    """A new attribute of agents needs a golden file of its own: the release's folder is incomplete."""
    attributes = {value for key, value in vars(AgentDevice).items() if key.isupper()}
    elements = written(NEWEST, "node-feature.json")["spec"]["features"]["instances"]
    (device,) = elements["gpu.deckhouse.io/device"]["elements"]
    assert attributes - device["attributes"].keys() == set()


def test_record_of_an_upgrade_survives_a_reason_of_the_next_version():
    record = UpgradeRecord(
        UpgradeState.UPGRADE_FAILED,
        HEARTBEAT,
        attempt=4,
        reason=UpgradeReason.FAILED,
        revision="r7",
        replaces="uid-1",
    )
    text = record.encode().replace(f'"{UpgradeReason.FAILED.value}"', '"ReasonOfTheNextVersion"')
    assert text != record.encode()
    node = UpgradeNode(
        name=NodeName("n1"),
        labels={UPGRADE_STATE_LABEL: UpgradeState.UPGRADE_FAILED.value},
        annotations={UPGRADE_RECORD_ANNOTATION: text},
    )
    found = read_record(node, HEARTBEAT).record
    assert (found.attempt, found.revision, found.replaces) == (4, "r7", "uid-1")
    assert found.encode() == text
    assert read_record(node, HEARTBEAT).record == found
    assert found.reason not in set(UpgradeReason)


def test_labels_of_operands_of_the_next_version_stay_recorded_and_go_with_all_others():
    later = "nvidia.com/gpu.deploy.operand-of-the-next-version"
    driver = "nvidia.com/gpu.deploy.driver"
    node = LabelledNode(labels={later: "true", driver: "true"}, recorded=f"{driver},{later}")
    kept = change_of(node, DesiredLabels(values={driver: "true"}))
    assert not kept.labels
    assert not kept.annotations
    removed = change_of(node, DesiredLabels(is_removal=True))
    assert removed.labels == {driver: None, later: None}
