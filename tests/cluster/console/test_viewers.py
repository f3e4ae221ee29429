"""Viewers with tokens of real accounts, at a console whose own account has the rights that the chart gives it."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from console.processes.rbac import CONSOLE_NAMESPACED_RBAC, CONSOLE_RBAC
from manifests.install.crds import build_crds
from manifests.install.rbac import build_rbac
from tests.cluster.environment import definitions, polling
from tests.support.console_process import console_process

if TYPE_CHECKING:
    from tests.cluster.environment.client import ApiClient
    from tests.cluster.environment.control_plane import ControlPlane
    from tests.cluster.environment.kubectl import Kubectl

ACCOUNT = "console-of-a-test"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
OF_POOLS = {
    "apiGroups": ["gpu.deckhouse.io"],
    "resources": ["gpupools", "gpudevices"],
    "verbs": ["list"],
}
OF_NODES = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}
OF_PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}


@dataclass
class RealConsole:
    url: str
    session: aiohttp.ClientSession

    async def viewer(self, token: str, namespace: str) -> dict[str, Any] | int:
        """Return what the page says of its viewer, or the status of the refusal."""
        async with self.session.get(
            f"{self.url}/api/v1/stream?namespace={namespace}",
            headers={"Authorization": f"Bearer {token}"},
        ) as reply:
            if reply.status != 200:
                assert set(await reply.json()) == {"error"}
                return reply.status
            event = await reply.content.readuntil(b"\n\n")
        viewer: dict[str, Any] = json.loads(event.split(b"data: ", 1)[1])["viewer"]
        return viewer


@pytest.fixture
async def console(
    api: "ApiClient", control_plane: "ControlPlane", kubectl: "Kubectl", namespace: str
) -> AsyncIterator[RealConsole]:
    """The process, in the namespace of a control plane that is not there."""
    crds = build_crds()
    account = build_rbac(
        CONSOLE_RBAC, name=ACCOUNT, namespaced_rules=CONSOLE_NAMESPACED_RBAC, namespace=namespace
    )
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": [*crds, *account]})
    await kubectl("apply", "--server-side", "-f", "-", stdin=text)
    await definitions.until_served(kubectl, crds)
    file = await control_plane.service_account_kubeconfig(namespace, ACCOUNT)
    async with (
        console_process(file, f"--namespace={namespace}") as process,
        aiohttp.ClientSession() as session,
    ):
        port = (await process.log("listening"))["port"]
        await process.log("ready")
        yield RealConsole(f"http://127.0.0.1:{port}", session)
    for path in (f"{BINDINGS}/{ACCOUNT}", f"{ROLES}/{ACCOUNT}"):
        await api.delete(path)


async def token_of(api: "ApiClient", namespace: str, name: str) -> str:
    """Make an account, and return a token of it."""
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    await api.create(accounts, {"metadata": {"name": name}})
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token: str = (await api.create(f"{accounts}/{name}/token", request))["status"]["token"]
    return token


async def give(api: "ApiClient", namespace: str, name: str, *rules: dict[str, Any]) -> list[str]:
    """Give an account rights in the whole cluster; return the paths of what was made."""
    role = f"{name}-{namespace}"
    await api.create(ROLES, {"metadata": {"name": role}, "rules": rules})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
    subject = {"kind": "ServiceAccount", "namespace": namespace, "name": name}
    body = {"metadata": {"name": role}, "roleRef": reference, "subjects": [subject]}
    await api.create(BINDINGS, body)
    return [f"{BINDINGS}/{role}", f"{ROLES}/{role}"]


async def give_pods_of(api: "ApiClient", namespace: str, name: str) -> None:
    """Let an account list the pods of its own namespace."""
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    await api.create(f"{rbac}/roles", {"metadata": {"name": name}, "rules": [OF_PODS]})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    subject = {"kind": "ServiceAccount", "namespace": namespace, "name": name}
    body = {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}
    await api.create(f"{rbac}/rolebindings", body)


async def test_each_viewer_sees_what_its_token_may(
    api: "ApiClient", console: RealConsole, namespace: str
):
    made: list[str] = []
    try:
        tokens = {name: await token_of(api, namespace, name) for name in ("all", "one", "none")}
        made += await give(api, namespace, "all", OF_POOLS, OF_NODES, OF_PODS)
        made += await give(api, namespace, "one", OF_POOLS)
        made += await give(api, namespace, "none", OF_NODES, OF_PODS)
        await give_pods_of(api, namespace, "one")
        user = f"system:serviceaccount:{namespace}:"

        async def has_rights() -> bool:
            """A binding is known to the authorizer a moment after it is made; a refusal is kept for seconds."""
            seen = {name: await console.viewer(token, namespace) for name, token in tokens.items()}
            return seen == {
                "all": {"name": f"{user}all", "allNamespaces": True, "nodes": True},
                "one": {
                    "name": f"{user}one",
                    "namespace": namespace,
                    "canChooseNamespace": True,
                },
                "none": 403,
            }

        await polling.eventually(has_rights, what="the rights of the viewers")
        bare = {"name": f"{user}one", "canChooseNamespace": True}
        for other in ("kube-system", "no-such-namespace"):
            assert await console.viewer(tokens["one"], other) == bare
        assert await console.viewer("no-token", namespace) == 401
    finally:
        for path in made:
            await api.delete(path)
