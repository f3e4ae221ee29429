"""docs/compatibility.md names the versions that the tests build, and those that the program demands."""

import re
from pathlib import Path

import pytest

from server.cluster_version import OLDEST

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")
COMPONENTS = ROOT / "tests" / "cluster" / "components"
MODULES = {
    "Kubernetes": ("go.mod", "k8s.io/kubernetes"),
    "kubelet": ("go.mod", "k8s.io/kubernetes"),
    "etcd": ("go.mod", "go.etcd.io/etcd/server/v3"),
    "containerd": ("containerd/go.mod", "github.com/containerd/containerd/v2"),
    "Helm": ("helm/go.mod", "helm.sh/helm/v4"),
    "Karpenter": ("karpenter/go.mod", "sigs.k8s.io/karpenter"),
}


def row_of(component: str) -> list[str]:
    (row,) = re.findall(rf"^\| {component} \|(.*)\|$", PAGE, re.MULTILINE)
    return [cell.strip() for cell in row.split("|")]


def version_in(file: str, module: str) -> str:
    text = (COMPONENTS / file).read_text(encoding="utf-8")
    (version,) = re.findall(rf"^\s+{re.escape(module)} v(\S+)", text, re.MULTILINE)
    return str(version)


@pytest.mark.parametrize("component", MODULES)
def test_a_tested_version_is_the_one_that_is_built(component: str):
    _, tested, _ = row_of(component)
    assert re.match(rf"{re.escape(version_in(*MODULES[component]))}\b", tested)


def test_both_versions_of_helm_are_named():
    assert version_in("helm3/go.mod", "helm.sh/helm/v3") in row_of("Helm")[1]


def test_the_oldest_version_is_the_one_that_the_program_demands():
    oldest = ".".join(map(str, OLDEST))
    assert row_of("Kubernetes")[0].startswith(f"{oldest} or newer")
