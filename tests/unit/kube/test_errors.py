"""Every answer of the API server has one exception, and it says whether the write happened."""

import json

import pytest

from kube import errors
from tests.support.canned_api import status

NAMED = {
    400: errors.BadRequest,
    401: errors.Unauthorized,
    403: errors.Forbidden,
    404: errors.NotFound,
    405: errors.MethodNotAllowed,
    406: errors.NotAcceptable,
    408: errors.RequestTimeout,
    409: errors.Conflict,
    410: errors.Gone,
    415: errors.UnsupportedMediaType,
    422: errors.Invalid,
    429: errors.TooManyRequests,
}


def test_every_status_has_its_class_and_says_whether_the_write_was_refused() -> None:
    for code in range(100, 600):
        error = errors.from_status(code, json.dumps(status(code, "SomeReason", "why")).encode())
        expected = NAMED.get(code, errors.ServerError if code >= 500 else errors.UnexpectedStatus)
        assert type(error) is expected
        assert (error.status, error.reason, error.message) == (code, "SomeReason", "why")
        assert error.is_definite is (400 <= code <= 499 and code != 408), code
        assert error.is_transient is (code in {408, 429} or not 400 <= code <= 499), code


def test_the_tree_in_the_docstring_names_every_class() -> None:
    classes = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.KubeError)
    }
    drawn = {word for word in (errors.__doc__ or "").split() if word in classes}
    assert drawn == classes


def test_a_conflict_of_a_create_says_that_the_object_exists() -> None:
    error = errors.from_status(409, json.dumps(status(409, "AlreadyExists")).encode())
    assert type(error) is errors.AlreadyExists
    assert isinstance(error, errors.Conflict)


def test_an_expired_version_is_gone_whatever_its_code() -> None:
    assert type(errors.from_status(410, json.dumps(status(410, "Expired")).encode())) is errors.Gone
    assert type(errors.from_status(500, json.dumps(status(500, "Expired")).encode())) is errors.Gone


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"<html>" + b"x" * 10_000_000, id="a very long page"),
        pytest.param(b"\xff\xfe\x00garbage", id="not UTF-8"),
        pytest.param(b'{"kind":"Status","code":"500"}', id="a Status of the wrong types"),
        pytest.param(b"[]", id="another JSON"),
        pytest.param(b"null", id="null"),
        pytest.param(b'{"kind":"Pod","message":"x"}', id="another object"),
        pytest.param(b'{"x":' + b"[" * 100_000, id="nested without end"),
    ],
)
def test_foreign_bodies_become_a_short_message(body: bytes) -> None:
    error = errors.from_status(502, body)
    assert type(error) is errors.ServerError
    assert error.reason == ""
    assert len(error.message) <= errors.MAX_FOREIGN_TEXT
    assert "\n" not in str(error)


def test_long_texts_of_the_api_server_are_cut() -> None:
    error = errors.from_status(422, json.dumps(status(422, "r" * 9999, "m" * 9999)).encode())
    assert len(error.message) == len(error.reason) == errors.MAX_FOREIGN_TEXT


def test_details_and_the_time_to_wait_are_kept() -> None:
    details = {"name": "p", "retryAfterSeconds": 3, "causes": [{"field": ".spec.a"}]}
    error = errors.from_status(429, json.dumps(status(429, "X", details=details)).encode(), "9")
    assert isinstance(error, errors.TooManyRequests)
    assert error.retry_after_s == 3
    assert error.details is not None
    assert error.details.causes is not None
    assert error.details.causes[0].field == ".spec.a"


@pytest.mark.parametrize(
    ("header", "expected"),
    [("7", 7.0), (None, None), ("Wed, 21 Oct 2026 07:28:00 GMT", None), ("-1", None)],
)
def test_the_retry_after_header_counts_where_the_body_says_nothing(
    header: str | None, expected: float | None
) -> None:
    assert errors.from_status(503, b"", header).retry_after_s == expected


def test_only_a_request_that_never_left_is_a_definite_no() -> None:
    assert errors.Unreachable("refused", request_sent=False).is_definite
    assert not errors.Unreachable("reset", request_sent=True).is_definite
    assert not errors.TimedOut("late", request_sent=True).is_definite
    assert not errors.Undecodable("garbage").is_definite


def test_an_api_error_prints_status_reason_and_message() -> None:
    assert str(errors.ApiError(409, "Conflict", "old")) == "409 Conflict: old"
    assert str(errors.from_status(404, b"")) == "404 NotFound: "
