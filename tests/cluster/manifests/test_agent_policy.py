"""An agent writes of its own node, with the token that kubelet gives to its pod, and of no other."""

import contextlib
import secrets
from typing import TYPE_CHECKING, Any

import pytest

from agent.detection.report import detector_feature_name
from agent.driver_processes import process_reporter
from api.foreign.nodefeature import GPU_INSTANCES, NODE_NAME_LABEL
from api.names import GKM_GROUP
from manifests import constants
from manifests.caches.crds import build_cache_crds
from manifests.install.agent_policy import build_agent_policy
from manifests.yaml import render
from server.rbac import build_agent_roles
from tests.cluster.environment import client, definitions, kubeconfigs, polling
from tests.cluster.manifests.agent_writes import (
    INVENTORIES,
    Site,
    a_discovery,
    a_feature,
    a_gkm_object,
    a_report,
    create_pod,
    discovery_rbac,
    is_refused,
    write_feature,
    write_inventory,
)
from tests.cluster.manifests.conftest import created, install_node_features

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from tests.cluster.environment.control_plane import ControlPlane
    from tests.cluster.environment.kubectl import Kubectl
    from tests.cluster.manifests.conftest import Installed

    LogIn = Callable[..., Awaitable[client.ApiClient]]

POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
REFUSED = "of node .* writes no other node"


@pytest.fixture
async def site(
    api: client.ApiClient,
    kubectl: "Kubectl",
    installed: "Installed",
    create_nodes: "Callable[..., Awaitable[list[str]]]",
) -> "AsyncIterator[Site]":
    """Rights and policy in force; pods of agents, and an inventory of each node."""
    mine, other = await create_nodes(2)
    roles = render(
        [
            *build_agent_roles(installed.namespace),
            *discovery_rbac(installed.namespace),
        ]
    )
    await install_node_features(kubectl)
    await kubectl("apply", "-f", "-", stdin=roles)
    for node in (mine, other):
        inventory = {"kind": "GPUNodeInventory", "metadata": {"name": node}}
        await api.create(INVENTORIES, {"apiVersion": "gpu.deckhouse.io/v1alpha1", **inventory})
    async with contextlib.AsyncExitStack() as stack:
        for part in build_agent_policy(installed.namespace):
            await stack.enter_async_context(created(api, part))
        yield Site(namespace=installed.namespace, mine=mine, other=other)
    for node in (mine, other):
        await api.delete(f"{INVENTORIES}/{node}")
    await kubectl("delete", "--wait=false", "-f", "-", stdin=roles)


@pytest.fixture
async def log_in(
    site: Site, api: client.ApiClient, control_plane: "ControlPlane", tmp_path: "Path"
) -> "AsyncIterator[LogIn]":
    """`await log_in(account, node)`: a client with the token of a pod there; without a node, of no pod."""
    async with contextlib.AsyncExitStack() as stack:

        async def log_in(node: str | None, account: str = constants.NODE_AGENT) -> client.ApiClient:
            spec: dict[str, Any] = {}
            if node is not None:
                pod = await create_pod(api, site.namespace, node, account)
                spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", **pod}
            answer = await api.create(
                f"/api/v1/namespaces/{site.namespace}/serviceaccounts/{account}/token",
                {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec},
            )
            file = kubeconfigs.write_kubeconfig(
                tmp_path / secrets.token_hex(3),
                url=control_plane.url,
                ca_file=control_plane.ca_file,
                user=account,
                login={"token": answer["status"]["token"]},
            )
            return await stack.enter_async_context(client.open_client(file))

        unbound = await log_in(None)

        async def is_enforced() -> bool:
            try:
                await write_inventory(unbound, site.mine)
            except client.ApiRefusedError as refused:
                return "names no node" in str(refused)
            return False

        await polling.eventually(is_enforced, what="the policy in force")
        yield log_in


async def test_api_server_finds_no_fault_with_the_expressions(site: Site, api: client.ApiClient):
    async def checked() -> Any:
        found = await api.get(f"{POLICIES}/{constants.AGENT_POLICY}")
        return found.get("status", {}).get("observedGeneration") and found

    found = await polling.eventually(checked, what="type check of the policy")
    assert found["status"]["typeChecking"].get("expressionWarnings", []) == []


async def test_an_agent_tells_of_its_own_node(site: Site, log_in: "LogIn"):
    agent = await log_in(site.mine)
    for _ in range(2):
        await write_feature(agent, site, a_feature(site.mine))
        await write_inventory(agent, site.mine)
    feature = f"{site.features}/{constants.AGENT_FEATURE_PREFIX}{site.mine}"
    assert (await agent.get(feature))["metadata"]["labels"] == {NODE_NAME_LABEL: site.mine}


async def test_an_agent_reports_processes_and_takes_them_back(site: Site, log_in: "LogIn"):
    """Fields that its next apply lacks are gone, and those of its other reports stay."""
    agent = await log_in(site.mine)
    await write_inventory(agent, site.mine)

    async def report(**fields: Any) -> Any:
        body = {
            "apiVersion": "gpu.deckhouse.io/v1alpha1",
            "kind": "GPUNodeInventory",
            "metadata": {"name": site.mine},
            "status": fields,
        }
        path = f"{INVENTORIES}/{site.mine}/status"
        manager = process_reporter.FIELD_MANAGER
        answer = await agent.patch(path, body, kind="apply", fieldManager=manager, force="true")
        return answer["status"]

    processes = [{"command": "nvtop", "pid": 70}, {"command": "python3", "uid": "u", "pod": "p"}]
    reported = await report(driverProcesses=processes, driverProcessesOmitted=3)
    assert [process["command"] for process in reported["driverProcesses"]] == ["nvtop", "python3"]
    reported = await report()
    assert "driverProcesses" not in reported
    assert reported.get("driverProcessesOmitted", 0) == 0
    assert reported["driver"]["version"]


async def test_an_agent_tells_of_no_other_node(site: Site, log_in: "LogIn"):
    agent = await log_in(site.mine)
    with is_refused(REFUSED):
        await write_inventory(agent, site.other)
    for feature in (
        a_feature(site.other),
        a_feature(site.other, name=site.mine),
        # It would keep the other's agent from ever writing its own.
        a_feature(site.mine, name=site.other),
        # Without the label an object is about the node that it is named after.
        a_feature("", name=site.mine),
    ):
        with is_refused(REFUSED):
            await write_feature(agent, site, feature)


async def test_an_agent_neither_takes_over_nor_gives_away(
    site: Site, log_in: "LogIn", api: client.ApiClient
):
    agent = await log_in(site.mine)
    await write_feature(api, site, a_feature(site.mine, name=site.mine))
    name = f"{site.features}/{constants.AGENT_FEATURE_PREFIX}"
    with is_refused(REFUSED):
        await agent.patch(
            f"{name}{site.mine}", {"metadata": {"labels": {NODE_NAME_LABEL: site.other}}}
        )
    await api.patch(f"{name}{site.mine}", {"metadata": {"labels": {NODE_NAME_LABEL: site.other}}})
    with is_refused(REFUSED):
        await agent.patch(
            f"{name}{site.mine}", {"metadata": {"labels": {NODE_NAME_LABEL: site.mine}}}
        )
    await api.delete(f"{name}{site.mine}")


async def test_a_token_of_no_pod_writes_nothing(site: Site, log_in: "LogIn"):
    unbound = await log_in(None)
    with is_refused("the token names no node"):
        await write_inventory(unbound, site.mine)
    with is_refused("the token names no node"):
        await write_feature(unbound, site, a_feature(site.mine))


async def test_others_are_not_concerned(site: Site, log_in: "LogIn", api: client.ApiClient):
    await write_feature(api, site, a_feature(site.other, name="by-hand"))
    await write_inventory(api, site.other)
    await api.delete(f"{site.features}/{constants.AGENT_FEATURE_PREFIX}by-hand")


async def test_agents_may_do_what_they_have_to_and_no_more(site: Site, log_in: "LogIn"):
    pods = f"/api/v1/pods?fieldSelector=spec.nodeName%3D{site.mine}"
    devices = "/apis/gpu.deckhouse.io/v1alpha1/gpudevices"
    for account in (constants.NODE_AGENT, constants.DEVICE_PLUGIN):
        agent = await log_in(site.mine, account)
        assert (await agent.get(pods))["kind"] == "PodList"
        with is_refused("cannot delete resource"):
            await agent.delete(f"/api/v1/namespaces/{site.namespace}/pods/none")
        with is_refused("cannot create resource"):
            await agent.create(devices, {"metadata": {"name": "made-up"}})
    plugin = await log_in(site.mine, constants.DEVICE_PLUGIN)
    with is_refused("cannot patch resource"):
        await write_inventory(plugin, site.mine)
    with is_refused("cannot patch resource"):
        await write_feature(plugin, site, a_feature(site.mine))


async def test_a_detector_tells_of_its_own_node_and_takes_it_back(site: Site, log_in: "LogIn"):
    detector = await log_in(site.mine, constants.NODE_DETECTOR)
    for _ in range(2):
        await write_feature(detector, site, a_report(site.mine))
    feature = f"{site.features}/{detector_feature_name(site.mine)}"
    assert (await detector.get(feature))["spec"]["labels"]["gpu.deckhouse.io/device-count"] == "1"
    assert (await detector.get(f"/api/v1/nodes/{site.mine}"))["kind"] == "Node"
    await detector.delete(feature)


async def test_a_detector_tells_of_no_other_node(
    site: Site, log_in: "LogIn", api: client.ApiClient
):
    detector = await log_in(site.mine, constants.NODE_DETECTOR)
    for feature in (
        a_report(site.other),
        a_report(site.other, name=site.mine),
        a_report(site.mine, name=site.other),
        a_feature(site.mine),
    ):
        with is_refused(REFUSED):
            await write_feature(detector, site, feature)
    for others in (a_report(site.other), a_feature(site.mine)):
        await write_feature(api, site, others)
        with is_refused(REFUSED):
            await detector.delete(f"{site.features}/{others['metadata']['name']}")
        await api.delete(f"{site.features}/{others['metadata']['name']}")


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"labels": {"topology.example.com/zone": "a"}}, id="a label of others"),
        pytest.param({"labels": {"gpu.deckhouse.io/present": "true"}}, id="the servers label"),
        pytest.param(
            {"features": {"instances": {"nvidia.com/gpu": {"elements": []}}}}, id="features"
        ),
    ],
)
async def test_a_detector_tells_of_nothing_but_devices(
    site: Site, log_in: "LogIn", spec: dict[str, Any]
):
    detector = await log_in(site.mine, constants.NODE_DETECTOR)
    with is_refused("the NodeFeature of a node detector has"):
        await write_feature(detector, site, a_report(site.mine, **spec))


async def test_a_detector_may_do_nothing_else(site: Site, log_in: "LogIn"):
    detector = await log_in(site.mine, constants.NODE_DETECTOR)
    for path in ("/api/v1/pods", "/api/v1/nodes", site.features, INVENTORIES):
        with is_refused("cannot list resource"):
            await detector.get(path)
    with is_refused("cannot patch resource"):
        await write_inventory(detector, site.mine)


async def test_feature_discovery_writes_the_node_feature_of_its_own_node(
    site: Site, log_in: "LogIn", api: client.ApiClient
):
    """As its program writes: a create, then updates."""
    discovery = await log_in(site.mine, constants.FEATURE_DISCOVERY_ACCOUNT)
    feature = await discovery.create(site.features, a_discovery(site.mine))
    place = f"{site.features}/{feature['metadata']['name']}"
    feature["spec"]["labels"]["nvidia.com/gpu.count"] = "8"
    element = {"attributes": {"pci.address": "0000:3b:00.0"}}
    feature["spec"]["features"]["instances"] = {GPU_INSTANCES: {"elements": [element]}}
    await discovery.replace(place, feature)
    assert (await discovery.get(place))["spec"]["labels"]["nvidia.com/gpu.count"] == "8"
    with is_refused("cannot delete resource"):
        await discovery.delete(place)
    await api.delete(place)


async def test_feature_discovery_writes_no_other_node_feature(
    site: Site, log_in: "LogIn", api: client.ApiClient
):
    discovery = await log_in(site.mine, constants.FEATURE_DISCOVERY_ACCOUNT)
    for feature in (
        a_discovery(site.other),
        a_discovery(site.other, name=site.mine),
        a_discovery(site.mine, name=site.other),
        a_feature(site.mine),
        a_report(site.mine),
    ):
        with is_refused(REFUSED):
            await discovery.create(site.features, feature)
    others = await api.create(site.features, a_discovery(site.other))
    others["spec"]["labels"] = {"nvidia.com/gpu.count": "0"}
    place = f"{site.features}/{others['metadata']['name']}"
    with is_refused(REFUSED):
        await discovery.replace(place, others)
    await api.delete(place)
    unbound = await log_in(None, constants.FEATURE_DISCOVERY_ACCOUNT)
    with is_refused("the token names no node"):
        await unbound.create(site.features, a_discovery(site.mine))


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"labels": {"topology.example.com/zone": "a"}}, id="a label of others"),
        pytest.param({"labels": {"gpu.deckhouse.io/present": "true"}}, id="the servers label"),
        pytest.param(
            {"features": {"instances": {"gpu.deckhouse.io/device": {"elements": []}}}},
            id="devices of the node agent",
        ),
        pytest.param(
            {"features": {"attributes": {"gpu.deckhouse.io/node": {"elements": {}}}}},
            id="facts of the node agent",
        ),
    ],
)
async def test_feature_discovery_reports_under_names_of_nvidia_only(
    site: Site, log_in: "LogIn", spec: dict[str, Any]
):
    discovery = await log_in(site.mine, constants.FEATURE_DISCOVERY_ACCOUNT)
    with is_refused("the NodeFeature of gpu-feature-discovery has labels"):
        await discovery.create(site.features, a_discovery(site.mine, **spec))


@pytest.fixture
async def caches(
    site: Site, api: client.ApiClient, kubectl: "Kubectl"
) -> "AsyncIterator[Callable[[str, str], str]]":
    """`caches(kind, name)`: path of an object. RBAC lets agents write all of them: the policy is what is left."""
    crds, account = build_cache_crds(), {"name": constants.NODE_AGENT, "namespace": site.namespace}
    everything = {"apiGroups": [GKM_GROUP], "resources": ["*"], "verbs": ["*"]}
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "gkm-everything"}}
    text = render(
        [
            *crds,
            {**role, "kind": "ClusterRole", "rules": [everything]},
            {
                **role,
                "kind": "ClusterRoleBinding",
                "roleRef": {"kind": "ClusterRole", "name": "gkm-everything"},
                "subjects": [{"kind": "ServiceAccount", **account}],
            },
        ]
    )
    await kubectl("apply", "-f", "-", stdin=text)
    await definitions.until_served(kubectl, crds)

    def path(kind: str, name: str) -> str:
        place = "" if kind.startswith("Cluster") else f"namespaces/{site.namespace}/"
        return f"/apis/{GKM_GROUP}/v1alpha1/{place}{kind.lower()}s/{name}"

    yield path
    for kind in ("GKMCache", "ClusterGKMCache", "GKMCacheNode", "ClusterGKMCacheNode"):
        await api.delete(path(kind, "").rstrip("/"))
    for kind in ("clusterrole", "clusterrolebinding"):
        await kubectl("delete", "--wait=false", kind, "gkm-everything")


@pytest.mark.parametrize("kind", ["GKMCacheNode", "ClusterGKMCacheNode"])
async def test_an_agent_tells_of_the_caches_of_its_own_node_only(
    kind: str,
    site: Site,
    log_in: "LogIn",
    api: client.ApiClient,
    caches: "Callable[[str, str], str]",
):
    agent = await log_in(site.mine)
    status = {"status": {"nodeName": secrets.token_hex(2)}}
    await agent.create(caches(kind, "").rstrip("/"), a_gkm_object(kind, site.mine))
    await agent.patch(f"{caches(kind, site.mine)}/status", status)
    await agent.patch(caches(kind, site.mine), {"metadata": {"labels": {"a": "b"}}})
    await agent.delete(caches(kind, site.mine))
    with is_refused(REFUSED):
        await agent.create(caches(kind, "").rstrip("/"), a_gkm_object(kind, site.other))
    await api.create(caches(kind, "").rstrip("/"), a_gkm_object(kind, site.other))
    with is_refused(REFUSED):
        await agent.patch(f"{caches(kind, site.other)}/status", status)
    with is_refused(REFUSED):
        await agent.patch(caches(kind, site.other), {"metadata": {"labels": {"a": "b"}}})
    with is_refused(REFUSED):
        await agent.delete(caches(kind, site.other))


@pytest.mark.parametrize("kind", ["GKMCache", "ClusterGKMCache"])
async def test_no_agent_writes_a_cache_whatever_its_rights(
    kind: str,
    site: Site,
    log_in: "LogIn",
    api: client.ApiClient,
    caches: "Callable[[str, str], str]",
):
    agent = await log_in(site.mine)
    cache = {**a_gkm_object(kind, site.mine), "spec": {"image": "registry.test/cache:1"}}
    with is_refused("an agent writes no kernel cache"):
        await agent.create(caches(kind, "").rstrip("/"), cache)
    await api.create(caches(kind, "").rstrip("/"), cache)
    status = {"status": {"resolvedDigest": f"sha256:{'0' * 64}"}}
    with is_refused("an agent writes no kernel cache"):
        await agent.patch(f"{caches(kind, site.mine)}/status", status)
    with is_refused("an agent writes no kernel cache"):
        await agent.delete(caches(kind, site.mine))
