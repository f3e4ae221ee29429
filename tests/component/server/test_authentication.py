"""Who may call the scheduler's paths, over real TLS."""

import os

import pytest

from manifests.constants import BIND_PATH, FILTER_PATH, PREEMPT_PATH, PRIORITIZE_PATH
from tests.support.scheduling import a_wire_pod, binding_args, extender_args
from tests.support.served_app import TOKEN, ServedApp, sample

QUESTION = extender_args(a_wire_pod(whole=1), "n1")


@pytest.mark.parametrize("path", [FILTER_PATH, PRIORITIZE_PATH, PREEMPT_PATH, BIND_PATH])
async def test_scheduler_paths_refuse_a_caller_without_credentials(
    anonymous: ServedApp, path: str
) -> None:
    """Lesson 36: without authentication each client of the port could bind."""
    anonymous.extender_setup.pending()
    verb = path.rsplit("/", maxsplit=1)[-1]
    refused = sample("gpu_extender_duration_seconds_count", verb=verb, outcome="unauthenticated")
    reply = await anonymous.post(path, binding_args())
    assert (reply.status, reply.content_type) == (401, "text/plain")
    assert reply.text == "a client certificate or a bearer token is needed"
    assert (
        sample("gpu_extender_duration_seconds_count", verb=verb, outcome="unauthenticated")
        == refused + 1
    )
    assert anonymous.extender_setup.binder.bindings == []


async def test_certificate_of_the_scheduler_is_let_in(scheduler: ServedApp) -> None:
    reply = await scheduler.post(FILTER_PATH, QUESTION)
    assert (reply.status, reply.json["NodeNames"]) == (200, ["n1"])


async def test_certificate_of_another_client_of_our_ca_is_refused_by_name(
    anonymous: ServedApp,
) -> None:
    anonymous.pair = anonymous.authority.client("somebody-else")
    reply = await anonymous.post(FILTER_PATH, QUESTION)
    assert reply.status == 401
    assert reply.text == (
        "client certificate somebody-else may not call the scheduler's paths; "
        "extender.client_names lists those that may"
    )


async def test_bearer_token_is_let_in(anonymous: ServedApp) -> None:
    reply = await anonymous.post(FILTER_PATH, QUESTION, Authorization=f"Bearer {TOKEN}")
    assert (reply.status, reply.json["NodeNames"]) == (200, ["n1"])


@pytest.mark.parametrize(
    "header",
    [
        pytest.param("Bearer wrong", id="another token"),
        pytest.param("Bearer ", id="an empty token"),
        pytest.param(f"Basic {TOKEN}", id="another scheme"),
        pytest.param(TOKEN, id="no scheme"),
    ],
)
async def test_other_authorization_is_refused(anonymous: ServedApp, header: str) -> None:
    reply = await anonymous.post(FILTER_PATH, QUESTION, Authorization=header)
    assert reply.status == 401


async def test_token_that_is_no_text_is_refused_like_any_other(anonymous: ServedApp) -> None:
    head = f"POST {FILTER_PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nAuthorization: Bearer "
    status_line = await anonymous.call_raw(head.encode() + b"\xff\xfe\r\n\r\n{}")
    assert status_line == b"HTTP/1.1 401 Unauthorized"


async def test_token_file_is_read_again_when_it_changes(anonymous: ServedApp) -> None:
    first = await anonymous.post(FILTER_PATH, QUESTION, Authorization=f"Bearer {TOKEN}")
    anonymous.token_file.write_text("renewed")
    os.utime(anonymous.token_file, ns=(1, 1))
    old = await anonymous.post(FILTER_PATH, QUESTION, Authorization=f"Bearer {TOKEN}")
    new = await anonymous.post(FILTER_PATH, QUESTION, Authorization="Bearer renewed")
    assert [first.status, old.status, new.status] == [200, 401, 200]


async def test_token_stays_good_while_its_file_is_being_replaced(anonymous: ServedApp) -> None:
    await anonymous.post(FILTER_PATH, QUESTION, Authorization=f"Bearer {TOKEN}")
    anonymous.token_file.unlink()
    reply = await anonymous.post(FILTER_PATH, QUESTION, Authorization=f"Bearer {TOKEN}")
    assert reply.status == 200


async def test_nobody_is_let_in_by_a_token_file_that_never_was(anonymous: ServedApp) -> None:
    anonymous.token_file.unlink()
    for offered in ("", "x", TOKEN):
        reply = await anonymous.post(FILTER_PATH, QUESTION, Authorization=f"Bearer {offered}")
        assert reply.status == 401


async def test_empty_token_file_lets_nobody_in(anonymous: ServedApp) -> None:
    anonymous.token_file.write_text("\n")
    reply = await anonymous.post(FILTER_PATH, QUESTION, Authorization="Bearer ")
    assert reply.status == 401
