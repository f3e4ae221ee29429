"""References of images: containerd's grammar and defaults, and an exact message for each fault."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.image_reference import (
    IMAGE_PATTERN,
    MAX_IMAGE_LENGTH,
    Digest,
    ImageReference,
    ImageReferenceError,
    parse_digest,
    parse_image_reference,
)

HEX = "0123456789abcdef" * 4
DIGEST = Digest(f"sha256:{HEX}")


@pytest.mark.parametrize(
    ("text", "registry", "repository", "tag", "digest"),
    [
        ("busybox", "docker.io", "library/busybox", None, None),
        ("busybox:1.36", "docker.io", "library/busybox", "1.36", None),
        ("team/cache", "docker.io", "team/cache", None, None),
        ("docker.io/busybox", "docker.io", "library/busybox", None, None),
        ("index.docker.io/team/cache", "docker.io", "team/cache", None, None),
        ("quay.io/gkm/cache:v1", "quay.io", "gkm/cache", "v1", None),
        # G12: a cut at the last colon takes the port for a tag.
        ("host:5000/img", "host:5000", "img", None, None),
        ("host:5000/img:1", "host:5000", "img", "1", None),
        (f"host:5000/img@{DIGEST}", "host:5000", "img", None, DIGEST),
        (f"host:5000/a/b:1@{DIGEST}", "host:5000", "a/b", "1", DIGEST),
        ("localhost/img", "localhost", "img", None, None),
        ("Host/img", "Host", "img", None, None),
        ("[::1]:5000/img:2", "[::1]:5000", "img", "2", None),
        ("[2001:db8::1]/img", "[2001:db8::1]", "img", None, None),
        ("10.0.0.1:443/a__b/c-d.e_f", "10.0.0.1:443", "a__b/c-d.e_f", None, None),
        ("img:5000", "docker.io", "library/img", "5000", None),
    ],
)
def test_reference_has_the_parts_that_containerd_sees(text, registry, repository, tag, digest):
    """G12."""
    found = parse_image_reference(text)
    want = ImageReference(registry=registry, repository=repository, tag=tag, digest=digest)
    assert found == want
    assert parse_image_reference(str(found)) == found
    assert re.search(IMAGE_PATTERN, text)
    assert re.search(IMAGE_PATTERN, str(found))


NO_REPOSITORY = (
    " is no repository: lower-case letters and digits are possible, with single"
    ' ".", "_", "__" or "-" between them, in parts separated by "/"'
)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("https://quay.io/a", "a reference has no scheme: remove everything up to ://"),
        ("quay.io/Team/a", f'"Team/a"{NO_REPOSITORY}'),
        ("quay.io/", f'""{NO_REPOSITORY}'),
        ("quay.io//a", f'"/a"{NO_REPOSITORY}'),
        ("quay.io/a/../b", f'"a/../b"{NO_REPOSITORY}'),
        (" busybox", f'" busybox"{NO_REPOSITORY}'),
        ("busybox\n", f'"busybox\n"{NO_REPOSITORY}'),
        ("quay.io/a___b", f'"a___b"{NO_REPOSITORY}'),
        ("a@sha256:12", '"sha256:12" is no digest: write sha256: and 64 lower-case hex digits'),
        ("a@", '"" is no digest: write sha256: and 64 lower-case hex digits'),
        (
            f"a@sha256:{HEX.upper()}",
            f'"sha256:{HEX.upper()}" is no digest: write sha256: and 64 lower-case hex digits',
        ),
        (
            "a:",
            '"" is no tag: up to 128 letters, digits, "_", "." and "-" are possible,'
            ' with no "." or "-" in front',
        ),
        (
            "h.io/a:b:c",
            '"b:c" is no tag: up to 128 letters, digits, "_", "." and "-" are possible,'
            ' with no "." or "-" in front',
        ),
        ("-x.io/a", '"-x.io" is no registry: write a host and perhaps :port'),
        (":5000/a", '":5000" is no registry: write a host and perhaps :port'),
        ("host:/a", '"host:" is no registry: write a host and perhaps :port'),
        ("user:secret@host/a", '"host/a" is no digest: write sha256: and 64 lower-case hex digits'),
        ("host:0/a", "port 0 is not between 1 and 65535"),
        ("host:65536/a", "port 65536 is not between 1 and 65535"),
        ("[::g]/a", '"[::g]" is no registry: write a host and perhaps :port'),
        ("[1::2::3]:1/a", '"[1::2::3]:1" is no IPv6 address'),
        (HEX, "64 hex digits alone look like an id of an image: add its repository"),
        ("h.io/" + "a" * 256, "its repository has 256 characters; at most 255 are possible"),
    ],
)
def test_text_outside_the_grammar_is_refused_with_its_fault(text, why):
    with pytest.raises(ImageReferenceError) as raised:
        parse_image_reference(text)
    message = str(raised.value)
    assert message.partition(" names no image: ")[2] == why
    assert message.startswith('"')


def test_empty_and_endless_text_are_refused():
    with pytest.raises(ImageReferenceError, match=r"^the image is empty: name one"):
        parse_image_reference("")
    with pytest.raises(ImageReferenceError, match=r"526 characters; at most 525 are possible$"):
        parse_image_reference("a" * (MAX_IMAGE_LENGTH + 1))


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("a", "latest"),
        ("a:1", "1"),
        (f"a@{DIGEST}", DIGEST),
        pytest.param(f"a:1@{DIGEST}", DIGEST, id="the digest decides"),
    ],
)
def test_registry_is_asked_for_the_digest_or_the_tag_or_latest(text, want):
    assert parse_image_reference(text).tag_or_digest == want


def test_digest_replaces_another_and_leaves_the_tag():
    found = parse_image_reference(f"host:5000/a:1@sha256:{'0' * 64}").with_digest(DIGEST)
    assert str(found) == f"host:5000/a:1@{DIGEST}"


@pytest.mark.parametrize("text", ["", HEX, f"sha512:{HEX * 2}", f"{DIGEST}\n", f"sha256:{HEX[1:]}"])
def test_other_text_is_no_digest(text):
    assert parse_digest(text) is None


def test_digest_is_read():
    assert parse_digest(DIGEST) == DIGEST


SEPARATORS = [":", ":5000", "/", "//", "@", "..", "__", "-", " ", "\n"]
NAMES = ["a", "b9", "localhost", "h.io", "T", "[::1]", "é", "9" * 6, "x" * 130]
PARTS = st.sampled_from([*SEPARATORS, *NAMES, str(DIGEST), "sha256:", HEX])


@given(st.lists(PARTS, max_size=8).map("".join) | st.text(max_size=40))
def test_whatever_is_parsed_has_the_pattern_and_one_spelling(text):
    try:
        found = parse_image_reference(text)
    except ImageReferenceError:
        return
    assert re.search(IMAGE_PATTERN, text)
    assert parse_image_reference(str(found)) == found
