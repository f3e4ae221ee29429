"""Credentials of dockerconfigjson: which entry serves which image, as the kubelet decides."""

import base64
import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.image_reference import parse_image_reference
from oci.docker_config import BasicCredentials, DockerConfig, parse_docker_configs
from oci.errors import UnusableCredentials


def auth(user: str, password: str = "p") -> str:
    return base64.b64encode(f"{user}:{password}".encode()).decode()


def a_config(*configs: dict[str, Any]) -> DockerConfig:
    """Return the entries of secrets; a text is the user of an entry."""
    return parse_docker_configs(
        [
            (
                f"team/pull-{number}",
                json.dumps(
                    {
                        "auths": {
                            key: {"auth": auth(item)} if isinstance(item, str) else item
                            for key, item in auths.items()
                        }
                    }
                ).encode(),
            )
            for number, auths in enumerate(configs)
        ]
    )


def users(config: DockerConfig, image: str) -> list[str]:
    return [
        credential.username for credential in config.credentials_of(parse_image_reference(image))
    ]


@pytest.mark.parametrize(
    ("key", "image", "is_served"),
    [
        pytest.param("r.example", "r.example/a/b:1", True, id="host"),
        pytest.param("https://r.example", "r.example/a/b", True, id="URL"),
        pytest.param("https://r.example/v1/", "r.example/a/b", True, id="URL of version 1"),
        pytest.param(
            "https://r.example/v2/a", "r.example/a/b", True, id="URL of version 2 with path"
        ),
        pytest.param("r.example/a", "r.example/a/b", True, id="path"),
        pytest.param("r.example/a/b", "r.example/a/b", True, id="whole path"),
        pytest.param("r.example/a/c", "r.example/a/b", False, id="another path"),
        pytest.param("r.example", "r.example:5000/b", False, id="a port more"),
        pytest.param("r.example:5000", "r.example:5000/b", True, id="port"),
        pytest.param("*.example", "r.example/b", True, id="wildcard"),
        pytest.param("*.example", "a.r.example/b", False, id="wildcard is one label"),
        pytest.param("*.*.example", "a.r.example/b", True, id="two wildcards"),
        pytest.param("*", "r.example/b", False, id="wildcard alone"),
        pytest.param("example", "r.example/b", False, id="end of the host"),
        pytest.param("docker.io", "cache:1", True, id="Docker Hub by its short name"),
        pytest.param(
            "https://index.docker.io/v1/", "cache:1", True, id="Docker Hub of docker login"
        ),
        pytest.param(
            "https://index.docker.io/v1/", "r.example/a", False, id="Docker Hub's elsewhere"
        ),
        pytest.param("http://[", "r.example/a", False, id="no address"),
    ],
)
def test_an_entry_serves_an_image_as_for_the_kubelet(key: str, image: str, is_served: bool) -> None:
    assert users(a_config({key: "u"}), image) == (["u"] if is_served else [])


def test_the_most_specific_entry_comes_first() -> None:
    config = a_config(
        {
            "r.example": "host",
            "r.example/team/cache": "image",
            "*.example": "all",
            "r.example/team": "team",
        }
    )
    assert users(config, "r.example/team/cache:1") == ["image", "team", "host", "all"]


def test_of_equal_entries_the_secret_that_is_named_first_comes_first() -> None:
    assert users(a_config({"r.example": "first"}, {"r.example": "second"}), "r.example/a") == [
        "first",
        "second",
    ]


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"username": "u", "password": "p"}, ("u", "p")),
        ({"auth": auth("u", "p:q")}, ("u", "p:q")),
        ({"auth": auth("u", "p").rstrip("=")}, ("u", "p")),
        ({"auth": auth("u", "p\0\0")}, ("u", "p")),
        ({"username": "u", "password": "p", "auth": auth("x")}, ("u", "p")),
        ({"identitytoken": "t", "auth": auth("u")}, ("u", "p")),
    ],
)
def test_user_and_password_of_an_entry(entry: dict[str, str], expected: tuple[str, str]) -> None:
    (found,) = a_config({"r.example": entry}).credentials_of(parse_image_reference("r.example/a"))
    assert (found.username, found.password) == expected


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"identitytoken": "t"}, "has an identitytoken, which is not supported"),
        ({}, "has an entry without username and password"),
        ({"username": "u"}, "has an entry without username and password"),
        ({"auth": "!"}, "no base64 of user:password"),
        ({"auth": base64.b64encode(b"only").decode()}, "no base64 of user:password"),
        ({"auth": base64.b64encode(b"\xff:\xff").decode()}, "no base64 of user:password"),
    ],
)
def test_an_entry_that_cannot_be_used_says_so_for_its_images_only(
    entry: dict[str, str], message: str
) -> None:
    config = a_config({"r.example": entry, "other.example": "u"})
    with pytest.raises(UnusableCredentials, match=f"secret team/pull-0 .*{message}"):
        users(config, "r.example/a")
    assert users(config, "other.example/a") == ["u"]
    assert users(config, "third.example/a") == []


def test_an_entry_that_can_be_used_makes_up_for_one_that_cannot() -> None:
    config = a_config({"r.example/a": {"identitytoken": "t"}, "r.example": "u"})
    assert users(config, "r.example/a") == ["u"]


@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"auths": []}', b'{"auths": {"a": "hunter2"}}', b"\xff", b"x" * 2**21]
)
def test_a_secret_that_is_none_is_named_and_not_quoted(content: bytes) -> None:
    with pytest.raises(UnusableCredentials, match=r"^secret team/pull: ") as caught:
        parse_docker_configs([("team/pull", content)])
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_passwords_are_not_shown() -> None:
    assert "hunter2" not in repr(a_config({"r": {"username": "u", "password": "hunter2"}}))


def test_the_header_is_that_of_rfc_7617() -> None:
    assert BasicCredentials(username="u", password="pä").header() == "Basic dTpww6Q="


@given(st.binary(max_size=200))
def test_any_content_is_read_or_refused(content: bytes) -> None:
    with contextlib.suppress(UnusableCredentials):
        parse_docker_configs([("s", content)])


@given(
    st.dictionaries(
        st.text(max_size=30), st.dictionaries(st.sampled_from(["auth", "username"]), st.text())
    )
)
def test_any_entries_are_matched_or_refused(auths: dict[str, dict[str, str]]) -> None:
    config = parse_docker_configs([("s", json.dumps({"auths": auths}).encode())])
    with contextlib.suppress(UnusableCredentials):
        config.credentials_of(parse_image_reference("r.example:5000/a/b"))
