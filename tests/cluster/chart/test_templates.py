"""Helm makes of the chart what `render all` prints, and complains in one line."""

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.installed_objects import build_installed_objects
from manifests.install.installation import overlaid
from manifests.install.values import ChartValues
from server.values_file import build_installation
from tests.cluster.environment import binaries
from tests.cluster.environment.helm import CHART, Helm
from tests.support.chart_values import FLIPS

NAMESPACE = "gpu-operators"
KUBERNETES = binaries.kubernetes_version()

Objects = dict[tuple[str, str | None, str], Any]


def rendered_by_us(values: dict[str, Any]) -> Objects:
    defaults = ChartValues().model_dump(mode="json", by_alias=True)
    installation = build_installation(
        ChartValues.model_validate(overlaid(defaults, values)),
        namespace=NAMESPACE,
        kubernetes_version=KUBERNETES,
    )
    objects = build_installed_objects(installation)
    return by_name([object_ for object_ in objects if object_["kind"] != "Namespace"])


def by_name(objects: list[dict[str, Any]]) -> Objects:
    named = {
        (
            object_["kind"],
            object_["metadata"].get("namespace"),
            object_["metadata"]["name"],
        ): normalised(object_)
        for object_ in objects
        if "helm.sh/hook" not in object_["metadata"].get("annotations", {})
    }
    assert len(named) >= len(objects) - 20
    return named


def normalised(value: Any, key: str = "") -> Any:
    """Parse YAML within texts, sort lists whose order means nothing, and leave out what is empty."""
    match value:
        case dict():
            inner = {name: normalised(item, name) for name, item in value.items()}
            return {name: item for name, item in inner.items() if item not in ({}, [], None, "")}
        case list():
            items = [normalised(item) for item in value]
            of_roles = key == "rules" and all("verbs" in item for item in items)
            in_order = key != "resourceNames" and not of_roles
            return items if in_order else sorted(items, key=partial(json.dumps, sort_keys=True))
        case str() if "\n" in value and key.endswith(".yaml"):
            return yaml.safe_load(value)
        case _:
            return value


@pytest.mark.parametrize("name", FLIPS)
def test_chart_makes_the_objects_of_render_all(any_offline_helm: Helm, name: str):
    helm = by_name(any_offline_helm.template(FLIPS[name], namespace=NAMESPACE))
    ours = rendered_by_us(FLIPS[name])
    assert helm.keys() == ours.keys()
    for key, item in ours.items():
        assert helm[key] == item


def test_comparison_sees_a_difference(offline_helm: Helm):
    helm = by_name(offline_helm.template({"server": {"replicas": 3}}, namespace=NAMESPACE))
    assert helm != rendered_by_us({})


def test_chart_is_good_to_lint(offline_helm: Helm):
    done = offline_helm.run("lint", "--strict", str(CHART))
    assert "0 chart(s) failed" in done.stdout


@pytest.mark.parametrize("version", ["v1.34.2-eks-1", "v1.34.2+k3s1", "v1.34.2"])
def test_scheduler_has_the_version_of_the_cluster(offline_helm: Helm, version: str):
    objects = offline_helm.template({}, namespace=NAMESPACE, kube_version=version)
    images = [
        object_["spec"]["template"]["spec"]["containers"][0]["image"]
        for object_ in objects
        if object_["kind"] == "Deployment"
    ]
    assert "registry.k8s.io/kube-scheduler:v1.34.2" in images


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"sever": {}}, "additional properties 'sever' not allowed"),
        ({"server": {"replicas": 0}}, "at '/server/replicas': minimum: got 0, want 1"),
        ({"server": {"replicas": "two"}}, "at '/server/replicas': got string, want integer"),
        ({"server": None}, "missing property 'server'"),
        ({"image": {"registry": "docker"}}, "at '/image/registry': 'docker' does not match"),
        ({"settings": {"lissten": {}}}, "at '/settings': additional properties 'lissten'"),
        ({"settings": {"listen": {"port": 99999}}}, "at '/settings/listen/port': maximum"),
        (
            {"settings": {"namespace": "other"}},
            f"settings.namespace is other, and the release's is {NAMESPACE}: leave it out",
        ),
        (
            {"settings": {"tls": {"secret": "other"}}},
            "settings.tls.secret: no setting any more: it has a fixed value now; leave it out",
        ),
        (
            {
                "settings": {
                    "bootstrap": {"gfd": {"image": {"version": "1"}, "args": []}},
                    "leadership": {"look_s": 1},
                }
            },
            "settings.bootstrap.gfd.args: no setting any more: it has a fixed value now; leave it out;"
            " settings.bootstrap.gfd.image.version: no setting any more: set `bootstrap.gfd.image` to the"
            " whole reference, as registry/path/name:version; settings.leadership.look_s: no setting any more:",
        ),
        (
            {"settings": {"bootstrap": {"gfd": {"image": {"name": "gfd"}}}}},
            "at '/settings/bootstrap/gfd/image': additional properties 'name' not allowed",
        ),
        (
            {"settings": {"device_plugin": {"image": "registry.test/plugin"}}},
            "image registry.test/plugin has neither tag nor digest",
        ),
        (
            {"settings": {"kernel_caches": {"enabled": False}}},
            "settings.kernel_caches.enabled is not what kernelCaches.enabled is: set it there",
        ),
        (
            {"settings": {"kernel_caches": {"registries": {"ca_config_map": "other"}}}},
            "ca_config_map is not what kernelCaches.registries.caConfigMap is: set it there",
        ),
        (
            {"kernelCaches": {"registries": {"caConfigMap": "no_name"}}},
            "at '/kernelCaches/registries/caConfigMap': 'no_name' does not match",
        ),
        (
            {"console": {"enabled": True}},
            "console.enabled needs a certificate: set console.tls.secretName",
        ),
        (
            {"console": {"enabled": True, "plainHttp": True, "tls": {"secretName": "console"}}},
            "console.plainHttp and console.tls.secretName exclude each other",
        ),
        ({"console": {"hosts": ["https://gpu"]}}, "at '/console/hosts/0': 'https://gpu' does not"),
    ],
    ids=str,
)
def test_bad_value_is_one_line(any_offline_helm: Helm, values: dict[str, Any], complaint: str):
    done = any_offline_helm.run(
        *("template", "gpu", str(CHART), "--namespace", NAMESPACE, "--kube-version", KUBERNETES),
        values=values,
        check=False,
    )
    assert done.returncode != 0
    assert done.stdout.strip() == ""
    lines = [line for line in done.stderr.splitlines() if complaint in line]
    assert len(lines) == 1, done.stderr
    assert len(done.stderr.strip().splitlines()) <= 3


def test_cluster_older_than_1_30_is_refused_in_one_line(any_offline_helm: Helm):
    done = any_offline_helm.run(
        *("template", "gpu", str(CHART), "--kube-version", "v1.29.11-eks-1"), check=False
    )
    assert done.returncode != 0
    assert "chart requires kubeVersion: >=1.30.0-0" in done.stderr


def test_notes_name_the_release_and_what_is_missing(offline_helm: Helm, tmp_path: Path):
    done = offline_helm.run(
        *("install", "gpu", str(CHART), "--namespace", NAMESPACE, "--dry-run=client")
    )
    notes = done.stdout.partition("NOTES:")[2]
    assert f"kubectl -n {NAMESPACE} rollout status deployment gpu-control-plane" in notes
    assert "no NodeFeature definition" in notes
    assert re.search(r"localhost/gpu-control-plane:\S+ is pulled from no registry", notes)
