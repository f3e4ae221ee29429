"""When a device is faulty, and when it is well again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inventory.health.dcgm import parse_page
from inventory.health.device import (
    UNKNOWN,
    DeviceHealth,
    ExporterSample,
    HealthDebounceLimits,
    HealthReport,
    assess_health,
)
from inventory.health.recovery import RecoveryAction
from tests.support.dcgm import device_lines

UUID = "GPU-a"
OTHER = device_lines("GPU-b")
LIMITS = HealthDebounceLimits()
CLEAN = device_lines(UUID)


def current(
    *pages: str, before: DeviceHealth = UNKNOWN, start: float = 0.0, period_s: float = 15.0
) -> DeviceHealth:
    """Examine the device by one page after the other."""
    health = before
    for number, page in enumerate(pages):
        at = start + number * period_s
        seen = ExporterSample(at, parse_page(page))
        health = assess_health(health, UUID, seen=seen, report=None, limits=LIMITS, now=at)
    return health


def reported(*statuses: str, before: DeviceHealth = UNKNOWN, start: float = 0.0) -> DeviceHealth:
    """Examine the device by what our agent says every ten seconds."""
    health = before
    for number, status in enumerate(statuses):
        state, reason, action, *_ = [*status.split(":"), "", ""]
        report = HealthReport(state, reason, action)
        now = start + number * 10.0
        health = assess_health(health, UUID, seen=None, report=report, limits=LIMITS, now=now)
    return health


def action(health: DeviceHealth) -> RecoveryAction | None:
    fault = health.present_fault
    return fault.action if fault is not None else None


@pytest.mark.parametrize(
    ("pages", "fault"),
    [
        pytest.param([CLEAN], None, id="clean"),
        pytest.param(
            [device_lines(UUID, xid=79)], RecoveryAction.NODE_REBOOT, id="a fatal Xid, at once"
        ),
        pytest.param([CLEAN, device_lines(UUID, xid=48)], RecoveryAction.GPU_RESET, id="a new Xid"),
        pytest.param(
            [CLEAN, device_lines(UUID, volatile=1)],
            RecoveryAction.GPU_RESET,
            id="a new volatile error",
        ),
        pytest.param(
            [device_lines(UUID, aggregate=4), device_lines(UUID, aggregate=5)],
            RecoveryAction.GPU_RESET,
            id="a new error of many",
        ),
        pytest.param(
            [device_lines(UUID, volatile=9, aggregate=9)], None, id="errors from before we looked"
        ),
        pytest.param(
            [device_lines(UUID, volatile=9), device_lines(UUID, volatile=1)],
            None,
            id="a counter that begins again",
        ),
        pytest.param(
            [CLEAN + OTHER, OTHER], RecoveryAction.NODE_REBOOT, id="listed, and not any more"
        ),
        pytest.param([OTHER, OTHER], None, id="never listed"),
        pytest.param([CLEAN, ""], None, id="an exporter that starts lists nothing"),
        pytest.param(
            [device_lines(UUID, thermal=heat) for heat in (1, 2, 3)], None, id="hot for a moment"
        ),
        pytest.param(
            [device_lines(UUID, thermal=heat) for heat in (1, 2, 3, 4)],
            RecoveryAction.CHECK_COOLING,
            id="hot in three samples in a row",
        ),
    ],
)
def test_an_exporters_figures_make_a_device_faulty_or_do_not(
    pages: list[str], fault: RecoveryAction | None
):
    assert action(current(*pages)) is fault


@pytest.mark.parametrize("xid", [13, 31, 43, 45, 68, 94])
def test_an_error_of_an_application_harms_no_device(xid: int):
    assert not current(CLEAN, device_lines(UUID, xid=xid)).is_faulted


def test_a_fault_ends_after_three_clean_samples():
    faulty = current(CLEAN, device_lines(UUID, volatile=1))
    same = device_lines(UUID, volatile=1)
    assert current(same, same, before=faulty, start=30).is_faulted
    assert not current(same, same, same, before=faulty, start=30).is_faulted


def test_a_relapse_starts_the_count_again():
    faulty = current(CLEAN, device_lines(UUID, volatile=1))
    one, two = device_lines(UUID, volatile=1), device_lines(UUID, volatile=2)
    assert current(one, one, two, two, two, before=faulty, start=30).is_faulted
    assert not current(one, one, two, two, two, two, before=faulty, start=30).is_faulted


def test_a_fatal_xid_stays_while_the_exporter_shows_it():
    faulty = current(*[device_lines(UUID, xid=79)] * 20)
    assert action(faulty) is RecoveryAction.NODE_REBOOT
    assert not current(CLEAN, CLEAN, CLEAN, before=faulty, start=400).is_faulted


@pytest.mark.parametrize("ignored", [31, 45])
def test_an_ignored_xid_that_replaces_a_fatal_one_heals_nothing(ignored: int):
    """The exporter shows the last Xid alone."""
    fatal, harmless = device_lines(UUID, xid=48), device_lines(UUID, xid=ignored)
    faulty = current(CLEAN, fatal, *[harmless] * 20)
    fault = faulty.present_fault
    assert fault is not None
    assert (fault.action, "Xid 48" in fault.text) == (RecoveryAction.GPU_RESET, True)
    assert current(CLEAN, CLEAN, before=faulty, start=400).is_faulted
    assert not current(CLEAN, CLEAN, CLEAN, harmless, before=faulty, start=400).is_faulted


def test_a_fatal_xid_is_remembered_while_the_exporter_does_not_list_the_device():
    health = current(CLEAN + OTHER, device_lines(UUID, xid=79) + OTHER)
    healthy = HealthReport("Healthy")
    pages = [OTHER] * 5 + [device_lines(UUID, xid=31) + OTHER] * 5
    for number, page in enumerate(pages, start=2):
        seen = ExporterSample(number * 15.0, parse_page(page))
        health = assess_health(
            health, UUID, seen=seen, report=healthy, limits=LIMITS, now=number * 15.0
        )
        assert health.is_faulted


def test_the_same_page_looked_at_again_is_no_new_sample():
    faulty = current(CLEAN, device_lines(UUID, volatile=1))
    seen = ExporterSample(30, parse_page(CLEAN))
    health = faulty
    for now in (30, 45, 60, 75, 90):
        health = assess_health(health, UUID, seen=seen, report=None, limits=LIMITS, now=now)
    assert health.is_faulted


def test_a_page_looked_at_again_interrupts_no_row_of_hot_samples():
    health = UNKNOWN
    for number, heat in enumerate((1, 2, 3, 4)):
        seen = ExporterSample(number * 15.0, parse_page(device_lines(UUID, thermal=heat)))
        for _ in range(3):
            health = assess_health(health, UUID, seen=seen, report=None, limits=LIMITS, now=seen.at)
    assert action(health) is RecoveryAction.CHECK_COOLING


def test_the_newest_of_two_reports_is_the_time_of_a_sample():
    health = current(CLEAN, device_lines(UUID, volatile=1))
    seen = ExporterSample(30, parse_page(device_lines(UUID, volatile=1)))
    for now in (30.0, 40.0, 50.0):
        report = HealthReport("Healthy")
        health = assess_health(health, UUID, seen=seen, report=report, limits=LIMITS, now=now)
    assert not health.is_faulted


def test_silence_heals_nothing_and_harms_nothing():
    for health in (current(CLEAN), current(device_lines(UUID, xid=79))):
        later = assess_health(health, UUID, seen=None, report=None, limits=LIMITS, now=1e6)
        assert later.is_faulted is health.is_faulted
    assert assess_health(UNKNOWN, UUID, seen=None, report=None, limits=LIMITS, now=0) == UNKNOWN


@pytest.mark.parametrize(
    ("report", "fault"),
    [
        ("Healthy", None),
        ("Unhealthy:Xid119:GPUReset", RecoveryAction.GPU_RESET),
        ("Unhealthy:ThermalShutdown:CheckCooling", RecoveryAction.CHECK_COOLING),
        ("Unhealthy:Xid119:None", RecoveryAction.UNKNOWN),
        ("Unhealthy:Xid119:Repaint", RecoveryAction.UNKNOWN),
        ("Unhealthy:", RecoveryAction.UNKNOWN),
        ("Lost::NodeReboot", RecoveryAction.NODE_REBOOT),
        ("perhaps:", None),
        ("", None),
    ],
)
def test_the_agents_report_counts_at_once(report: str, fault: RecoveryAction | None):
    assert action(reported(report)) is fault


def test_three_healthy_reports_make_a_device_healthy_again():
    faulty = reported("Lost:")
    assert reported("Healthy", "Healthy", before=faulty, start=10).is_faulted
    assert not reported("Healthy", "Healthy", "Healthy", before=faulty, start=10).is_faulted


def test_an_invalid_status_is_no_report():
    assert not reported("perhaps:").is_known
    assert reported("Healthy").is_known


def test_of_two_sources_that_differ_the_bad_news_counts():
    now = 0.0
    health = UNKNOWN
    for _ in range(10):
        seen = ExporterSample(now, parse_page(device_lines(UUID, xid=79)))
        report = HealthReport("Healthy")
        health = assess_health(health, UUID, seen=seen, report=report, limits=LIMITS, now=now)
        now += 15
    assert action(health) is RecoveryAction.NODE_REBOOT


@pytest.mark.parametrize("page", [device_lines(UUID, xid=119), device_lines(UUID, volatile=2)])
def test_the_drivers_action_counts_more_than_errors_that_an_exporter_shows(page: str):
    """The exporter shows an Xid until the driver is loaded again, also of a device that was reset."""
    health = UNKNOWN
    for now, text in ((0.0, CLEAN), (15.0, page)):
        seen = ExporterSample(now, parse_page(text))
        report = HealthReport("Healthy", "", "None")
        health = assess_health(health, UUID, seen=seen, report=report, limits=LIMITS, now=now)
    assert action(health) is None


def test_the_action_after_an_xid_is_a_setting():
    limits = HealthDebounceLimits(
        xid_actions={119: RecoveryAction.NONE, 31: RecoveryAction.REPLACE}
    )
    for code, expected in (
        (119, None),
        (31, RecoveryAction.REPLACE),
        (999, RecoveryAction.UNKNOWN),
    ):
        seen = ExporterSample(0.0, parse_page(device_lines(UUID, xid=code)))
        health = assess_health(UNKNOWN, UUID, seen=seen, report=None, limits=limits, now=0.0)
        assert action(health) is expected


def test_a_second_xid_hides_no_first_one_that_the_exporter_counts():
    counted = "".join(
        f'DCGM_EXP_XID_ERRORS_COUNT{{gpu="0",UUID="{UUID}",window_size_in_ms="300000",xid="{code}"}} 1\n'
        for code in (48, 31)
    )
    page = device_lines(UUID, xid=31)
    assert action(current(CLEAN, page)) is None
    faulty = current(CLEAN, page + counted, page)
    assert action(faulty) is RecoveryAction.GPU_RESET


def test_a_device_for_which_our_agent_vouches_is_not_lost_because_an_exporter_leaves_it_out():
    health = current(CLEAN)
    seen = ExporterSample(15, parse_page(OTHER))
    report = HealthReport("Healthy")
    assert not assess_health(
        health, UUID, seen=seen, report=report, limits=LIMITS, now=15
    ).is_faulted


def test_without_its_exporter_the_agents_report_decides():
    faulty = current(device_lines(UUID, xid=79))
    assert reported("Healthy", "Healthy", "Healthy", before=faulty, start=10).is_faulted
    late = LIMITS.freshness_s + 1
    assert not reported("Healthy", "Healthy", "Healthy", before=faulty, start=late).is_faulted


def test_a_figure_that_is_missing_from_one_page_is_compared_with_the_last_one():
    short = f'DCGM_FI_DEV_GPU_TEMP{{UUID="{UUID}"}} 30\n'
    assert current(device_lines(UUID, volatile=1), short, device_lines(UUID, volatile=2)).is_faulted


PAGES = st.lists(
    st.tuples(st.floats(0.1, 40), st.sampled_from([0, 13, 79]), st.integers(0, 3), st.booleans()),
    max_size=40,
)


@given(PAGES)
def test_a_device_comes_back_after_three_clean_pages_and_never_before(
    pages: list[tuple[float, int, int, bool]],
):
    now, health, clean_since = 0.0, UNKNOWN, 0
    errors, last_listed_errors = 0, None
    for wait_s, xid, new_errors, is_listed in pages:
        now += wait_s
        errors += new_errors
        page = OTHER + (device_lines(UUID, xid=xid, volatile=errors) if is_listed else "")
        before = health
        seen = ExporterSample(now, parse_page(page))
        health = assess_health(health, UUID, seen=seen, report=None, limits=LIMITS, now=now)
        if is_listed:
            is_bad = xid == 79 or (last_listed_errors is not None and errors > last_listed_errors)
            last_listed_errors = errors
        else:
            is_bad = last_listed_errors is not None
        clean_since = 0 if is_bad else clean_since + 1
        assert not (is_bad and not health.is_faulted)
        if before.is_faulted and not health.is_faulted:
            assert clean_since >= LIMITS.clean_samples
