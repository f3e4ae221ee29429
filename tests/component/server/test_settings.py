"""Settings from flags, the environment and a file: which one wins, and what is refused, by name."""

import os
import sys
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel, ValidationError

from cli.main import MISUSED, OK, run
from server.settings import BadSettingsError, Settings, load_settings


@pytest.fixture(autouse=True)
def _no_settings_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("GPU_CONTROL_PLANE_")]:
        monkeypatch.delenv(name)


def a_file(tmp_path: Path, content: object) -> Path:
    file = tmp_path / "settings.yaml"
    file.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return file


def test_defaults_are_usable() -> None:
    settings = load_settings([], None)
    assert settings.listen.port == 8443
    assert settings.leadership.enabled
    assert settings.extender.client_names == ("gpu-scheduler",)


def test_file_wins_over_defaults_environment_over_the_file_flags_over_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = a_file(tmp_path, {"listen": {"host": "::1", "port": 1001}, "drain_s": 1, "service": "f"})
    monkeypatch.setenv("GPU_CONTROL_PLANE_LISTEN__PORT", "1002")
    monkeypatch.setenv("GPU_CONTROL_PLANE_DRAIN_S", "2")
    settings = load_settings(["--drain_s", "3"], file)
    assert (settings.service, settings.listen.host) == ("f", "::1")
    assert settings.listen.port == 1002
    assert settings.drain_s == 3


def test_lists_can_be_given_by_every_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = a_file(tmp_path, {"tls": {"dns_names": ["a.example"]}})
    assert load_settings([], file).tls.dns_names == ("a.example",)
    monkeypatch.setenv("GPU_CONTROL_PLANE_TLS__DNS_NAMES", '["b.example"]')
    assert load_settings([], file).tls.dns_names == ("b.example",)
    flags = ["--tls.dns_names", "c.example,d.example"]
    assert load_settings(flags, file).tls.dns_names == ("c.example", "d.example")


def test_no_namespace_but_our_own_is_believed_unless_told() -> None:
    assert load_settings([], None).bootstrap.namespaces == ()
    named = load_settings(["--bootstrap.namespaces", "gpu-operator"], None)
    assert named.bootstrap.namespaces == ("gpu-operator",)


@pytest.mark.parametrize(
    ("flags", "want"),
    [
        pytest.param([], False, id="default"),
        pytest.param(["--webhooks.client_ca_file", "ca.crt"], True, id="CA"),
        pytest.param(
            ["--webhooks.client_ca_file", "ca.crt", "--webhooks.require_certificate", "false"],
            False,
            id="not yet",
        ),
        pytest.param(["--webhooks.require_certificate", "true"], False, id="nothing to verify by"),
    ],
)
def test_webhooks_know_their_callers_where_a_ca_is_given(flags: list[str], want: bool) -> None:
    assert load_settings(flags, None).webhooks.know_their_callers is want


def test_scheduler_name_can_be_switched_off() -> None:
    assert not load_settings(["--scheduler_name", ""], None).scheduler_name


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        pytest.param({"lissten": {}}, "lissten: Extra inputs are not permitted", id="unknown"),
        pytest.param(
            {"listen": {"prot": 1}}, "listen.prot: Extra inputs are not permitted", id="nested"
        ),
        pytest.param(
            {"listen": {"port": 0}}, "listen.port: Input should be greater than", id="too small"
        ),
        pytest.param(
            {"listen": {"port": "https"}}, "listen.port: Input should be a valid int", id="type"
        ),
        pytest.param({"drain_s": -1}, "drain_s: Input should be greater than", id="negative"),
        pytest.param(
            {"log_level": "loud"},
            "log_level: Input should be 'debug', 'info', 'warning' or 'error'",
            id="not a level",
        ),
        pytest.param({"tls": {"source": "Files"}}, "tls.source Files needs", id="no directory"),
        pytest.param(
            {"webhooks": {"client_names": []}}, "webhooks.client_names: Tuple should", id="no name"
        ),
        pytest.param(
            {"tls": {"ip_addresses": ["localhost"]}},
            "tls.ip_addresses.0: Value error, 'localhost' does not appear to be an IP",
            id="not an address",
        ),
        pytest.param(
            {"tls": {"dns_names": ["no name"]}},
            "tls.dns_names.0: Value error, 'no name' is no lower-case DNS name",
            id="not a name",
        ),
        pytest.param(
            {"leadership": {"retry_s": 6}},
            "leadership needs 2 * retry_s < renew_deadline_s < duration_s",
            id="no second chance to renew",
        ),
        pytest.param([1], "holds no mapping of settings", id="a list"),
        pytest.param("listen: [", "is not YAML", id="broken YAML"),
    ],
)
def test_unusable_file_is_refused_by_name(tmp_path: Path, content: object, complaint: str) -> None:
    with pytest.raises(BadSettingsError) as caught:
        load_settings([], a_file(tmp_path, content))
    assert complaint in str(caught.value)


def test_every_wrong_setting_is_named_at_once(tmp_path: Path) -> None:
    file = a_file(tmp_path, {"listen": {"port": 0}, "drain_s": -1, "extra": 1})
    with pytest.raises(BadSettingsError) as caught:
        load_settings([], file)
    assert all(name in str(caught.value) for name in ("listen.port", "drain_s", "extra"))


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        pytest.param("GPU_CONTROL_PLANE_LISTEN__PORT", "x", "listen.port", id="type"),
        pytest.param("GPU_CONTROL_PLANE_LISTEN__PROT", "1", "listen.prot", id="unknown, nested"),
        pytest.param("GPU_CONTROL_PLANE_LISTEN", "{", "listen", id="broken JSON"),
        pytest.param(
            "GPU_CONTROL_PLANE_LOGLEVEL",
            "debug",
            "no such setting: GPU_CONTROL_PLANE_LOGLEVEL",
            id="unknown",
        ),
    ],
)
def test_unusable_environment_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, complaint: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(BadSettingsError) as caught:
        load_settings([], None)
    assert complaint in str(caught.value)


def test_variables_that_kubernetes_makes_of_our_service_do_no_harm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = load_settings([], None).model_dump()
    monkeypatch.setenv("GPU_CONTROL_PLANE_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("GPU_CONTROL_PLANE_SERVICE_PORT", "443")
    monkeypatch.setenv("GPU_CONTROL_PLANE_PORT", "tcp://10.0.0.1:443")
    monkeypatch.setenv("GPU_CONTROL_PLANE_PORT_443_TCP_ADDR", "10.0.0.1")
    assert load_settings([], None).model_dump() == before


def test_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadSettingsError, match=r"missing\.yaml cannot be read: No such file"):
        load_settings([], tmp_path / "missing.yaml")


def test_empty_file_changes_nothing(tmp_path: Path) -> None:
    assert load_settings([], a_file(tmp_path, "")).model_dump() == Settings().model_dump()


def test_shown_settings_can_be_loaded_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [
        *("--listen.port", "9443", "--kubeconfig", "/etc/kubeconfig", "--scheduler_name", ""),
        *("--tls.ip_addresses", "10.0.0.1,::1", "--extender.token_file", "/etc/token"),
    ]
    assert run(["serve", "--show-settings", *flags]) == OK
    shown = capsys.readouterr().out
    again = load_settings([], a_file(tmp_path, shown))
    assert again.model_dump() == load_settings(flags, None).model_dump()
    assert again.listen.port == 9443


def test_shown_settings_hold_no_secret(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    token = tmp_path / "token"
    token.write_text("sesame")
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("users: [{name: u, user: {token: sesame}}]")
    flags = ["--extender.token_file", str(token), "--kubeconfig", str(kubeconfig)]
    assert run(["serve", "--show-settings", *flags]) == OK
    shown = capsys.readouterr().out
    assert str(token) in shown
    assert "sesame" not in shown


def test_wrong_settings_end_the_command_with_a_line_and_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = a_file(tmp_path, {"lissten": {}})
    assert run(["serve", "--settings", str(file)]) == MISUSED
    assert capsys.readouterr().err == (
        "gpu-control-plane: lissten: Extra inputs are not permitted\n"
    )


def test_unknown_flag_ends_the_command_with_its_name_and_status_2(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        run(["serve", "--listen.prot", "1"])
    assert ended.value.code == MISUSED
    assert "unrecognized arguments: --listen.prot" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--device-plugin.image", "--device_plugin.image"])
@pytest.mark.parametrize("joined", [True, False], ids=["one word", "two words"])
def test_words_of_a_flag_are_joined_by_hyphens_or_as_in_files(
    flag: str, joined: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    given = "a.example/gpu-control_plane:1"
    flags = [f"{flag}={given}"] if joined else [flag, given]
    assert run(["serve", *flags, "--show-settings"]) == OK
    assert yaml.safe_load(capsys.readouterr().out)["device_plugin"]["image"] == given


def test_demo_without_its_package_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in an installed wheel, which holds neither the demo nor the simulator."""
    monkeypatch.delitem(sys.modules, "demo.main", raising=False)
    monkeypatch.setitem(sys.modules, "demo", None)
    assert run(["demo"]) == MISUSED
    complaint = capsys.readouterr().err
    assert complaint.count("\n") == 1
    assert "part of the source checkout" in complaint


def test_every_setting_has_a_description() -> None:
    assert undescribed(Settings, "") == []


def undescribed(model: type[BaseModel], prefix: str) -> list[str]:
    names: list[str] = []
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            names += undescribed(kind, f"{prefix}{name}.")
            names += [] if kind.__doc__ else [f"{prefix}{name}"]
        elif not (field.description or "").endswith("."):
            names.append(f"{prefix}{name}")
    return names


@pytest.mark.parametrize(
    ("section", "fault"),
    [
        pytest.param(
            {"node_agent": {"tolerations": [{"operator": "Exists", "value": "x"}]}},
            "operator Exists has no value",
            id="a toleration of any value, with one",
        ),
        pytest.param(
            {"device_plugin": {"tolerations": [{"value": "x"}]}},
            "without a key needs operator Exists",
            id="a toleration of nothing",
        ),
        pytest.param(
            {"node_agent": {"node_affinity": [{"key": "zone", "operator": "In"}]}},
            "operator In does not take 0 values",
            id="an affinity to no value",
        ),
        pytest.param(
            {"node_agent": {"resources": {"limits": {"memory": "256mb"}}}},
            "is not a quantity",
            id="a misspelt quantity",
        ),
        pytest.param({"kubelet": {"directory": "/var/../etc"}}, "directory", id="a path with .."),
        pytest.param({"scheduler": {"deployment": "A_b"}}, "deployment", id="no object's name"),
    ],
)
def test_what_the_api_server_would_refuse_later_is_refused_at_the_start(
    section: dict[str, object], fault: str
) -> None:
    with pytest.raises(ValidationError, match=fault):
        Settings.model_validate(section)
