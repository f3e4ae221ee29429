"""The page of the devices' metrics: labels of dcgm-exporter, holders, and values that no device has."""

import pytest
from msgspec import structs
from prometheus_client.parser import text_string_to_metric_families

from agent.device_metrics.holders import Holder, holders_of
from agent.device_metrics.page import DevicePage, page_of
from agent.device_metrics.unaccounted_processes import UnaccountedDevice
from agent.driver.device_fields import DeviceField, DeviceSample
from api.kinds.gpunodeinventory import ContainerDevices
from api.names import PodUid
from inventory.health.dcgm import parse_page

UUID = "GPU-00000000-0000-0000-0000-000000000000"
VALUES = {DeviceField.GPU_UTIL: 37, DeviceField.POWER_USAGE: 411.25, DeviceField.XID_ERRORS: 0}


def a_sample(index: int = 0, **changes: object) -> DeviceSample:
    fields = {
        "index": index,
        "address": f"0000:1{index}:00.0",
        "uuid": f"{UUID[:-1]}{index}",
        "minor": index,
        "product": "NVIDIA H100 80GB HBM3",
        "values": VALUES,
    }
    return DeviceSample(**(fields | changes))  # type: ignore[arg-type]  # the names are DeviceSample's


def allocated(pod: str, *units: str, resource: str = "gpu.deckhouse.io/whole") -> ContainerDevices:
    return ContainerDevices(
        namespace="team",
        pod=pod,
        container="main",
        resource=resource,
        units=list(units),
        uid=f"uid-{pod}",
    )


def a_page(
    *samples: DeviceSample,
    allocations: tuple[ContainerDevices, ...] = (),
    names: dict[str, str] | None = None,
    pools: dict[str, str] | None = None,
    unaccounted: dict[UnaccountedDevice, int] | None = None,
    is_stale: bool = False,
) -> DevicePage:
    return page_of(
        samples,
        holders_of(allocations, names or {}),
        pools=pools or {},
        node="n1",
        unaccounted=unaccounted,
        is_stale=is_stale,
    )


def series(page: DevicePage, field: DeviceField) -> list[tuple[dict[str, str], float]]:
    families = text_string_to_metric_families(page.content.decode())
    return [
        (sample.labels, sample.value)
        for family in families
        for sample in family.samples
        if sample.name.removesuffix("_total") == field.value.name.removesuffix("_total")
    ]


def test_labels_are_those_of_dcgm_exporter():
    page = a_page(a_sample(minor=3))
    assert page.content.decode().splitlines()[3:6] == [
        "# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).",
        "# TYPE DCGM_FI_DEV_GPU_UTIL gauge",
        f'DCGM_FI_DEV_GPU_UTIL{{gpu="0",UUID="{UUID}",pci_bus_id="00000000:10:00.0",device="nvidia3",'
        'modelName="NVIDIA H100 80GB HBM3",Hostname="n1",namespace="",pod="",container=""} 37',
    ]


def test_fraction_stays():
    assert [value for _, value in series(a_page(a_sample()), DeviceField.POWER_USAGE)] == [411.25]


def test_page_is_one_that_our_own_reader_of_dcgm_exporter_understands():
    sample = a_sample(values={DeviceField.XID_ERRORS: 79, DeviceField.ECC_DBE_VOL_TOTAL: 2})
    read = parse_page(a_page(sample).content.decode())
    assert (read.is_dcgm, read.bad_lines) == (True, 0)
    assert read.devices[UUID].xids == {79}
    assert read.devices[UUID].volatile_errors == 2


def test_whole_device_has_the_labels_of_its_container_in_every_field():
    page = a_page(a_sample(), allocations=(allocated("p", UUID),))
    for field in VALUES:
        [(labels, _)] = series(page, field)
        assert (labels["pool"], labels["namespace"]) == ("whole", "team")
        assert (labels["pod"], labels["container"]) == ("p", "main")


def test_free_device_has_the_pool_alone():
    [(labels, _)] = series(a_page(a_sample(), pools={UUID: "whole"}), DeviceField.GPU_UTIL)
    assert labels["pool"] == "whole"
    assert [labels[name] for name in ("namespace", "pod", "container")] == ["", "", ""]


def test_shared_device_has_a_series_for_each_container_in_the_fields_of_usage():
    page = a_page(
        a_sample(),
        allocations=(
            allocated("a", f"{UUID}::0", f"{UUID}::1"),
            allocated("b", f"{UUID}::2"),
        ),
    )
    assert [labels["pod"] for labels, _ in series(page, DeviceField.GPU_UTIL)] == ["a", "b"]
    [(labels, _)] = series(page, DeviceField.XID_ERRORS)
    assert labels["pool"] == "whole"
    assert labels["pod"] == ""


def test_series_are_distinct_where_a_pod_replaces_one_of_its_name():
    new = allocated("p", UUID)
    old = structs.replace(new, uid="uid-of-before")
    assert len(series(a_page(a_sample(), allocations=(old, new)), DeviceField.GPU_UTIL)) == 1


def test_instance_has_its_own_container():
    values = {DeviceField.FB_USED: 7, DeviceField.FB_FREE: 9}
    instance = a_sample(values=values, gpu_instance=7, profile="1g.10gb", unit="MIG-a")
    page = a_page(
        a_sample(), instance, allocations=(allocated("p", "MIG-a"),), pools={UUID: "whole"}
    )
    [(labels, value)] = series(page, DeviceField.FB_USED)
    assert (labels["UUID"], labels["GPU_I_ID"], labels["GPU_I_PROFILE"]) == (UUID, "7", "1g.10gb")
    assert (labels["pod"], value) == ("p", 7)
    [(labels, _)] = series(page, DeviceField.GPU_UTIL)
    assert labels["pod"] == ""


def test_pool_with_a_resource_name_of_its_own_is_named():
    page = a_page(
        a_sample(),
        allocations=(allocated("p", UUID, resource="nvidia.com/gpu"),),
        names={"nvidia.com/gpu": "legacy"},
    )
    [(labels, _)] = series(page, DeviceField.GPU_UTIL)
    assert labels["pool"] == "legacy"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        pytest.param(DeviceField.GPU_UTIL, 65535, id="utilisation of 65535"),
        pytest.param(DeviceField.GPU_TEMP, -1, id="negative"),
        pytest.param(DeviceField.POWER_USAGE, float("nan"), id="no number"),
        pytest.param(DeviceField.POWER_USAGE, float("inf"), id="infinite"),
        pytest.param(DeviceField.ECC_DBE_VOL_TOTAL, 2**64 - 1, id="a blank of 64 bits"),
    ],
)
def test_implausible_value_is_left_out_and_told(field: DeviceField, value: float):
    page = a_page(a_sample(values={field: value}), a_sample(1, values={field: 1}))
    assert page.implausible == [field]
    assert [found for _, found in series(page, field)] == [1]


def test_field_without_a_value_is_not_on_the_page():
    page = a_page(a_sample(values={DeviceField.GPU_UTIL: 65535}))
    assert b"DCGM" not in page.content


def test_text_of_a_driver_stays_within_its_label():
    product = 'NVIDIA "\\A\n100"'
    [(labels, _)] = series(a_page(a_sample(product=product)), DeviceField.GPU_UTIL)
    assert labels["modelName"] == product


@pytest.mark.parametrize("is_stale", [False, True])
def test_page_tells_whether_it_is_stale(is_stale: bool):
    page = a_page(a_sample(), is_stale=is_stale)
    assert f"\ngpu_device_metrics_stale {int(is_stale)}\n" in page.content.decode()


def test_unaccounted_processes_have_the_labels_of_device_and_pod():
    instance = a_sample(values={}, gpu_instance=7, profile="1g.10gb", unit="MIG-a")
    theirs = Holder("parts", "team", "thief", "")
    counts = {
        UnaccountedDevice(UUID, None, Holder("whole", "", "", "")): 1,
        UnaccountedDevice("MIG-a", PodUid("uid"), theirs): 2,
        UnaccountedDevice("GPU-gone", None, theirs): 3,
    }
    page = a_page(a_sample(), instance, unaccounted=counts)
    [family] = [
        item
        for item in text_string_to_metric_families(page.content.decode())
        if item.name == "gpu_process_unaccounted"
    ]
    host, pod = family.samples
    assert (host.labels["pool"], host.value) == ("whole", 1)
    assert (host.labels["namespace"], host.labels["pod"]) == ("", "")
    assert (pod.labels["namespace"], pod.labels["pod"], pod.value) == ("team", "thief", 2)
    assert (pod.labels["UUID"], pod.labels["GPU_I_ID"]) == (UUID, "7")


def test_page_without_unaccounted_processes_does_not_mention_them():
    gone = {UnaccountedDevice("GPU-gone", None, Holder("whole", "", "", "")): 1}
    assert b"unaccounted" not in a_page(a_sample(), unaccounted=gone).content


def test_worst_node_stays_small():
    """16 devices of 64 slices, each another pod's: two megabytes, and a line for each only where it differs."""
    samples = [
        a_sample(index, values=dict.fromkeys(DeviceField, 1), uuid=f"GPU-{index:036}")
        for index in range(16)
    ]
    allocations = [
        allocated(f"pod-{index}-{part}", f"GPU-{index:036}::{part}")
        for index in range(16)
        for part in range(64)
    ]
    page = a_page(*samples, allocations=tuple(allocations))
    usage = sum(field.value.is_usage for field in DeviceField)
    assert page.content.count(b"\nDCGM_") == 16 * (64 * usage + len(DeviceField) - usage)
    assert len(page.content) < 2 * 1024 * 1024
