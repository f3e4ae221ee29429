"""Admission webhooks that deny, warn, or cannot be asked."""

import asyncio
from typing import Any

import pytest

from tests.support.api_servers import Answer, Api
from tests.support.conformance import Hooks, a_pod, until
from tests.support.webhook_server import Authority, deny, patch

Json = dict[str, Any]


async def test_a_denial_reaches_the_user_with_its_code_and_message(
    api: Api, pods: str, hooks: Hooks
) -> None:
    await hooks.validating(deny("no room", code=422))
    answer = await api.post(pods, a_pod("p"))
    assert answer.status == 422
    assert answer.message == (
        'admission webhook "validate.conformance.example" denied the request: no room'
    )
    assert not answer.reason
    assert (await api.get(f"{pods}/p")).status == 404


@pytest.mark.parametrize(
    ("response", "want"),
    [
        pytest.param({"allowed": False}, " without explanation", id="nothing said"),
        pytest.param(
            {"allowed": False, "status": {"reason": "Because"}}, ": Because", id="a reason only"
        ),
        pytest.param({"allowed": False, "status": {"message": "no"}}, ": no", id="a message only"),
    ],
)
async def test_a_denial_without_a_code_is_a_bad_request(
    api: Api, pods: str, hooks: Hooks, response: Json, want: object
) -> None:
    await hooks.validating(lambda _: dict(response))
    answer = await api.post(pods, a_pod("p"))
    assert answer.status == 400
    assert answer.message.endswith(f"denied the request{want}")
    assert answer.reason == response.get("status", {}).get("reason", "")


async def test_a_mutating_webhook_can_deny(api: Api, pods: str, hooks: Hooks) -> None:
    await hooks.mutating(lambda _: {"allowed": True})
    hooks.server.answers["/mutate"] = deny("no", code=403)
    answer = await api.post(pods, a_pod("p"))
    assert answer.status == 403
    assert 'admission webhook "mutate.conformance.example" denied the request: no' in answer.message


async def test_warnings_reach_the_client(api: Api, pods: str, hooks: Hooks) -> None:
    await hooks.validating(lambda _: {"allowed": True, "warnings": ['say "hi"', "two"]})
    answer = await api.created(pods, a_pod("p"))
    assert answer.warnings == ['299 - "say \\"hi\\""', '299 - "two"']


async def test_a_long_warning_arrives_whole(api: Api, pods: str, hooks: Hooks) -> None:
    await hooks.validating(lambda _: {"allowed": True, "warnings": ["x" * 300]})
    answer = await api.created(pods, a_pod("p"))
    assert answer.warnings == [f'299 - "{"x" * 300}"']


async def test_too_much_warning_is_shortened(api: Api, pods: str, hooks: Hooks) -> None:
    warnings = [f"{index:02}" + "x" * 300 for index in range(20)]
    await hooks.validating(lambda _: {"allowed": True, "warnings": warnings})
    arrived = (await api.created(pods, a_pod("p"))).warnings
    assert {len(warning) for warning in arrived[:-1]} == {len('299 - ""') + 256}
    assert sum(len(warning) - len('299 - ""') for warning in arrived) <= 4096


async def test_a_webhook_that_is_down_fails_the_request(api: Api, pods: str, hooks: Hooks) -> None:
    config = hooks.server.config("/down", hooks.namespace, timeoutSeconds=3)
    config["clientConfig"]["url"] = "https://127.0.0.1:1/down"
    await hooks.register("Validating", "v", config)

    async def post() -> Answer:
        return await api.post(pods, a_pod("p"), dryRun="All")

    await until(post, lambda answer: answer.status != 201)
    answer = await api.post(pods, a_pod("p"))
    assert (answer.status, answer.reason) == (500, "InternalError")
    assert answer.message == (
        'Internal error occurred: failed calling webhook "down.conformance.example": failed to call '
        'webhook: Post "https://127.0.0.1:1/down?timeout=3s": dial tcp 127.0.0.1:1: connect: '
        "connection refused"
    )


async def test_a_failing_webhook_can_be_ignored(api: Api, pods: str, hooks: Hooks) -> None:
    config = hooks.server.config("/down", hooks.namespace, failurePolicy="Ignore")
    config["clientConfig"]["url"] = "https://127.0.0.1:1/down"
    await hooks.register("Validating", "a", config)
    await hooks.validating()
    assert (await api.post(pods, a_pod("p"))).status == 201


async def test_a_webhook_that_hangs_fails_at_its_time_out(
    api: Api, pods: str, hooks: Hooks
) -> None:
    server = hooks.server
    await hooks.validating(timeoutSeconds=1)
    release = asyncio.Event()
    server.holds["/validate"] = release
    answer = await api.post(pods, a_pod("p"))
    release.set()
    assert answer.status == 500
    assert answer.message.endswith('/validate?timeout=1s": context deadline exceeded')


async def test_a_server_of_another_ca_is_not_trusted(api: Api, pods: str, hooks: Hooks) -> None:
    config = hooks.server.config("/validate", hooks.namespace)
    config["clientConfig"]["caBundle"] = Authority().bundle
    await hooks.register("Validating", "v", config)

    async def post() -> Answer:
        return await api.post(pods, a_pod("p"), dryRun="All")

    await until(post, lambda answer: answer.status != 201)
    answer = await api.post(pods, a_pod("p"))
    assert answer.status == 500
    assert "tls: failed to verify certificate: x509: " in answer.message
    assert "/validate" not in hooks.server.calls


async def test_an_answer_to_another_request_is_a_failure(api: Api, pods: str, hooks: Hooks) -> None:
    await hooks.validating(lambda _: {"uid": "other", "allowed": True})
    answer = await api.post(pods, a_pod("p"))
    assert answer.status == 500
    assert 'expected response.uid="' in answer.message
    assert 'got "other"' in answer.message


async def test_a_patch_that_does_not_fit_is_a_server_error(
    api: Api, pods: str, hooks: Hooks
) -> None:
    await hooks.mutating(lambda _: {"allowed": True})
    hooks.server.answers["/mutate"] = patch({"op": "test", "path": "/metadata/name", "value": "z"})
    answer = await api.post(pods, a_pod("p"))
    assert answer.status == 500
    assert (await api.get(f"{pods}/p")).status == 404


async def test_side_effects_and_versions_have_to_be_declared(api: Api, hooks: Hooks) -> None:
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    config = hooks.server.config("/validate", hooks.namespace, sideEffects="Some")
    answer = await api.post(path, {"metadata": {"name": "x"}, "webhooks": [config]})
    assert answer.status == 422
    assert "webhooks[0].sideEffects: Unsupported value" in answer.message
