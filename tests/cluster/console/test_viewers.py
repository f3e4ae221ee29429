"""Viewers with tokens of real accounts, at a console whose own account has the rights that the chart gives it."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from manifests.install.crds import build_crds
from tests.cluster.environment import definitions, polling, viewers

if TYPE_CHECKING:
    from tests.cluster.environment.client import ApiClient
    from tests.cluster.environment.control_plane import ControlPlane
    from tests.cluster.environment.kubectl import Kubectl

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
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": crds})
    await kubectl("apply", "--server-side", "-f", "-", stdin=text)
    await definitions.until_served(kubectl, crds)
    async with (
        viewers.console_with_its_rights(api, control_plane, kubectl, namespace) as url,
        aiohttp.ClientSession() as session,
    ):
        yield RealConsole(url, session)


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
        tokens = {
            name: await viewers.token_of(api, namespace, name) for name in ("all", "one", "none")
        }
        made += await viewers.give(
            api, namespace, "all", viewers.OF_POOLS, viewers.OF_NODES, OF_PODS
        )
        made += await viewers.give(api, namespace, "one", viewers.OF_POOLS)
        made += await viewers.give(api, namespace, "none", viewers.OF_NODES, OF_PODS)
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
