"""The Kubernetes programs: taken from KUBEBUILDER_ASSETS, else built from `components`.

`KUBEBUILDER_ASSETS` names a directory with at least `etcd` and `kube-apiserver`, as the tools of
kubebuilder lay it out; what it lacks of the rest is built. What is built lies in
`build/kubernetes/<version>` and is used again while it is newer than go.mod and go.sum.
"""

import os
import re
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROOT = Path(__file__).resolve().parents[3]
COMPONENTS = ROOT / "tests" / "cluster" / "components"

_REQUIRED_ASSETS = ("etcd", "kube-apiserver")
_NAMES = (*_REQUIRED_ASSETS, "kube-scheduler", "kube-controller-manager", "kubectl")
_NODE_NAMES = ("kubelet", "containerd", "containerd-shim-runc-v2", "ctr")
_HELM = {3: "helm3", 4: "helm"}
_CACHE_NAMES = ("csi-sanity", "registry", "cosign")
_CHECKS = ("kubeconform", "operator-libs")
_ASSETS = (
    *_NAMES,
    "etcdutl",
    *_HELM.values(),
    "kwok",
    "karpenter",
    *_CACHE_NAMES,
    *_CHECKS,
    *_NODE_NAMES,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Binaries:
    etcd: Path
    kube_apiserver: Path
    kube_scheduler: Path
    kube_controller_manager: Path
    kubectl: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePrograms:
    """What a node runs; `debian` holds runc, busybox, lib/ and cni/, as debian.sh lays them out."""

    kubelet: Path
    containerd: Path
    containerd_shim: Path
    ctr: Path
    debian: Path


def find_binaries(progress: "Callable[[str], None]") -> Binaries:
    """Return the programs, building the missing ones; `progress` gets a line per step."""
    found = _find(_NAMES, progress)
    return Binaries(**{name.replace("-", "_"): path for name, path in found.items()})


def find_kubectl(progress: "Callable[[str], None]") -> Path:
    """Return kubectl alone, which is all that another client's cluster needs."""
    return _find(["kubectl"], progress)["kubectl"]


def find_etcdutl(progress: "Callable[[str], None]") -> Path:
    """Return etcdutl, which restores a backup of etcd."""
    return _find(["etcdutl"], progress)["etcdutl"]


def find_kwok(progress: "Callable[[str], None]") -> Path:
    """Return kwok, which plays the kubelets of nodes that are annotated for it."""
    return _find(["kwok"], progress)["kwok"]


def find_karpenter(progress: "Callable[[str], None]") -> tuple[Path, Path]:
    """Return Karpenter, with its kwok provider, and the folder of its CustomResourceDefinitions."""
    program = _find(["karpenter"], progress)["karpenter"]
    return program, program.with_name("karpenter-crds")


def find_csi_sanity(progress: "Callable[[str], None]") -> Path:
    """Return csi-sanity, the conformance tests of CSI drivers."""
    return _find(["csi-sanity"], progress)["csi-sanity"]


def find_registry(progress: "Callable[[str], None]") -> Path:
    """Return a registry that serves the referrers API."""
    return _find(["registry"], progress)["registry"]


def find_kubeconform(progress: "Callable[[str], None]") -> Path:
    """Return kubeconform, which checks objects by JSON schemas."""
    return _find(["kubeconform"], progress)["kubeconform"]


def find_operator_libs(progress: "Callable[[str], None]") -> Path:
    """Return the program that makes steps of NVIDIA's upgrade machine."""
    return _find(["operator-libs"], progress)["operator-libs"]


def find_cosign(progress: "Callable[[str], None]") -> Path:
    """Return cosign, whose build takes some three minutes; for long tests."""
    return _find(["cosign"], progress)["cosign"]


def find_kube_score(progress: "Callable[[str], None]") -> Path:
    """Return kube-score, which judges objects; for long tests."""
    return _find(["kube-score"], progress)["kube-score"]


def find_docker_registry(progress: "Callable[[str], None]") -> Path:
    """Return `docker-registry`, which has no referrers API: from PATH, else from Debian's package."""
    installed = shutil.which("docker-registry")
    if installed is not None:
        return Path(installed)
    directory = ROOT / "build" / "docker-registry"
    _run_script([str(COMPONENTS / "docker-registry.sh"), str(directory)], progress)
    return directory / "docker-registry"


def find_helm(progress: "Callable[[str], None]", *, version: int = 4) -> Path:
    """Return Helm of this major version, which installs the chart."""
    name = _HELM[version]
    return _find([name], progress)[name]


def find_prometheus(name: str, progress: "Callable[[str], None]") -> Path:
    """Return `prometheus` or `promtool`: from PATH, else from Debian's package."""
    installed = shutil.which(name)
    if installed is not None:
        return Path(installed)
    directory = ROOT / "build" / "prometheus"
    _run_script([str(COMPONENTS / "prometheus.sh"), str(directory)], progress)
    return directory / name


def find_chromium(progress: "Callable[[str], None]") -> Path:
    """Return chromium: from PATH, else installed from Debian's package."""
    _run_script([str(COMPONENTS / "chromium.sh")], progress)
    found = shutil.which("chromium")
    if found is None:
        raise AssertionError("chromium.sh ended well, and there is no chromium on PATH")
    return Path(found)


def find_node_programs(progress: "Callable[[str], None]") -> NodePrograms:
    """Return what a node runs, building and fetching what is missing."""
    found = _find(_NODE_NAMES, progress)
    debian = ROOT / "build" / "node-tools"
    _run_script([str(COMPONENTS / "debian.sh"), str(debian)], progress)
    return NodePrograms(
        kubelet=found["kubelet"],
        containerd=found["containerd"],
        containerd_shim=found["containerd-shim-runc-v2"],
        ctr=found["ctr"],
        debian=debian,
    )


def kubernetes_version() -> str:
    go_mod = (COMPONENTS / "go.mod").read_text(encoding="utf-8")
    match = re.search(r"^\tk8s\.io/kubernetes (v[\d.]+)", go_mod, re.MULTILINE)
    if match is None:
        raise AssertionError(f"{COMPONENTS / 'go.mod'} names no version of k8s.io/kubernetes")
    return match[1]


def build(directory: Path, names: "Sequence[str]", progress: "Callable[[str], None]") -> None:
    """Build into `<directory>/<version>`, passing lines on as they come; the last are in the error."""
    _run_script([str(COMPONENTS / "build.sh"), str(directory), *names], progress)


def _run_script(script: "Sequence[str]", progress: "Callable[[str], None]") -> None:
    lines: list[str] = []
    with subprocess.Popen(
        script,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                lines.append(line)
                progress(line.rstrip())
        except BaseException:
            os.killpg(process.pid, signal.SIGTERM)  # the compiler too, not only the script
            raise
    if process.returncode != 0:
        raise AssertionError(
            f"{' '.join(script)} ended with {process.returncode}:\n{''.join(lines[-20:])}"
        )


def _find(names: "Sequence[str]", progress: "Callable[[str], None]") -> dict[str, Path]:
    assets = _assets()
    missing = [name for name in names if name not in assets]
    built = ROOT / "build" / "kubernetes"
    if missing:
        build(built, missing, progress)
    directory = built / kubernetes_version()
    return {name: assets.get(name, directory / name) for name in names}


def _assets() -> dict[str, Path]:
    configured = os.environ.get("KUBEBUILDER_ASSETS")
    if not configured:
        return {}
    directory = Path(configured)
    found = {name: directory / name for name in _ASSETS if os.access(directory / name, os.X_OK)}
    shortfall = [name for name in _REQUIRED_ASSETS if name not in found]
    if shortfall:
        raise AssertionError(
            f"KUBEBUILDER_ASSETS={configured} has no executable {' and no '.join(shortfall)}"
        )
    return found
