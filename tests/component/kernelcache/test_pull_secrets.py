"""Pull secrets that cannot be read: the message says who must do what."""

import pytest

from kube.client import KubeClient
from kube.config.connection import StaticConnection
from kube.pull_secrets import PullSecretReader, PullSecretUnusableError
from tests.component.kernelcache.conftest import NAMESPACE
from tests.support.canned_api import CannedApi, Json
from tests.support.loop_clock import LoopClock

FORBIDDEN = Json({"kind": "Status", "reason": "Forbidden", "message": "no", "code": 403}, 403)


async def fault(answer: Json, namespace: str = "team-a") -> PullSecretUnusableError:
    async with CannedApi() as api, KubeClient(StaticConnection(api.url), LoopClock()) as client:
        api.will_answer(answer)
        with pytest.raises(PullSecretUnusableError) as raised:
            await PullSecretReader(client, NAMESPACE).read(namespace, ["regcred"])
        return raised.value


async def test_a_right_that_is_missing_is_named_with_role_and_accounts() -> None:
    found = await fault(FORBIDDEN)
    assert not found.is_transient
    assert str(found) == (
        "pull secret team-a/regcred may not be read by the control plane: in namespace team-a, make a RoleBinding of"
        " ClusterRole gpu-kernel-cache-pull-secrets to the service accounts gpu-control-plane/gpu-control-plane and"
        " gpu-control-plane/gpu-node-agent"
    )


async def test_a_right_in_our_namespace_comes_with_the_setting() -> None:
    found = await fault(FORBIDDEN, NAMESPACE)
    assert "name it in kernel_caches.pull_secrets of the installation" in str(found)


async def test_a_secret_of_another_kind_is_none() -> None:
    found = await fault(Json({"data": {"token": ""}}))
    assert str(found) == (
        "pull secret team-a/regcred has no .dockerconfigjson: make it with `kubectl create secret docker-registry`"
    )


async def test_an_api_server_that_fails_is_asked_again_later() -> None:
    found = await fault(Json({"kind": "Status", "code": 500}, 500))
    assert found.is_transient
    assert "cannot be read now" in str(found)
