"""Settings of operands: what is refused, by the name of the setting and with the cure."""

from pathlib import Path

import pytest

from server.settings import BadSettingsError, load_settings
from tests.support.settings_file import a_file

GFD_ON = {"enabled": True, "image": "registry.example.com/gfd:1"}
HOST_PATH = "text that matches ^(/[A-Za-z0-9_-][A-Za-z0-9._-]*)+$"


@pytest.mark.parametrize(
    ("bootstrap", "complaint"),
    [
        pytest.param(
            {"gfd": {"image": {"repository": "r.example", "image": "gfd", "version": "1"}}},
            "{}: bootstrap.gfd.image.repository: no setting any more: set `bootstrap.gfd.image` to the whole",
            id="image in parts",
        ),
        pytest.param(
            {"dcgm": {"enabled": True}},
            "bootstrap.dcgm.image is empty, and the operand is enabled: set it to the whole reference",
            id="no image",
        ),
        pytest.param(
            {"gfd": {"enabled": True, "image": "registry.example.com/gpu feature:1"}},
            "{}: bootstrap.gfd.image is 'registry.example.com/gpu feature:1'; expected: text that matches",
            id="image of two words",
        ),
        pytest.param(
            {"gfd": GFD_ON | {"sleepInterval": "60s"}},
            "{}: bootstrap.gfd.sleepInterval: no such setting; did you mean bootstrap.gfd.sleep_interval_s?",
            id="unknown setting",
        ),
        pytest.param(
            {"gfd": GFD_ON | {"sleep_interval_s": -60}},
            "{}: bootstrap.gfd.sleep_interval_s is -60; expected: number, 1 to 86400",
            id="negative interval",
        ),
        pytest.param(
            {"gfd": GFD_ON | {"sleep_interval_s": 1e9}},
            "{}: bootstrap.gfd.sleep_interval_s is 1000000000.0; expected: number, 1 to 86400",
            id="interval that ends never",
        ),
        pytest.param(
            {"dcgm_exporter": {"service_monitor": {"interval": "1s1h"}}},
            "{}: bootstrap.dcgm_exporter.service_monitor.interval is '1s1h'; expected: text that matches",
            id="interval that ServiceMonitor does not take",
        ),
        pytest.param(
            {"gfd": GFD_ON | {"host_sys_path": "sys"}},
            f"{{}}: bootstrap.gfd.host_sys_path is 'sys'; expected: {HOST_PATH}",
            id="host path that is relative",
        ),
        pytest.param(
            {"gfd": GFD_ON | {"features_dir": "/etc/../root"}},
            f"{{}}: bootstrap.gfd.features_dir is '/etc/../root'; expected: {HOST_PATH}",
            id="host path that leads elsewhere",
        ),
        pytest.param(
            {"operands": "None"},
            "{}: bootstrap.operands is 'None'; expected: Own or External",
            id="not of the enumeration",
        ),
        pytest.param(
            {
                "dcgm": {"enabled": True, "image": "registry.example.com/dcgm:1"},
                "dcgm_exporter": {"enabled": True},
            },
            "bootstrap.dcgm.enabled runs a host engine that nothing asks: set"
            " bootstrap.dcgm_exporter.source to DCGM, or bootstrap.dcgm.enabled to false",
            id="host engine that nothing asks",
        ),
    ],
)
def test_bad_settings_of_operands_are_refused_by_name_and_with_the_cure(
    tmp_path: Path, bootstrap: dict[str, object], complaint: str
) -> None:
    file = a_file(tmp_path, {"bootstrap": bootstrap})
    with pytest.raises(BadSettingsError) as caught:
        load_settings([], file)
    assert complaint.format(file) in str(caught.value)
    assert "\n" not in str(caught.value)
