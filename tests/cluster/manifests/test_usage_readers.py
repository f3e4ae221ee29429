"""Reviews at a real API server, of tokens of real accounts: who may read /metrics/usage."""

import contextlib
from typing import TYPE_CHECKING

from http_edge.reviews.kube_reviews import RBAC, KubeReviews, TokenUser
from http_edge.reviews.review_cache import TokenRefusal
from http_edge.system_clock import SystemClock
from kube.client import KubeClient
from kube.config.discovery import load_configuration
from manifests import constants
from tests.cluster.environment import polling

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.cluster.environment.client import ApiClient
    from tests.cluster.environment.control_plane import ControlPlane
    from tests.cluster.manifests.conftest import Installed

BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"


async def bind(api: "ApiClient", role: str, namespace: str, account: str) -> None:
    subject = {"kind": "ServiceAccount", "namespace": namespace, "name": account}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
    body = {"metadata": {"name": role}, "roleRef": reference, "subjects": [subject]}
    await api.create(BINDINGS, body)


async def token_of(api: "ApiClient", namespace: str, account: str) -> str:
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token: str = (await api.create(path, request))["status"]["token"]
    return token


@contextlib.asynccontextmanager
async def reviews_of_the_server(
    control_plane: "ControlPlane", namespace: str
) -> "AsyncIterator[KubeReviews]":
    clock = SystemClock()
    file = await control_plane.service_account_kubeconfig(namespace, constants.SERVICE_ACCOUNT)
    configuration = await load_configuration(clock, kubeconfig=str(file))
    async with KubeClient(configuration, clock) as client:
        yield KubeReviews(client, constants.USAGE_METRICS_PATH)


async def test_rights_of_a_real_token_decide(
    api: "ApiClient", control_plane: "ControlPlane", installed: "Installed"
):
    namespace, reader = installed.namespace, "prometheus"
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    await api.create(accounts, {"metadata": {"name": reader}})
    rules = [
        {"apiGroups": [item.group], "resources": [*item.resources], "verbs": [*item.verbs]}
        for item in RBAC
    ]
    await api.create(ROLES, {"metadata": {"name": "usage-reviewer"}, "rules": rules})
    await bind(api, "usage-reviewer", namespace, constants.SERVICE_ACCOUNT)
    token = await token_of(api, namespace, reader)
    try:
        async with reviews_of_the_server(control_plane, namespace) as reviews:

            async def says(refusal: TokenRefusal) -> bool:
                return await reviews.review(token) is refusal

            async def is_accepted() -> bool:
                return isinstance(await reviews.review(token), TokenUser)

            assert await reviews.review("no-token") is TokenRefusal.UNAUTHENTICATED
            assert await says(TokenRefusal.FORBIDDEN)
            await bind(api, constants.METRICS_READER, namespace, reader)
            await polling.eventually(is_accepted, what="the right to be seen")
            await api.delete(f"{BINDINGS}/{constants.METRICS_READER}")
            await polling.eventually(
                lambda: says(TokenRefusal.FORBIDDEN), what="its end to be seen"
            )
            await api.delete(f"{accounts}/{reader}")
            await polling.eventually(
                lambda: says(TokenRefusal.UNAUTHENTICATED), what="the account's end to be seen"
            )
    finally:
        for path in (f"{BINDINGS}/usage-reviewer", f"{ROLES}/usage-reviewer"):
            await api.delete(path)
