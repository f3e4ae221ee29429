"""The chart on a real API server: installed, upgraded, taken over, and twice in one cluster."""

import secrets
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from manifests import constants
from tests.cluster.environment import definitions, polling
from tests.cluster.environment.client import ApiClient
from tests.cluster.environment.control_plane import ControlPlane
from tests.cluster.environment.helm import CHART, Helm
from tests.cluster.environment.kubectl import Kubectl
from tests.support import ports
from tests.support.chart_values import FLIPS, FOREIGN_KINDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

RELEASE = "gpu"
GROUPS = "/apis/admissionregistration.k8s.io/v1"
CONFIGURATIONS = (
    f"{GROUPS}/mutatingwebhookconfigurations/{constants.MUTATING_CONFIGURATION}",
    f"{GROUPS}/validatingwebhookconfigurations/{constants.VALIDATING_CONFIGURATION}",
)


@pytest.fixture
async def release_namespace(api: ApiClient, helm: Helm, kubectl: Kubectl) -> "AsyncIterator[str]":
    """A namespace as strict as pod security can be; the release and the namespace are deleted."""
    name = f"chart-{secrets.token_hex(3)}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    await api.create("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
    yield name
    await helm("uninstall", RELEASE, "--namespace", name, "--no-hooks", "--ignore-not-found")
    remaining = [item for item in helm.template({}, namespace=name) if not _is_definition(item)]
    await kubectl(
        *("delete", "--ignore-not-found", "--wait=false", "-f", "-"),
        stdin=yaml.safe_dump_all(remaining),
    )
    await kubectl("delete", "namespace", name, "--wait=false")


async def install(helm: Helm, namespace: str, *args: str, **values: Any) -> None:
    """Install it over definitions that other tests have left."""
    await helm(
        *("install", RELEASE, str(CHART), "--namespace", namespace, "--take-ownership", *args),
        values=values,
    )


async def upgrade(helm: Helm, namespace: str, *args: str, **values: Any) -> None:
    await helm("upgrade", RELEASE, str(CHART), "--namespace", namespace, *args, values=values)


async def ca_bundles(api: ApiClient) -> set[str | None]:
    return {
        webhook["clientConfig"].get("caBundle")
        for path in CONFIGURATIONS
        for webhook in (await api.get(path))["webhooks"]
    }


async def deployment(api: ApiClient, namespace: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = await api.get(
        f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}"
    )
    return found


@pytest.mark.parametrize("name", FLIPS)
async def test_objects_are_strictly_valid(
    api: ApiClient, kubectl: Kubectl, helm: Helm, namespace: str, name: str
):
    objects = helm.template(FLIPS[name], namespace=namespace)
    ours = [object_ for object_ in objects if object_["kind"] not in FOREIGN_KINDS]
    await kubectl(
        *("apply", "--server-side", "--dry-run=server", "--validate=strict"),
        *("--force-conflicts", "-f", "-"),
        stdin=yaml.safe_dump_all(ours),
        timeout_s=120,
    )


async def test_pods_are_admitted_where_pod_security_is_restricted(
    api: ApiClient, helm: Helm, release_namespace: str
):
    await install(helm, release_namespace, console={"enabled": True, "plainHttp": True})

    async def pods() -> bool:
        found = (await api.get(f"/api/v1/namespaces/{release_namespace}/pods"))["items"]
        names = Counter(item["metadata"]["name"].rsplit("-", 2)[0] for item in found)
        assert names == {constants.NAME: 2, constants.SCHEDULER_DEPLOYMENT: 2, constants.CONSOLE: 1}
        return True

    await polling.eventually(pods, what="servers, schedulers and the console")


async def test_change_of_a_setting_changes_the_pods_and_nothing_else_does(
    api: ApiClient, any_helm: Helm, release_namespace: str
):
    await install(any_helm, release_namespace)
    first = await deployment(api, release_namespace, constants.NAME)
    await upgrade(any_helm, release_namespace)
    same = await deployment(api, release_namespace, constants.NAME)
    assert same["metadata"]["generation"] == first["metadata"]["generation"]
    await upgrade(any_helm, release_namespace, settings={"drain_s": 6})
    changed = await deployment(api, release_namespace, constants.NAME)
    templates = [item["spec"]["template"] for item in (first, changed)]
    given = [template["spec"]["containers"][0].pop("args") for template in templates]
    assert given[0] != given[1]
    assert templates[0] == templates[1]


async def test_ca_bundle_survives_upgrades_and_comes_back_after_a_replace(
    api: ApiClient,
    control_plane: ControlPlane,
    helm: Helm,
    kubectl: Kubectl,
    start_server: "Callable[..., Any]",
    release_namespace: str,
):
    await install(helm, release_namespace)
    port = ports.free_port()
    await start_server(
        {
            "namespace": release_namespace,
            "listen": {"host": "127.0.0.1", "port": port},
            "tls": {"ip_addresses": ["127.0.0.1"]},
        },
        port=port,
        kubeconfig=await control_plane.service_account_kubeconfig(
            release_namespace, constants.SERVICE_ACCOUNT
        ),
        until=constants.LIVENESS_PATH,
    )

    async def injected() -> str | None:
        bundles = await ca_bundles(api)
        return bundles.pop() if len(bundles) == 1 else None

    bundle = await polling.eventually(injected, what="caBundle in every webhook")
    await upgrade(helm, release_namespace, "--server-side=true", poolViewers=[])
    assert await ca_bundles(api) == {bundle}
    await upgrade(helm, release_namespace, "--server-side=false", "--force-conflicts=false")
    assert await ca_bundles(api) == {bundle}
    bare = helm.template({}, namespace=release_namespace)
    configurations = [item for item in bare if item["kind"].endswith("WebhookConfiguration")]
    await kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(configurations))
    assert await ca_bundles(api) == {bundle}
    # The server may have put it back before it is read again.
    replaced = await kubectl(
        "replace", "-o", "yaml", "-f", "-", stdin=yaml.safe_dump_all(configurations)
    )
    assert "caBundle" not in replaced.stdout
    await polling.eventually(injected, what="caBundle again")
    assert await ca_bundles(api) == {bundle}


@pytest.mark.parametrize(
    ("any_helm", "options"),
    [
        pytest.param(4, ("--force-conflicts",), id="Helm 4"),
        pytest.param(3, (), id="Helm 3"),
    ],
    indirect=["any_helm"],
)
async def test_installation_by_hand_is_taken_over(
    api: ApiClient,
    kubectl: Kubectl,
    any_helm: Helm,
    options: tuple[str, ...],
    release_namespace: str,
):
    """What the README's commands applied before there was a chart, under the same names."""
    objects = any_helm.template({}, namespace=release_namespace)
    chart_only = {"Deployment", "Service", "ConfigMap", "PodDisruptionBudget", "Job"}
    by_hand = [object_ for object_ in objects if object_["kind"] not in chart_only]
    for item in by_hand:
        item["metadata"].setdefault("labels", {})["app.kubernetes.io/part-of"] = "by-hand"
    await kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(by_hand))
    before = {path: (await api.get(path))["metadata"]["uid"] for path in CONFIGURATIONS}
    refused = await any_helm(
        "install", RELEASE, str(CHART), "--namespace", release_namespace, check=False
    )
    assert refused.returncode != 0
    await install(any_helm, release_namespace, *options)
    after = {path: (await api.get(path))["metadata"]["uid"] for path in CONFIGURATIONS}
    assert after == before


async def test_second_release_in_a_cluster_is_refused_in_one_line(
    api: ApiClient, helm: Helm, release_namespace: str, namespace: str
):
    await install(helm, release_namespace)
    done = await helm(
        *("install", "second", str(CHART), "--namespace", namespace, "--take-ownership"),
        check=False,
    )
    assert done.returncode != 0
    expected = (
        f"the cluster has this chart already: release {RELEASE} in namespace {release_namespace}"
    )
    assert expected in done.stderr
    assert (await api.get(f"/apis/apps/v1/namespaces/{namespace}/deployments"))["items"] == []


async def test_user_of_one_namespace_sees_pools_and_no_devices(
    helm: Helm, kubectl: Kubectl, release_namespace: str
):
    await install(helm, release_namespace)
    await definitions.until_served(
        kubectl, [item for item in helm.template({}, namespace="x") if _is_definition(item)]
    )

    async def allowed() -> bool:
        return (await kubectl("get", "gpupools", user="alice", check=False)).returncode == 0

    await polling.eventually(allowed, what="alice lists pools")
    refused = await kubectl("get", "gpudevices", user="alice", check=False)
    assert "Forbidden" in refused.stderr


def _is_definition(one: dict[str, Any]) -> bool:
    return bool(one["kind"] == "CustomResourceDefinition")
