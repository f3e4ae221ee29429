"""A device's facts: which source may change what is known, and which may only add to it."""

import pytest

from api.kinds.gpudevice import MIG, PCI, GPUDeviceStatus, MIGInstance
from api.names import NodeName
from inventory.discovery.merge import DeviceReport
from inventory.discovery.parsing import MigPartition
from inventory.discovery.resolve import ResolvedFacts, resolve_facts
from inventory.discovery.sources import ReportedDevice, Source

ADDRESS = "0000:17:00.0"
KNOWN = GPUDeviceStatus(
    uuid="GPU-1",
    product="NVIDIA-A100-SXM4-80GB",
    memory_mib=81920,
    compute_capability="8.0",
    pci=PCI(vendor="10de", device="2999", address=ADDRESS),
    numa_node=1,
    mig=MIG(
        capable=True,
        mode="Enabled",
        profiles=["1g.10gb"],
        instances=[MIGInstance(profile="1g.10gb", uuid="MIG-1")],
    ),
)


def report_of(
    source: Source = Source.AGENT, *, is_fresh: bool = True, **facts: object
) -> DeviceReport:
    return DeviceReport(source=source, is_fresh=is_fresh, facts=ReportedDevice(**facts))  # type: ignore[arg-type]


def resolved(*statements: DeviceReport, current: GPUDeviceStatus = KNOWN) -> ResolvedFacts:
    return resolve_facts(current, statements, node=NodeName("n1"), address=ADDRESS)


def test_silence_loses_nothing_and_is_named():
    found = resolved()
    assert found.status.uuid == KNOWN.uuid
    assert (found.status.product, found.status.mig) == (KNOWN.product, KNOWN.mig)
    assert (found.status.memory_mib, found.status.numa_node) == (81920, 1)
    assert found.unreported == (
        "computeCapability",
        "memoryMiB",
        "mig",
        "numaNode",
        "pci",
        "product",
        "uuid",
    )


@pytest.mark.parametrize(
    ("source", "product", "want"),
    [
        (Source.AGENT, "NVIDIA A100-SXM4-80GB", KNOWN.product),
        (Source.INSTANCES, "GA100 [A100 SXM4 80GB]", KNOWN.product),
        (Source.INSTANCES, "NVIDIA H200", "NVIDIA-H200"),
        (Source.NODE, "NVIDIA-H200", KNOWN.product),
        (Source.SLOTS, "NVIDIA-H200", KNOWN.product),
    ],
)
def test_a_product_changes_only_by_a_source_of_each_device(source: Source, product: str, want: str):
    """Lesson 2: another spelling is no other product."""
    assert resolved(report_of(source, product=product)).status.product == want


@pytest.mark.parametrize(
    ("source", "memory", "want"),
    [
        (Source.AGENT, 81559, 81559),
        (Source.INSTANCES, 81559, 81920),
        (Source.INSTANCES, 40960, 40960),
        (Source.NODE, 40960, 81920),
    ],
)
def test_a_size_that_hardly_differs_is_a_spelling(source: Source, memory: int, want: int):
    assert resolved(report_of(source, memory_mib=memory)).status.memory_mib == want


@pytest.mark.parametrize(
    ("source", "want"), [(Source.NODE, "8.0"), (Source.SLOTS, "8.0"), (Source.INSTANCES, "9.0")]
)
def test_labels_do_not_change_a_known_fact(source: Source, want: str):
    reported = report_of(source, compute_capability="9.0")
    assert resolved(reported).status.compute_capability == want


def test_labels_fill_unknown_facts():
    label = report_of(Source.NODE, product="NVIDIA-H200", memory_mib=1, mig_profiles=("1g.18gb",))
    status = resolved(label, current=GPUDeviceStatus()).status
    assert (status.product, status.memory_mib) == ("NVIDIA-H200", 1)
    assert status.mig.profiles == ["1g.18gb"]


def test_profiles_of_labels_add_up_and_those_of_the_device_are_all():
    label = report_of(Source.NODE, mig_profiles=("3g.40gb",))
    assert resolved(label).status.mig.profiles == ["1g.10gb", "3g.40gb"]
    device = report_of(Source.AGENT, mig_profiles=("3g.40gb",))
    assert resolved(device, label).status.mig.profiles == ["3g.40gb"]


def test_instances_follow_the_device():
    found = resolved(
        report_of(mig_mode="Enabled", mig_instances=(MigPartition("3g.40gb", "MIG-2"),))
    )
    assert found.status.mig.instances == [MIGInstance(profile="3g.40gb", uuid="MIG-2")]
    assert resolved(report_of(mig_mode="Disabled", mig_instances=())).status.mig.instances is None


def test_a_fresh_source_decides_on_the_uuid_and_a_silent_one_only_alone():
    silent, fresh = (
        report_of(is_fresh=False, uuid="GPU-1"),
        report_of(Source.INSTANCES, uuid="GPU-2"),
    )
    assert resolved(silent, fresh).status.uuid == "GPU-2"
    assert resolved(silent, current=GPUDeviceStatus()).status.uuid == "GPU-1"


def test_a_silent_source_makes_no_other_device_of_a_known_one():
    silent, nameless = report_of(is_fresh=False, uuid="GPU-2"), report_of(Source.INSTANCES)
    assert resolved(silent, nameless).status.uuid == "GPU-1"


def test_reports_on_the_previous_device_are_ignored():
    old = report_of(is_fresh=False, uuid="GPU-1", product="NVIDIA A100-SXM4-80GB", memory_mib=81920)
    new = report_of(Source.INSTANCES, uuid="GPU-2", product="NVIDIA H200")
    status = resolved(old, new, current=GPUDeviceStatus()).status
    assert (status.product, status.memory_mib) == ("NVIDIA-H200", 0)


def test_the_table_of_ids_gives_way_to_any_name():
    ids = report_of(vendor="10de", device="20b2")
    guess = resolved(ids, current=GPUDeviceStatus()).status
    assert guess.product == "NVIDIA-A100-SXM4-80GB"
    named = resolved(ids, report_of(Source.NODE, product="NVIDIA-A100-CUSTOM"), current=guess)
    assert named.status.product == "NVIDIA-A100-CUSTOM"


def test_no_numa_node_is_a_fact_and_not_a_number():
    assert resolved(report_of(numa_node=-1)).status.numa_node is None
