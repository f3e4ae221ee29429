"""Images of kernel caches: every form that GKM builds is read, and each fault has one exact message."""

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.kinds.gkmcache import KernelTarget
from kernelcache.image_format import (
    DOCKER_CONFIG,
    DOCKER_INDEX,
    DOCKER_LAYER,
    DOCKER_MANIFEST,
    MAX_CONFIG_BYTES,
    MAX_MANIFEST_BYTES,
    MAX_TARGETS,
    OCI_CONFIG,
    OCI_INDEX,
    OCI_LAYER,
    OCI_MANIFEST,
    CacheImage,
    CacheImageError,
    CacheType,
    config_descriptor,
    read_cache_image,
)
from tests.support.strategies import json_values

H200 = {"backend": "cuda", "arch": "90", "warp_size": 32}
DIGEST = "sha256:" + "a" * 64
TRITON = CacheType.TRITON


def a_layer(media_type: str = OCI_LAYER, **fields: Any) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": DIGEST, "size": 700} | fields


def some_labels(type_: CacheType = TRITON, *targets: dict[str, Any], **more: str) -> dict[str, str]:
    return {type_.summary_label: json.dumps({"targets": targets or (H200,)})} | more


def a_config(labels: Any) -> bytes:
    return json.dumps({"architecture": "amd64", "config": {"Labels": labels}}).encode()


def a_manifest(config: bytes, **fields: Any) -> bytes:
    digest = f"sha256:{hashlib.sha256(config).hexdigest()}"
    manifest = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": {"mediaType": OCI_CONFIG, "digest": digest, "size": len(config)},
        "layers": [a_layer()],
    }
    return json.dumps(manifest | fields).encode()


def read(labels: Any, **fields: Any) -> CacheImage:
    config = a_config(labels)
    return read_cache_image(a_manifest(config, **fields), config)


@pytest.mark.parametrize(
    ("manifest", "layer"),
    [
        pytest.param(OCI_MANIFEST, OCI_LAYER, id="OCI"),
        pytest.param(DOCKER_MANIFEST, DOCKER_LAYER, id="Docker"),
        pytest.param(OCI_MANIFEST, DOCKER_LAYER, id="OCI with Docker's layer"),
        pytest.param("", OCI_LAYER, id="no media type"),
        pytest.param(
            OCI_MANIFEST, "application/cache.triton.content.layer.v1+triton", id="older variant"
        ),
    ],
)
def test_the_layer_decides_and_not_the_kind_of_manifest(manifest, layer):
    found = read(some_labels(), mediaType=manifest, layers=[a_layer(layer)])
    assert found.type is TRITON
    assert found.targets == (KernelTarget(backend="cuda", arch="90", warp_size=32),)
    assert (found.layer.media_type, found.layer.digest, found.layer.size) == (layer, DIGEST, 700)


def test_labels_say_type_targets_size_and_entries():
    amd = {"backend": "hip", "arch": "gfx942", "warp_size": 64, "ptx_version": 87}
    labels = some_labels(CacheType.VLLM, amd, H200, H200)
    labels |= {"cache.vllm.image/cache-size-bytes": "4096", "cache.vllm.image/entry-count": "3"}
    found = read(labels | {"cache.vllm.image/format": "binary", "cache.triton.image/x": "y"})
    assert found.type is CacheType.VLLM
    assert [target.arch for target in found.targets] == ["gfx942", "90"]
    assert (found.size_bytes, found.entry_count) == (4096, 3)


def test_size_and_entries_may_be_left_out():
    found = read(some_labels())
    assert (found.size_bytes, found.entry_count) == (None, None)


def test_directories_are_those_of_the_type():
    assert CacheType.TRITON.cache_directory == "io.triton.cache/"
    assert CacheType.VLLM.manifest_file == "io.vllm.manifest/manifest.json"


def test_configuration_to_fetch_is_named_by_the_manifest():
    config = a_config({})
    found = config_descriptor(a_manifest(config))
    assert (found.media_type, found.size) == (OCI_CONFIG, len(config))
    assert found.digest == f"sha256:{hashlib.sha256(config).hexdigest()}"


NO_LABELS = (
    "the image is no kernel cache: it has neither label cache.triton.image/summary"
    " nor cache.vllm.image/summary"
)
SUMMARY = "label cache.triton.image/summary is malformed: "


@pytest.mark.parametrize(
    ("labels", "why"),
    [
        pytest.param(None, NO_LABELS, id="no labels"),
        pytest.param({"a": "b"}, NO_LABELS, id="other labels"),
        pytest.param({"cache.habana.image/summary": "{}"}, NO_LABELS, id="another type"),
        pytest.param(
            some_labels() | some_labels(CacheType.VLLM),
            "the image has cache.triton.image/summary and cache.vllm.image/summary:"
            " build an image for each type of cache",
            id="two types",
        ),
        pytest.param(
            {TRITON.summary_label: "{"},
            SUMMARY + "Input data was truncated",
            id="summary cut",
        ),
        pytest.param(
            {TRITON.summary_label: '{"targets": []}'},
            SUMMARY + "Expected `array` of length >= 1 - at `$.targets`",
            id="no target",
        ),
        pytest.param(
            some_labels(TRITON, *[H200] * (MAX_TARGETS + 1)),
            SUMMARY + "Expected `array` of length <= 256 - at `$.targets`",
            id="too many targets",
        ),
        pytest.param(
            some_labels(TRITON, {"backend": "cuda", "arch": "90"}),
            SUMMARY + "Object missing required field `warp_size` - at `$.targets[0]`",
            id="no warp size",
        ),
        pytest.param(
            some_labels(TRITON, H200 | {"warp_size": 0}),
            SUMMARY + "Expected `int` >= 1 - at `$.targets[0].warp_size`",
            id="no warps",
        ),
        pytest.param(
            some_labels(TRITON, H200 | {"arch": "x" * 65}),
            SUMMARY + "Expected `str` of length <= 64 - at `$.targets[0].arch`",
            id="long arch",
        ),
        pytest.param(
            some_labels() | {TRITON.size_label: "1.5"},
            'label cache.triton.image/cache-size-bytes is "1.5"; it must be a whole number',
            id="size",
        ),
        pytest.param(
            some_labels() | {TRITON.entry_count_label: "9223372036854775808"},
            'label cache.triton.image/entry-count is "9223372036854775808";'
            " it must be a whole number",
            id="entries beyond an int64",
        ),
    ],
)
def test_labels_that_are_no_caches_are_refused(labels, why):
    with pytest.raises(CacheImageError) as raised:
        read(labels)
    assert str(raised.value) == why


ACCEPTED = (
    "application/cache.triton.content.layer.v1+triton,"
    " application/vnd.docker.image.rootfs.diff.tar.gzip,"
    " application/vnd.oci.image.layer.v1.tar+gzip"
)
INDEX = "the manifest is an index of images: read the one of the node's platform"


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        pytest.param({"mediaType": OCI_INDEX}, INDEX, id="OCI index"),
        pytest.param({"mediaType": DOCKER_INDEX}, INDEX, id="Docker list"),
        pytest.param({"mediaType": "", "manifests": []}, INDEX, id="index without media type"),
        pytest.param(
            {"schemaVersion": 1},
            "the manifest has schemaVersion 1; only 2 is read: push the image again with a"
            " present tool",
            id="schema 1",
        ),
        pytest.param(
            {"layers": []},
            "the image has 0 layers; a kernel cache is one layer: squash the image",
            id="no layer",
        ),
        pytest.param(
            {"layers": [a_layer(), a_layer()]},
            "the image has 2 layers; a kernel cache is one layer: squash the image",
            id="two layers",
        ),
        pytest.param(
            {"layers": [a_layer("application/vnd.oci.image.layer.v1.tar+zstd")]},
            'the layer has media type "application/vnd.oci.image.layer.v1.tar+zstd";'
            f" a triton cache is one of {ACCEPTED}",
            id="no gzip",
        ),
        pytest.param(
            {"layers": [a_layer(CacheType.VLLM.legacy_layer)]},
            'the layer has media type "application/cache.vllm.content.layer.v1+vllm";'
            f" a triton cache is one of {ACCEPTED}",
            id="layer of the other type",
        ),
        pytest.param(
            {"layers": [a_layer(size=0)]}, "the layer has 0 bytes: pack the cache again", id="empty"
        ),
        pytest.param(
            {"layers": [a_layer(size=-1)]},
            "the manifest is malformed: Expected `int` >= 0 - at `$.layers[0].size`",
            id="negative size",
        ),
        pytest.param(
            {"layers": [a_layer(digest="../x")]},
            "the manifest is malformed: Expected `str` matching regex '^sha256:[0-9a-f]{64}$'"
            " - at `$.layers[0].digest`",
            id="C9: digest that leaves the store",
        ),
        pytest.param(
            {"layers": None},
            "the manifest is malformed: Expected `array`, got `null` - at `$.layers`",
            id="null layers",
        ),
    ],
)
def test_manifest_that_is_no_caches_is_refused(fields, why):
    with pytest.raises(CacheImageError) as raised:
        read(some_labels(), **fields)
    assert str(raised.value) == why


def test_a_digest_with_a_line_behind_it_is_none():
    """C9: `$` of a regular expression matches before a line feed."""
    with pytest.raises(CacheImageError, match="the manifest is malformed"):
        read(some_labels(), layers=[a_layer(digest=f"{DIGEST}\n")])


def test_configuration_of_another_image_is_refused():
    """W3: labels count only from the configuration that the (signed) manifest names."""
    signed, other = a_config(some_labels()), a_config(some_labels(CacheType.VLLM))
    with pytest.raises(CacheImageError, match=r"^the configuration is sha256:\w+; the manifest"):
        read_cache_image(a_manifest(signed), other)


def test_input_is_bounded():
    config = a_config(some_labels())
    with pytest.raises(CacheImageError, match="the manifest has 4194305 bytes; at most 4194304"):
        read_cache_image(b" " * (MAX_MANIFEST_BYTES + 1), config)
    with pytest.raises(CacheImageError, match="configuration has 4194305 bytes; at most 4194304"):
        read_cache_image(a_manifest(config), b" " * (MAX_CONFIG_BYTES + 1))


@pytest.mark.parametrize("text", [b"", b"\xff", b"[]", b"[" * 100_000, b'{"a":' * 100_000])
def test_text_that_is_no_manifest_and_no_configuration_is_refused(text):
    with pytest.raises(CacheImageError, match=r"^the manifest is malformed: "):
        read_cache_image(text, b"{}")
    with pytest.raises(CacheImageError, match=r"^the configuration is malformed: "):
        read_cache_image(a_manifest(text), text)


@given(json_values(), json_values(), st.binary(max_size=40))
def test_whatever_comes_is_read_or_refused(manifest, summary, noise):
    body = json.dumps(manifest).encode()
    config = a_config({TRITON.summary_label: json.dumps(summary)})
    fields = manifest if isinstance(manifest, dict) else {"layers": manifest}
    for pair in [(body, config), (noise, noise), (a_manifest(config, **fields), config)]:
        with pytest.raises(CacheImageError):
            read_cache_image(*pair)


def test_docker_configuration_is_read_too():
    config = a_config(some_labels())
    manifest = a_manifest(config).replace(OCI_CONFIG.encode(), DOCKER_CONFIG.encode())
    assert read_cache_image(manifest, config).type is TRITON
