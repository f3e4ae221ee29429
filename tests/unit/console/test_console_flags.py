"""The flags of `gpu-control-plane console`: what they mean, and what is refused before anything is opened."""

from pathlib import Path

import pytest

from cli.command_parser import CommandLineError, CommandParser
from cli.console import add_arguments, settings_of
from cli.exit_status import MISUSED
from cli.main import run
from console.processes.console_settings import (
    CertificateFiles,
    ConsoleSettings,
    ListenAddress,
    listen_address,
)
from manifests.constants import DEFAULT_NAMESPACE


def settings(*flags: str) -> ConsoleSettings:
    parser = CommandParser("console", "")
    add_arguments(parser)
    return settings_of(parser.parse_flags(flags))


def test_without_flags_it_serves_this_machine_alone():
    found = settings()
    assert found.listen == ListenAddress(host="127.0.0.1", port=8443)
    assert found.listen.is_loopback
    assert (found.certificate, found.hosts, found.namespace) == (None, (), DEFAULT_NAMESPACE)
    assert not found.decisions


def test_flags_of_a_deployment():
    found = settings(
        *(
            "--listen",
            "0.0.0.0:8443",
            "--tls-certificate",
            "/tls/tls.crt",
            "--tls-key=/tls/tls.key",
        ),
        *("--host", "gpu.example.com", "--host=gpu", "--namespace", "gpu", "--log-format=JSON"),
        "--decisions",
    )
    files = CertificateFiles(certificate=Path("/tls/tls.crt"), key=Path("/tls/tls.key"))
    assert found.certificate == files
    assert found.hosts == ("gpu.example.com", "gpu")
    assert found.decisions
    assert (found.namespace, found.log_format) == ("gpu", "JSON")


@pytest.mark.parametrize("host", ["0.0.0.0", "10.1.2.3", "[::]", "gpu.example.com"])
def test_tokens_do_not_pass_in_the_clear_by_mistake(host: str):
    with pytest.raises(ValueError, match="would pass in the clear"):
        settings("--listen", f"{host}:8080")
    assert settings("--listen", f"{host}:8080", "--plain-http").is_plain


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "[::1]", "localhost"])
def test_this_machine_needs_no_certificate(host: str):
    assert settings("--listen", f"{host}:8080").listen.is_loopback


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--tls-certificate", "a"), "--tls-certificate and --tls-key go together"),
        (("--tls-key", "a"), "--tls-certificate and --tls-key go together"),
        (
            ("--tls-certificate", "a", "--tls-key", "b", "--plain-http"),
            "goes without a certificate",
        ),
    ],
)
def test_flags_that_do_not_go_together(flags: tuple[str, ...], said: str):
    with pytest.raises(ValueError, match=said):
        settings(*flags)


@pytest.mark.parametrize(
    "text", ["", "8443", ":8443", "127.0.0.1", "127.0.0.1:", "a:b", "::1:80", "a:65536", "a:-1"]
)
def test_an_address_that_is_none(text: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(CommandLineError, match="give an address and a port, such as"):
        settings(f"--listen={text}")
    assert run(["console", f"--listen={text}"]) == MISUSED
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("gpu-control-plane: ")


def test_an_address_of_ipv6_is_in_brackets():
    assert listen_address("[::1]:80") == ListenAddress(host="::1", port=80)


def test_a_certificate_that_is_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    # It would configure the logs of this process for good.
    monkeypatch.setattr("telemetry.logs.configure_logs", lambda *_: None)
    flags = [f"--tls-certificate={tmp_path}/tls.crt", f"--tls-key={tmp_path}/tls.key"]
    assert run(["console", "--listen=127.0.0.1:0", *flags]) == MISUSED
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"gpu-control-plane: {tmp_path}/tls.crt: No such file or directory"
