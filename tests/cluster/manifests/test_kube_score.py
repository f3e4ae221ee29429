"""kube-score judges an installation, its operands and its pools: what it finds is accepted by name, with the reason."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from cli.main import run
from tests.cluster.environment import binaries

pytestmark = pytest.mark.long

Finding = tuple[str, str]
"""A check, and what it says."""

BEST: Final = 10
GOLDEN: Final = binaries.ROOT / "tests/unit/manifests/golden"
SETTINGS: Final = """\
device_plugin: {image: "registry.example/gpu:1"}
bootstrap:
  gfd: {enabled: true, image: "registry.example/gfd:1"}
  dcgm: {enabled: true, image: "registry.example/dcgm:1"}
  dcgm_exporter: {enabled: true, source: DCGM, image: "registry.example/exporter:1"}
"""
NVIDIAS: Final = frozenset({"nvidia-dcgm", "nvidia-dcgm-exporter", "gpu-feature-discovery"})
"""They run NVIDIA's images."""
PLUGINS: Final = frozenset({"gpu-device-plugin-parts", "gpu-device-plugin-training"})
ON_NODES: Final = frozenset(
    {*NVIDIAS, "gpu-device-plugin-small", "gpu-node-agent", "gpu-node-validator"}
)
"""They use devices and the driver; the plugin of the pool `small` is NVIDIA's."""
SIGNAL: Final = "scale-training-1a2b3c4d"
UNINSTALL: Final = "gpu-control-plane-uninstall"
EVERY: Final = ON_NODES | PLUGINS | {
    *("gpu-control-plane", "gpu-node-detector", "gpu-scheduler", SIGNAL, UNINSTALL)
}  # fmt: skip
ACCEPTED: Final[dict[Finding, tuple[frozenset[str], str]]] = {
    ("container-ephemeral-storage-request-and-limit", "Ephemeral Storage limit is not set"): (
        EVERY,
        "they write logs alone; kernel caches, which have a quota, lie on a hostPath that does not count",
    ),
    ("container-ephemeral-storage-request-and-limit", "Ephemeral Storage request is not set"): (
        EVERY,
        "as the limit",
    ),
    ("container-image-pull-policy", "ImagePullPolicy is not set to Always"): (
        EVERY,
        "a registry that is away keeps no node from starting; images are best named by digest",
    ),
    ("container-resources", "CPU limit is not set"): (
        EVERY,
        "a throttled webhook or plugin makes pods wait; requests give each its share",
    ),
    ("container-resources", "Memory limit is not set"): (
        frozenset({"gpu-scheduler", SIGNAL}),
        "memory of kube-scheduler grows with the cluster; a signal is never started",
    ),
    ("container-security-context-privileged", "The container is privileged"): (
        ON_NODES,
        "devices, MIG layouts and the driver of the host need it (docs/threat-model.md)",
    ),
    (
        "container-security-context-readonlyrootfilesystem",
        "The pod has a container with a writable root filesystem",
    ): (ON_NODES, "NVIDIA's images and the validator's checks write into theirs"),
    ("container-security-context-user-group-id", "The container is running with a low user ID"): (
        ON_NODES | PLUGINS | {UNINSTALL},
        "sockets and files of kubelet and driver belong to root; the hook has the image's user, not root",
    ),
    ("container-security-context-user-group-id", "The container running with a low group ID"): (
        ON_NODES | PLUGINS | {UNINSTALL},
        "as the user",
    ),
    ("pod-networkpolicy", "The pod does not have a matching NetworkPolicy"): (
        EVERY,
        "the chart makes them by networkPolicy.enabled, off where no provider enforces them",
    ),
    ("pod-probes", "Container is missing a readinessProbe"): (
        frozenset(
            {"gpu-device-plugin-small", "gpu-feature-discovery", "gpu-node-detector", SIGNAL}
        ),
        "nothing is sent to them; NVIDIA's images have none",
    ),
    ("pod-probes-identical", "Container has the same readiness and liveness probe"): (
        frozenset({"nvidia-dcgm", "nvidia-dcgm-exporter", "gpu-scheduler"}),
        "they have one endpoint: NVIDIA's images, and kube-scheduler before 1.31",
    ),
}
"""Check and finding -> the objects in which it is accepted, and why."""


def written(command: list[str], file: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert run(["render", *command]) == 0
    file.write_text(capsys.readouterr().out)
    return file


def findings_of(program: Path, files: list[Path]) -> set[tuple[Finding, str]]:
    """Return what is graded below the best, with the name of the object."""
    command = [str(program), "score", "--output-format=json", "--kubernetes-version=v1.30"]
    done = subprocess.run([*command, *files], capture_output=True, text=True, check=False)
    return {
        ((check["check"]["id"], comment["summary"]), judged["object_meta"]["name"])
        for judged in json.loads(done.stdout)
        for check in judged["checks"]
        if not check["skipped"] and check["grade"] < BEST
        for comment in check["comments"] or ()
    }


def test_what_kube_score_finds_is_accepted_with_a_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], progress: Callable[[str], None]
):
    settings = tmp_path / "settings.yaml"
    settings.write_text(SETTINGS)
    operands = ["operands", "--settings", str(settings)]
    files = [
        written(["all"], tmp_path / "all.yaml", capsys),
        written(operands, tmp_path / "operands.yaml", capsys),
        *(file for file in GOLDEN.glob("*.yaml") if "  containers:" in file.read_text()),
    ]
    found = findings_of(binaries.find_kube_score(progress), files)
    accepted = {(finding, name) for finding, (names, _) in ACCEPTED.items() for name in names}
    assert found - accepted == set()
    assert ACCEPTED.keys() - {finding for finding, _ in found} == set()
