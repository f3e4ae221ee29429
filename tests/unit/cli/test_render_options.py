"""`render` refuses what would only be refused by the API server, and flags without effect."""

from pathlib import Path

import pytest

from cli.exit_status import MISUSED, OK
from cli.main import run
from cli.render import RenderTarget
from cli.render_options import TARGETS_OF_FLAGS
from manifests.example_files import example_text

VALUES = {
    "values": "values.yaml",
    "kube_version": "v1.34.2-eks-1",
    "settings": "settings.yaml",
    "namespace": "gpu",
    "url": "https://10.0.0.1:8443",
    "ca_file": "ca.crt",
    "client_cert": "/etc/scheduler.crt",
    "client_key": "/etc/scheduler.key",
    "kubeconfig": "/etc/kubeconfig",
    "resource": "gpu.deckhouse.io/train",
    "user": "system:serviceaccount:gpu:server",
    "board": "gpu-node",
    "pool": "other",
    "pool_file": "other.yaml",
    "node_class": "karpenter.example/NodeClass/gpu",
    "name": "gpus",
    "registry": "registry.example.com:5000/copies",
    "driver_version": "580.95.05",
    "no_driver": None,
    "no_toolkit": None,
}
"""Option -> its value; None: the flag has none."""
NEEDED = {
    "nodepool": ("--pool-file", "pools.yaml"),
    "operands": ("--settings", "image.yaml"),
}
"""What a target does not print anything without."""
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = "device_plugin: {image: registry.example/gpu}\n"
    (tmp_path / "image.yaml").write_text(image)
    (tmp_path / "settings.yaml").write_text(
        f"{image}namespace: elsewhere\nnode_software: {{enabled: true}}\nbootstrap: {{operands: External}}\n"
    )
    (tmp_path / "values.yaml").write_text("scheduler: {replicas: 3}\n")
    (tmp_path / "ca.crt").write_text(CERTIFICATE)
    other = example_text("pool-autoscaling").replace("name: elastic", "name: other")
    (tmp_path / "other.yaml").write_text(other)
    (tmp_path / "pools.yaml").write_text(example_text("pool-autoscaling"))
    monkeypatch.chdir(tmp_path)


def complaint_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(["render", *arguments]) == MISUSED
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    return printed.err.removeprefix("gpu-control-plane: ").rstrip()


@pytest.mark.parametrize("target", [target.value for target in RenderTarget])
def test_a_flag_changes_what_is_printed_or_is_refused(
    target: str, capsys: pytest.CaptureFixture[str]
):
    needed = NEEDED.get(target, ())
    assert run(["render", target, *needed]) == OK
    without = capsys.readouterr().out
    for option, targets in TARGETS_OF_FLAGS.items():
        value = VALUES[option]
        arguments = (f"--{option.replace('_', '-')}", *([] if value is None else [value]))
        if target not in targets:
            assert complaint_of(capsys, target, *arguments).endswith(f", not for {target}")
        elif option != "pool":
            assert run(["render", target, *needed, *arguments]) == OK
            assert capsys.readouterr().out != without, option


def test_operands_without_an_image_are_not_printed(capsys: pytest.CaptureFixture[str]):
    said = complaint_of(capsys, "operands")
    assert said.startswith("device_plugin.image, node_agent.image, ")
    assert "'' names no registry" in said


def test_of_several_pools_in_a_file_a_flag_names_the_printed_ones(
    capsys: pytest.CaptureFixture[str],
):
    needed = NEEDED["nodepool"]
    Path("pools.yaml").write_text(
        f"{example_text('pool-autoscaling')}---\n{Path('other.yaml').read_text()}"
    )
    assert complaint_of(capsys, "nodepool", *needed).endswith("(there: elastic, other)")
    assert run(["render", "nodepool", *needed, "--pool", "other"]) == OK
    assert capsys.readouterr().out


def test_a_version_of_a_driver_that_does_not_run_is_refused(capsys: pytest.CaptureFixture[str]):
    said = complaint_of(capsys, "clusterpolicy", "--no-driver", "--driver-version", "580.95.05")
    assert said == "--driver-version has no effect beside --no-driver: give one of them"


def test_the_complaint_says_for_which_targets_a_flag_is(capsys: pytest.CaptureFixture[str]):
    assert (
        complaint_of(capsys, "crds", "--url", "https://a")
        == "--url is for webhooks or scheduler-config, not for crds"
    )


@pytest.mark.parametrize(
    "url",
    [
        *("localhost:8443", "http://10.0.0.1:8443", "https://", "https:///path", "https://a b"),
        *("https://a?x=1", "https://a?", "https://a#x", "https://u:p@a", "https://a:99999"),
        *("https://[::1", "https://a:0", "https://a:b", ""),
    ],
)
@pytest.mark.parametrize("target", ["webhooks", "scheduler-config"])
def test_urls_that_the_api_server_refuses_are_refused(
    target: str, url: str, capsys: pytest.CaptureFixture[str]
):
    assert complaint_of(capsys, target, "--url", url).startswith(f"--url {url!r}: ")


@pytest.mark.parametrize("url", ["https://a", "https://[::1]:8443", "https://a.example:1/base"])
def test_other_urls_are_taken(url: str, capsys: pytest.CaptureFixture[str]):
    assert run(["render", "webhooks", "--url", url]) == OK
    assert f"url: {url}/" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("target", "flag", "value"),
    [
        *(("rbac", "--namespace", name) for name in ("Bad NS", "a.b", "-a", "a-", "x" * 64, "")),
        *(("policy", "--user", name) for name in ("", " a", "a\nb", "it's", "a\\b")),
        ("policy", "--user", "system:serviceaccount:only-namespace"),
        ("policy", "--user", "system:serviceaccount:Bad:name"),
        *(("nodepool", "--pool", name) for name in ("Bad", "a.b", "pool", "")),
        *(("nodepool", "--node-class", name) for name in ("default", "a/B", "a/b/c", "a/B/C", "")),
        *(("clusterpolicy", "--name", name) for name in ("Bad", "-a", "a..b", "")),
        *(
            ("clusterpolicy", "--registry", name)
            for name in ("copies", "https://a.b", "a.b/", "a.b/C", "a.b:x", "")
        ),
        *(
            ("clusterpolicy", "--driver-version", name)
            for name in ("latest", "1:2", "sha256:1", "")
        ),
        *(
            ("scheduler-config", "--resource", name)
            for name in ("train", "gpu/", "/train", "GPU.example/train", "a/b/c", "a/-b", "")
        ),
    ],
)
def test_names_that_are_none_are_refused(
    target: str, flag: str, value: str, capsys: pytest.CaptureFixture[str]
):
    complaint = complaint_of(capsys, target, f"{flag}={value}")
    assert complaint.startswith(f"{flag} {value!r}: ")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        pytest.param("nothing", "the file has no PEM certificate", id="no certificate"),
        pytest.param(
            CERTIFICATE + "-----BEGIN PRIVATE KEY-----",
            "the file has a private key, which does not belong into a manifest",
            id="key",
        ),
        pytest.param(None, "cannot be read: No such file or directory", id="no file"),
    ],
)
def test_a_ca_file_of_something_else_is_refused(
    content: str | None, complaint: str, capsys: pytest.CaptureFixture[str]
):
    Path("ca.crt").unlink()
    if content is not None:
        Path("ca.crt").write_text(content)
    assert complaint_of(capsys, "webhooks", "--ca-file", "ca.crt") == (
        f"--ca-file ca.crt: {complaint}"
    )


def test_a_settings_file_with_a_mistake_is_named(capsys: pytest.CaptureFixture[str]):
    Path("settings.yaml").write_text("lissten: {}\n")
    assert complaint_of(capsys, "rbac", "--settings", "settings.yaml") == (
        "settings.yaml: lissten: no such setting; did you mean listen?"
    )
