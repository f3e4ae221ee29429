"""The page of a DCGM exporter: what it says of devices, and what is skipped."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inventory.health.dcgm import MAX_DEVICES, DeviceReading, parse_page
from tests.support.dcgm import a_page, device_lines

UUID = "GPU-5a1e2d3c-0000-1111-2222-333344445555"

# As dcgm-exporter 3.3 to 4.x writes it.
REAL = f"""\
# HELP DCGM_FI_DEV_SM_CLOCK SM clock frequency (in MHz).
# TYPE DCGM_FI_DEV_SM_CLOCK gauge
DCGM_FI_DEV_SM_CLOCK{{gpu="0",UUID="{UUID}",pci_bus_id="00000000:17:00.0",device="nvidia0",modelName="NVIDIA A100-SXM4-80GB",Hostname="n1",DCGM_FI_DRIVER_VERSION="550.54.15"}} 1410
# HELP DCGM_FI_DEV_GPU_TEMP GPU temperature (in C).
# TYPE DCGM_FI_DEV_GPU_TEMP gauge
DCGM_FI_DEV_GPU_TEMP{{gpu="0",UUID="{UUID}",pci_bus_id="00000000:17:00.0",device="nvidia0",modelName="NVIDIA A100-SXM4-80GB",Hostname="n1"}} 34
# HELP DCGM_FI_DEV_XID_ERRORS Value of the last XID error encountered.
# TYPE DCGM_FI_DEV_XID_ERRORS gauge
DCGM_FI_DEV_XID_ERRORS{{gpu="0",UUID="{UUID}",pci_bus_id="00000000:17:00.0",device="nvidia0",modelName="NVIDIA A100-SXM4-80GB",Hostname="n1",err_code="79",err_msg="GPU has fallen off the bus"}} 79
# HELP DCGM_FI_DEV_ECC_DBE_VOL_TOTAL Total number of double-bit volatile ECC errors.
# TYPE DCGM_FI_DEV_ECC_DBE_VOL_TOTAL counter
DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{{gpu="0",UUID="{UUID}",device="nvidia0"}} 2
DCGM_FI_DEV_ECC_DBE_AGG_TOTAL{{gpu="0",UUID="{UUID}",device="nvidia0"}} 1.2e+01
DCGM_FI_DEV_THERMAL_VIOLATION{{gpu="0",UUID="{UUID}",device="nvidia0"}} 1500 1700000000000
"""


def test_a_page_as_the_exporter_writes_it_is_read():
    page = parse_page(REAL)
    assert page.is_dcgm
    assert page.bad_lines == 0
    assert page.devices == {
        UUID: DeviceReading(
            xids=frozenset({79}),
            last_xid=79,
            volatile_errors=2,
            aggregate_errors=12,
            thermal_violation=1500,
        )
    }


def test_a_device_is_listed_by_any_of_its_series():
    page = parse_page(f'DCGM_FI_DEV_GPU_TEMP{{gpu="0",UUID="{UUID}"}} 34\n')
    assert page.devices == {UUID: DeviceReading()}


def test_no_error_is_not_the_error_0():
    assert parse_page(a_page(device_lines(UUID, xid=0))).devices[UUID].xids == frozenset()


def test_of_the_parts_of_a_device_the_largest_figure_counts():
    lines = [
        f'DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{{UUID="{UUID}",GPU_I_ID="{part}"}} {count}'
        for part, count in ((1, 3), (2, 7), (3, 0))
    ]
    assert parse_page("\n".join(lines)).devices[UUID].volatile_errors == 7


def test_lower_case_and_any_place_of_the_label_do():
    line = f'DCGM_FI_DEV_XID_ERRORS{{modelName="a, UUID=\\"GPU-x\\"", uuid="{UUID}"}} 48'
    assert set(parse_page(line).devices) == {UUID}


@pytest.mark.parametrize("value", ["9223372036854775794", "9.223372036854775794e+18"])
def test_a_blank_of_dcgm_is_no_figure(value: str):
    page = parse_page(f'DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{{UUID="{UUID}"}} {value}')
    assert page.devices == {UUID: DeviceReading()}
    assert page.bad_lines == 0


@pytest.mark.parametrize(
    "line",
    [
        pytest.param('DCGM_FI_DEV_XID_ERRORS{gpu="0"} 79', id="no UUID"),
        pytest.param(f'DCGM_FI_DEV_XID_ERRORS{{UUID="{UUID}"}} much', id="no number"),
        pytest.param(f'DCGM_FI_DEV_XID_ERRORS{{UUID="{UUID}"}} NaN', id="not a number"),
        pytest.param(f'DCGM_FI_DEV_XID_ERRORS{{UUID="{UUID}"}} -1', id="negative"),
        pytest.param(f'DCGM_FI_DEV_XID_ERRORS{{UUID="{UUID}"}} +Inf', id="infinite"),
        pytest.param(f'DCGM_FI_DEV_XID_ERRORS{{UUID="{UUID}" 79', id="cut off"),
        pytest.param("DCGM_FI_DEV_XID_ERRORS 79", id="no labels"),
        pytest.param(f'DCGM_FI_DEV_XID_ERRORS{{UUID="{"x" * 97}"}} 79', id="a long UUID"),
    ],
)
def test_an_invalid_line_is_counted_and_skipped(line: str):
    page = parse_page(f"{line}\n{device_lines(UUID, xid=0)}")
    assert page.bad_lines == 1
    assert page.devices[UUID].xids == frozenset()


def test_other_series_are_none_of_ours():
    page = parse_page('DCGM_FI_DEV_XID_ERRORS_COUNT{gpu="0"} 1\nprocess_cpu_seconds_total 1\n')
    assert (page.devices, page.bad_lines, page.is_dcgm) == ({}, 0, True)


@pytest.mark.parametrize("text", ["", "<html>404</html>", "# HELP DCGM_FI_DEV_GPU_TEMP x"])
def test_a_foreign_page_is_recognised(text: str):
    assert not parse_page(text).is_dcgm


def test_more_devices_than_a_node_can_have_are_not_taken_in():
    page = parse_page("\n".join(device_lines(f"GPU-{i}") for i in range(MAX_DEVICES + 5)))
    assert len(page.devices) == MAX_DEVICES
    assert page.bad_lines >= 5


@given(st.text() | st.from_regex(r"DCGM_FI_DEV_XID_ERRORS\{?[^\n]*", fullmatch=True))
def test_nothing_that_a_pod_sends_raises(text: str):
    parse_page(text)
