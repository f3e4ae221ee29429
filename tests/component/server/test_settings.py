"""Settings from flags, the environment and a file: which one wins, and what is refused, by name."""

import os
import sys
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel, ValidationError

from cli.exit_status import MISUSED, OK
from cli.main import run
from pool.placement.fragmentation.target_workload import TargetShape
from server.settings import BadSettingsError, Settings, load_settings
from server.usual_demand import recent_demands
from tests.support.builders import a_pool
from tests.support.settings_file import a_file


@pytest.fixture(autouse=True)
def _no_settings_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("GPU_CONTROL_PLANE_")]:
        monkeypatch.delenv(name)


def test_defaults_are_usable() -> None:
    settings = load_settings([], None)
    assert settings.listen.port == 8443
    assert settings.leadership.enabled
    assert settings.extender.client_names == ("gpu-scheduler",)


def test_file_wins_over_defaults_environment_over_the_file_flags_over_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = a_file(tmp_path, {"listen": {"host": "::1", "port": 1001}, "drain_s": 1, "context": "f"})
    monkeypatch.setenv("GPU_CONTROL_PLANE_LISTEN__PORT", "1002")
    monkeypatch.setenv("GPU_CONTROL_PLANE_DRAIN_S", "2")
    settings = load_settings(["--drain_s", "3"], file)
    assert (settings.context, settings.listen.host) == ("f", "::1")
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
    assert load_settings(flags, None).webhooks.requires_client_certificate is want


def test_scheduler_name_can_be_switched_off() -> None:
    assert not load_settings(["--scheduler_name", ""], None).scheduler_name


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        pytest.param(
            {"lissten": {}}, "{}: lissten: no such setting; did you mean listen?", id="name"
        ),
        pytest.param(
            {"listen": {"prot": 1}},
            "{}: listen.prot: no such setting; did you mean listen.port?",
            id="nested name",
        ),
        pytest.param(
            {"cdi_kind": "x/y"},
            "{}: cdi_kind: no such setting; did you mean device_plugin.cdi_kind?",
            id="name of a section",
        ),
        pytest.param({"qqq": 1}, "{}: qqq: no such setting", id="name like no other"),
        pytest.param(
            {"listen": {"port": 0}},
            "{}: listen.port is 0; expected: integer, 1 to 65535",
            id="too small",
        ),
        pytest.param(
            {"listen": {"port": "https"}},
            "{}: listen.port is 'https'; expected: integer, 1 to 65535",
            id="type",
        ),
        pytest.param({"listen": 5}, "{}: listen is 5; expected: mapping of settings", id="section"),
        pytest.param(
            {"drain_s": -1}, "{}: drain_s is -1; expected: number, at least 0", id="negative"
        ),
        *(
            pytest.param(
                {"daemonsets": {"rolling_update": {"max_unavailable": value}}},
                f"{{}}: daemonsets.rolling_update.max_unavailable: {value!r} is neither a number above 0"
                " nor a percentage from 1% to 100%",
                id=f"limit {value}",
            )
            for value in (0, -1, 2.5, True, "0%", "101%", "10 %", "ten", "")
        ),
        pytest.param(
            {"log_level": "loud"},
            "{}: log_level is 'loud'; expected: debug, info, warning or error",
            id="not a level",
        ),
        pytest.param(
            {"bootstrap": {"gfd": {"requirement": "IF_PRESENT"}}},
            "{}: bootstrap.gfd.requirement is 'IF_PRESENT'; expected: Required, IfPresent or Ignored",
            id="not of the enumeration",
        ),
        pytest.param(
            {"tls": {"source": "Files"}},
            "tls.source Files needs tls.directory ({}: tls.source)",
            id="no directory",
        ),
        pytest.param(
            {"webhooks": {"client_names": []}},
            "{}: webhooks.client_names is []; expected: list of text, at least 1",
            id="empty list",
        ),
        pytest.param(
            {"webhooks": {"client_names": ["a", 7]}},
            "{}: webhooks.client_names is 7; expected: list of text",
            id="within a list",
        ),
        pytest.param(
            {"tls": {"ip_addresses": ["localhost"]}},
            "{}: tls.ip_addresses: 'localhost' does not appear to be an IPv4 or IPv6 address",
            id="not an address",
        ),
        pytest.param(
            {"tls": {"dns_names": ["no name"]}},
            "{}: tls.dns_names: 'no name' is no lower-case DNS name",
            id="not a DNS name",
        ),
        pytest.param([1], "holds no mapping of settings", id="a list"),
        pytest.param("listen: [", "is not YAML", id="broken YAML"),
    ],
)
def test_unusable_file_is_refused_by_name(tmp_path: Path, content: object, complaint: str) -> None:
    file = a_file(tmp_path, content)
    with pytest.raises(BadSettingsError) as caught:
        load_settings([], file)
    assert complaint.format(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_wrong_setting_is_named_at_once(tmp_path: Path) -> None:
    file = a_file(tmp_path, {"listen": {"port": 0}, "drain_s": -1, "extra": 1})
    with pytest.raises(BadSettingsError) as caught:
        load_settings([], file)
    assert all(name in str(caught.value) for name in ("listen.port", "drain_s", "extra"))


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        pytest.param(
            "GPU_CONTROL_PLANE_LISTEN__PORT",
            "x",
            "GPU_CONTROL_PLANE_LISTEN__PORT is 'x'; expected: integer, 1 to 65535",
            id="type",
        ),
        pytest.param(
            "GPU_CONTROL_PLANE_LISTEN__PROT",
            "1",
            "GPU_CONTROL_PLANE_LISTEN__PROT: no such setting;"
            " did you mean GPU_CONTROL_PLANE_LISTEN__PORT?",
            id="nested name",
        ),
        pytest.param(
            "GPU_CONTROL_PLANE_LISTEN_PORT",
            "1",
            "GPU_CONTROL_PLANE_LISTEN_PORT: no such setting;"
            " did you mean GPU_CONTROL_PLANE_LISTEN__PORT?",
            id="one underscore",
        ),
        pytest.param(
            "GPU_CONTROL_PLANE_LISTEN",
            "{",
            "GPU_CONTROL_PLANE_LISTEN: Expecting property name enclosed in double quotes: line 1"
            " column 2 (char 1); expected: mapping of settings as JSON",
            id="broken JSON",
        ),
        pytest.param(
            "GPU_CONTROL_PLANE_LISTEN",
            '{"prot": 1}',
            "GPU_CONTROL_PLANE_LISTEN: listen.prot: no such setting; did you mean listen.port?",
            id="name in JSON",
        ),
        pytest.param(
            "GPU_CONTROL_PLANE_NODE_AGENT__NODE_SELECTOR",
            "gpu",
            "GPU_CONTROL_PLANE_NODE_AGENT__NODE_SELECTOR: 'gpu' is no key=value;"
            " expected: mapping as JSON",
            id="no pair",
        ),
        pytest.param(
            "GPU_CONTROL_PLANE_LOGLEVEL",
            "debug",
            "GPU_CONTROL_PLANE_LOGLEVEL: no such setting;"
            " did you mean GPU_CONTROL_PLANE_LOG_LEVEL?",
            id="name",
        ),
    ],
)
def test_unusable_environment_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, complaint: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(BadSettingsError) as caught:
        load_settings([], None)
    assert str(caught.value) == complaint


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        pytest.param(
            ["--listen.prot", "9443"],
            "no such flag --listen.prot; did you mean --listen.port?",
            id="name",
        ),
        pytest.param(
            ["--device_plugin.imagee=x"],
            "no such flag --device_plugin.imagee; did you mean --device-plugin.image?",
            id="name with underscore",
        ),
        pytest.param(
            ["--listen.port"], "--listen.port needs a value: integer, 1 to 65535", id="no value"
        ),
        pytest.param(
            ["--drain_s", "--listen.port", "1"],
            "--drain_s needs a value: number, at least 0",
            id="no value before a flag",
        ),
        pytest.param(
            ["--listen.port=https"],
            "--listen.port is 'https'; expected: integer, 1 to 65535",
            id="type",
        ),
        pytest.param(["9443"], "unexpected argument 9443", id="no flag"),
        pytest.param(
            ["--kubelet.directory", "kubelet"],
            "--kubelet.directory is 'kubelet';"
            " expected: text that matches ^(/[A-Za-z0-9_-][A-Za-z0-9._-]*)+$",
            id="pattern",
        ),
        pytest.param(
            [
                "--node-agent.node-affinity",
                '[{"key": "a", "operator": "Exists", "oprator": "Exists"}]',
            ],
            "--node-agent.node-affinity: 0: oprator: no such key",
            id="key of an object in a list",
        ),
        pytest.param(
            ["--node-agent.node-affinity", '[{"key": "a", "operator": "Exist"}]'],
            "--node-agent.node-affinity: 0: operator: Input should be 'In', 'NotIn', 'Exists',"
            " 'DoesNotExist', 'Gt' or 'Lt'",
            id="value of an object in a list",
        ),
        pytest.param(
            ["--listen.prot", "1", "--mode", "x"],
            "no such flag --listen.prot; did you mean --listen.port?;"
            " no such flag --mode; did you mean --device-plugin.mode?",
            id="two",
        ),
    ],
)
def test_unusable_flags_are_refused_by_name(flags: list[str], complaint: str) -> None:
    with pytest.raises(BadSettingsError) as caught:
        load_settings(flags, None)
    assert str(caught.value) == complaint


def test_sources_add_up_within_a_section(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = a_file(tmp_path, "listen:\n  port: 1001\ntls:\n")
    monkeypatch.setenv("GPU_CONTROL_PLANE_LISTEN", '{"host": "::1"}')
    settings = load_settings(["--listen", '{"advertised_address": "10.0.0.1"}'], file)
    assert (settings.listen.host, settings.listen.port) == ("::1", 1001)
    assert settings.listen.advertised_address == "10.0.0.1"
    assert settings.tls == Settings().tls


def test_a_flag_of_a_list_may_be_given_again(tmp_path: Path) -> None:
    file = a_file(tmp_path, {"tls": {"dns_names": ["a.example"]}})
    flags = ["--tls.dns_names", "b.example", "--tls.dns_names", '["c.example"]']
    assert load_settings(flags, file).tls.dns_names == ("b.example", "c.example")


def test_a_mapping_is_written_as_pairs_or_json() -> None:
    for text in ("a=1,b=", '{"a": "1", "b": ""}'):
        settings = load_settings(["--node-agent.node-selector", text], None)
        assert settings.node_agent.node_selector == {"a": "1", "b": ""}


def test_variables_that_kubernetes_makes_of_our_service_do_no_harm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = load_settings([], None).model_dump()
    monkeypatch.setenv("GPU_CONTROL_PLANE_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("GPU_CONTROL_PLANE_SERVICE_PORT", "443")
    monkeypatch.setenv("GPU_CONTROL_PLANE_PORT", "tcp://10.0.0.1:443")
    monkeypatch.setenv("GPU_CONTROL_PLANE_PORT_443_TCP_ADDR", "10.0.0.1")
    # Of another Service whose name begins as ours does.
    monkeypatch.setenv("GPU_CONTROL_PLANE_METRICS_SERVICE_PORT_HTTP", "80")
    monkeypatch.setenv("GPU_CONTROL_PLANE_METRICS_PORT", "tcp://10.0.0.2:80")
    assert load_settings([], None).model_dump() == before


def test_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadSettingsError, match=r"missing\.yaml cannot be read: No such file"):
        load_settings([], tmp_path / "missing.yaml")


def test_empty_file_changes_nothing(tmp_path: Path) -> None:
    assert load_settings([], a_file(tmp_path, "")).model_dump() == Settings().model_dump()


@pytest.mark.parametrize(("given", "limit"), [("3", 3), ("25%", "25%"), ("100%", "100%")])
def test_a_rolling_update_takes_a_number_of_nodes_or_a_percentage_at_a_time(
    given: str, limit: int | str
):
    flags = ["--daemonsets.rolling-update.max-unavailable", given]
    assert load_settings(flags, None).daemonsets.rolling_update.max_unavailable == limit


def test_shown_settings_can_be_loaded_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [
        *("--listen.port", "9443", "--kubeconfig", "/etc/kubeconfig", "--scheduler_name", ""),
        *("--tls.ip_addresses", "10.0.0.1,::1", "--extender.token_file", "/etc/token"),
    ]
    assert run(["serve", "--show-settings", *flags]) == OK
    printed = capsys.readouterr().out
    again = load_settings([], a_file(tmp_path, printed))
    assert again.model_dump() == load_settings(flags, None).model_dump()
    assert again.listen.port == 9443


def test_shown_settings_hold_no_secret(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    token = tmp_path / "token"
    token.write_text("sesame")
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("users: [{name: u, user: {token: sesame}}]")
    flags = ["--extender.token_file", str(token), "--kubeconfig", str(kubeconfig)]
    assert run(["serve", "--show-settings", *flags]) == OK
    printed = capsys.readouterr().out
    assert str(token) in printed
    assert "sesame" not in printed


def test_wrong_settings_end_the_command_with_a_line_and_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = a_file(tmp_path, {"lissten": {}})
    assert run(["serve", "--settings", str(file)]) == MISUSED
    assert capsys.readouterr().err == (
        f"gpu-control-plane: {file}: lissten: no such setting; did you mean listen?\n"
    )


def test_unknown_flag_ends_the_command_with_a_line_and_status_2(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["serve", "--listen.prot", "1"]) == MISUSED
    assert capsys.readouterr().err == (
        "gpu-control-plane: no such flag --listen.prot; did you mean --listen.port?\n"
    )


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


def test_usual_pods_are_the_demand_before_a_pool_has_any(tmp_path: Path) -> None:
    usual = [{"units": 1, "cpu": "1500m", "pods": 3}, {"pool": "training", "units": 8}]
    settings = load_settings([], a_file(tmp_path, {"demand": {"usual": usual}}))
    demands = recent_demands(settings.demand)
    assert demands.of(a_pool("any")).shapes == ((TargetShape(1500, 1000, 1), 1.0),)
    assert demands.of(a_pool("training")).shapes == ((TargetShape(0, 1000, 8), 1.0),)
    for wrong in ({"units": 0}, {"units": 1, "pods": 0}, {"units": 1, "cpu": "many"}, {"cpu": "1"}):
        with pytest.raises(BadSettingsError, match=r"demand\.usual"):
            load_settings([], a_file(tmp_path, {"demand": {"usual": [wrong]}}))
