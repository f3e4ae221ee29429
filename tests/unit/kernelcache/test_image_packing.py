"""Packing: type and targets from the files, labels and manifest.json, the same bytes each time; read back by the reader."""

import json
import random
from typing import Any

import pytest

from api.image_reference import Digest
from api.kinds.gkmcache import KernelTarget
from kernelcache import image_format, image_packing
from oci.verified_stream import digest_of

HASH = "5W7KJQDTJCL4UGPMKKCS7TEEPZKSWOY4774SZQ6674FWSXG5MNXQ"
LAUNCHER = "Q4KTBUSJ2LEGOHKSPJA2BG4BDURWUGYX7YU6TXZ7DZBKCDBQVGZQ"
H200 = KernelTarget(backend="cuda", arch="90", warp_size=32)
MI300 = KernelTarget(backend="hip", arch="gfx942", warp_size=64)
DIFF_ID = Digest(f"sha256:{'d' * 64}")

Tree = dict[str, bytes]


def metadata(hash_: str = "abc", **more: Any) -> bytes:
    target = {"backend": "cuda", "arch": 90, "warp_size": 32}
    kernel = {
        "hash": hash_,
        "target": target,
        "name": "add_kernel",
        "num_warps": 4,
        "num_stages": 3,
    }
    return json.dumps({**kernel, "debug": False, **more}).encode()


def triton(directory: str = HASH, **more: Any) -> Tree:
    """Return a kernel as Triton 3 leaves it."""
    return {
        f"{directory}/__grp__add_kernel.json": b'{"child_paths": {}}',
        f"{directory}/add_kernel.json": metadata(**more),
        f"{directory}/add_kernel.ttir": b"module {}",
        f"{directory}/add_kernel.ptx": b".version 8.6",
        f"{directory}/add_kernel.cubin": b"\x7fELF",
        f"{LAUNCHER}/__triton_launcher.so": b"\x7fELF",
    }


def vllm(factors: dict[str, Any] | None = None) -> Tree:
    """Return vLLM's binary form."""
    prefix = "torch_compile_cache/4bce7ae4f8/rank_0_0/backbone"
    env = {"VLLM_TARGET_DEVICE": "cuda", "VLLM_API_KEY": None, **(factors or {})}
    return {
        f"{prefix}/cache_key_factors.json": json.dumps({"code_hash": "9", "env": env}).encode(),
        f"{prefix}/computation_graph.py": b"",
        f"{prefix}/artifact_compile_range_1_2048_subgraph_0": b"bytes",
        "modelinfos/vllm-model_executor.json": b"{}",
    }


def pack(tree: Tree, *targets: KernelTarget) -> image_packing.PackedCache:
    files = [
        image_packing.CacheFile(path=path, size=len(content)) for path, content in tree.items()
    ]
    contents = {file.path: tree[file.path] for file in image_packing.describing_files(files)}
    return image_packing.pack_cache(files, contents, title="cache", targets=targets)


def test_a_triton_cache_has_its_type_targets_and_labels() -> None:
    tree = triton(ptx_version=86)
    packed = pack(tree)
    assert packed.type is image_format.CacheType.TRITON
    assert packed.targets == (H200,)
    assert packed.labels == {
        "cache.triton.image/entry-count": "1",
        "cache.triton.image/cache-size-bytes": str(sum(map(len, tree.values()))),
        "cache.triton.image/summary": '{"targets":[{"arch":"90","backend":"cuda","warp_size":32}]}',
        "org.opencontainers.image.title": "cache",
    }
    (entry,) = json.loads(packed.manifest_json)["triton"]
    assert entry == {
        "hash": "abc",
        "backend": "cuda",
        "arch": "90",
        "warp_size": 32,
        "ptx_version": 86,
        "num_warps": 4,
        "num_stages": 3,
        "debug": False,
    }
    assert {packed.path_of(file) for file in packed.files} == {
        f"io.triton.cache/{path}" for path in tree
    }


def test_targets_of_several_architectures_are_each_named_once() -> None:
    amd = {"backend": "hip", "arch": "gfx942", "warp_size": 64}
    tree = triton() | triton("A" * 52, hash="b") | triton("B" * 52, hash="c", target=amd)
    packed = pack(tree)
    assert packed.targets == (H200, MI300)
    assert packed.labels["cache.triton.image/entry-count"] == "3"


def test_the_binary_form_of_vllm_needs_its_targets_said() -> None:
    with pytest.raises(image_packing.PackingError, match="--target cuda:90:32"):
        pack(vllm())
    packed = pack(vllm(), H200)
    assert (packed.type, packed.targets) == (image_format.CacheType.VLLM, (H200,))
    assert packed.labels["cache.vllm.image/format"] == "binary"
    assert json.loads(packed.manifest_json) == {
        "vllm": [{"vllmHash": "4bce7ae4f8", "cacheFormat": "binary"}]
    }


def test_the_unpacked_form_of_vllm_says_its_targets_itself() -> None:
    rank = "torch_compile_cache/d4ec7c2a7d/rank_0_0"
    tree = {
        f"{rank}/computation_graph.py": b"",
        f"{rank}/inductor_cache/47/c47.py": b"",
        **{f"{rank}/triton_cache/{path}": content for path, content in triton().items()},
    }
    packed = pack(tree)
    assert packed.targets == (H200,)
    (entry,) = json.loads(packed.manifest_json)["vllm"]
    assert (entry["vllmHash"], entry["cacheFormat"]) == ("d4ec7c2a7d", "triton")
    assert [item["hash"] for item in entry["triton"]] == ["abc"]


def test_models_that_were_compiled_ahead_of_time_are_an_entry_of_their_own() -> None:
    packed = pack({"torch_compile_cache/torch_aot_compile/ab12/rank_0_0/model": b"x"}, H200)
    assert json.loads(packed.manifest_json) == {
        "vllm": [{"vllmHash": "ab12", "cacheFormat": "aot_compile"}]
    }


def image_of(packed: image_packing.PackedCache) -> tuple[bytes, bytes]:
    config = image_packing.image_config(packed, architecture="amd64", diff_id=DIFF_ID)
    manifest = image_packing.image_manifest(
        image_format.BlobDescriptor(
            media_type=image_format.OCI_CONFIG, digest=Digest(digest_of(config)), size=len(config)
        ),
        image_format.BlobDescriptor(media_type=image_format.OCI_LAYER, digest=DIFF_ID, size=1),
    )
    return manifest, config


@pytest.mark.parametrize(
    "packed",
    [
        pytest.param(pack(triton()), id="triton"),
        pytest.param(pack(triton(), MI300), id="triton with a further target"),
        pytest.param(pack(vllm(), H200, MI300), id="vllm"),
    ],
)
def test_what_is_packed_is_what_is_read(packed: image_packing.PackedCache) -> None:
    read = image_format.read_cache_image(*image_of(packed))
    assert read.type is packed.type
    assert read.targets == packed.targets
    assert read.size_bytes == sum(file.size for file in packed.files)
    assert read.entry_count == 1


def test_the_same_files_in_any_order_are_the_same_bytes() -> None:
    tree = list((triton() | triton("A" * 52, hash="b")).items())
    images = set()
    for seed in range(10):
        random.Random(seed).shuffle(tree)
        images.add(image_of(pack(dict(tree))))
    assert len(images) == 1


def test_no_time_is_written() -> None:
    assert b"1970-01-01" in image_of(pack(triton()))[1]


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        pytest.param({}, "has no files", id="empty"),
        pytest.param({"README.md": b"", "src/a.c": b""}, "it has README.md, src", id="another"),
        pytest.param(triton() | vllm(), "pack each by itself", id="both"),
        pytest.param(
            {f"a/{path}": content for path, content in triton().items()},
            "no kernel cache",
            id="a directory too high",
        ),
        pytest.param({f"{HASH}/add_kernel.cubin": b"x"}, "say what the kernels", id="no metadata"),
        pytest.param(
            triton(target={"backend": "cuda"}), "none of 1 JSON files", id="half a target"
        ),
        pytest.param(triton(hash=""), "none of 1 JSON files", id="no hash"),
    ],
)
def test_a_directory_that_is_no_cache_has_its_message(tree: Tree, message: str) -> None:
    with pytest.raises(image_packing.PackingError, match=message):
        pack(tree)


def test_other_json_files_are_left_as_they_are() -> None:
    tree = triton() | {f"{HASH}/other.json": b"{", f"{HASH}/more.json": b"[1]"}
    assert pack(tree).targets == (H200,)
    assert len(pack(tree).files) == len(tree)


def test_large_files_are_not_looked_into() -> None:
    large = image_packing.CacheFile(path="a/b.json", size=image_packing.MAX_DESCRIBING_BYTES + 1)
    small = image_packing.CacheFile(path="a/c.json", size=image_packing.MAX_DESCRIBING_BYTES)
    assert image_packing.describing_files([large, small]) == [small]


@pytest.mark.parametrize("name", ["VLLM_API_KEY", "HF_TOKEN", "DB_PASSWORD"])
def test_a_secret_that_vllm_has_written_down_is_not_published(name: str) -> None:
    with pytest.raises(
        image_packing.PackingError, match=f"cache_key_factors.json holds {name}"
    ) as caught:
        pack(vllm({name: "hunter2"}), H200)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(("text", "expected"), [("cuda:90:32", H200), ("hip:gfx942:64", MI300)])
def test_a_target_is_said_as_backend_arch_and_warp_size(text: str, expected: KernelTarget) -> None:
    assert image_packing.parse_target(text) == expected


@pytest.mark.parametrize(
    "text", ["", "cuda", "cuda:90", "cuda:90:0", "cuda:90:1025", "CUDA:9:1", "a:b:c"]
)
def test_a_target_that_is_none_has_its_message(text: str) -> None:
    with pytest.raises(image_packing.PackingError, match="write BACKEND:ARCH:WARP_SIZE"):
        image_packing.parse_target(text)
