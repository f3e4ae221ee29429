"""Answers through kubectl proxy: split, paged, refused."""

import pytest

from kube.resources import GPU_POOLS, PODS
from kubectl_gpu.api_answers import status_error
from kubectl_gpu.errors import (
    BadSelectorError,
    ForbiddenError,
    ListExpiredError,
    NotFoundError,
    UnreadableError,
)
from kubectl_gpu.kubectl import continue_token, split_answer

HEAD = b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n"


def test_an_answer_is_a_status_and_a_body():
    assert split_answer(HEAD + b"\r\n{}\r\n\r\n") == (200, b"{}\r\n\r\n")
    assert split_answer(HEAD + b"Content-Length: 2\r\n\r\n{}") == (200, b"{}")


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.0 200 OK\r\n",
        HEAD + b"content-length: 3\r\n\r\n{}",
        b"SSH-2.0\r\n\r\n",
        b"\r\n\r\n",
    ],
)
def test_an_answer_that_is_cut_or_none(answer: bytes):
    with pytest.raises(UnreadableError):
        split_answer(answer)


def test_the_next_page_is_named_by_the_last_one():
    assert continue_token(b'{"metadata":{"continue":"x"},"items":[]}') == "x"
    assert continue_token(b'{"metadata":{"resourceVersion":"1"},"items":null}') == ""


@pytest.mark.parametrize(
    ("status", "body", "kind", "said"),
    [
        (400, b'{"message":"bad field"}', BadSelectorError, "bad field"),
        (401, b"", UnreadableError, "401 Unauthorized"),
        (403, b'{"message":"no, alice"}', ForbiddenError, "no, alice"),
        (404, b"404 page not found", NotFoundError, "is the GPU control plane installed there?"),
        (410, b"{}", ListExpiredError, "changed while they were read"),
        (418, b"\xff\xfe", UnreadableError, "answered 418"),
        (500, b'{"message":"etcd"}', UnreadableError, "answered 500"),
        (
            500,
            b"dial tcp [::1]:8080: connect: connection refused",
            UnreadableError,
            "no kubeconfig",
        ),
        (500, b"getting credentials: exec: oidc failed", UnreadableError, "oidc failed"),
        (503, b'{"message":"apiserver not ready"}', UnreadableError, "apiserver not ready"),
    ],
)
def test_each_refusal_is_a_sentence(
    status: int, body: bytes, kind: type[UnreadableError], said: str
):
    error = status_error(status, body, GPU_POOLS)
    assert type(error) is kind
    assert said in str(error)
    assert "\n" not in str(error)


def test_a_pod_that_is_not_there_is_no_missing_kind():
    body = b'{"message":"pods \\"a\\" not found","details":{"name":"a"}}'
    assert str(status_error(404, body, PODS, name="a")) == 'there is no Pod a: pods "a" not found'
