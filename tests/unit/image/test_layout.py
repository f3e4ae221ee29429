"""Layers and layouts are the same each time, and are what the specification asks for."""

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from image.layout import Blob, Tree, build_image, build_layer, write_layout

NAME = "localhost/thing:1.0"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    (root / "b/deep").mkdir(parents=True)
    (root / "a").mkdir()
    (root / "b/deep/file").write_text("text")
    (root / "b/program").write_text("#!")
    (root / "b/program").chmod(0o700)
    (root / "b/deep/file").chmod(0o600)
    (root / "b/link").symlink_to("deep/file")
    return root


def members(layer: Blob) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(layer.content)) as archive:
        return {one.name: one for one in archive.getmembers()}


def test_a_layer_has_each_parent_before_what_is_in_it_and_nothing_of_the_machine(tree: Path):
    found = members(build_layer([Tree(tree, "opt/it")], directories=("tmp",)))
    assert list(found) == [
        "opt",
        "opt/it",
        "opt/it/a",
        "opt/it/b",
        "opt/it/b/deep",
        "opt/it/b/deep/file",
        "opt/it/b/link",
        "opt/it/b/program",
        "tmp",
    ]
    assert {(one.uid, one.gid, one.uname, one.mtime) for one in found.values()} == {(0, 0, "", 0)}
    modes = {name: oct(one.mode) for name, one in found.items() if not one.issym()}
    assert modes["opt/it/b/deep/file"] == "0o644"
    assert modes["opt/it/b/program"] == modes["opt/it/b"] == "0o755"
    assert modes["tmp"] == "0o1777"
    assert found["opt/it/b/link"].linkname == "deep/file"


def test_what_is_not_wanted_is_not_entered(tree: Path):
    layer = build_layer([Tree(tree, is_wanted=lambda path: path != "b/deep")])
    assert list(members(layer)) == ["a", "b", "b/link", "b/program"]


def test_an_image_built_twice_is_the_same(tree: Path, tmp_path: Path):
    digests = set()
    for number in (1, 2):
        again = tmp_path / f"again-{number}"
        # Made in another order, at another time.
        (again / "a").mkdir(parents=True)
        for path in sorted(tree.rglob("*"), reverse=number == 1):
            target = again / path.relative_to(tree)
            target.parent.mkdir(parents=True, exist_ok=True)
            if path.is_symlink():
                target.symlink_to(path.readlink())
            elif path.is_file():
                target.write_bytes(path.read_bytes())
                target.chmod(path.stat().st_mode)
        digests.add(hashlib.sha256(an_image(again, tmp_path / "out.tar").read_bytes()).hexdigest())
    assert len(digests) == 1


def an_image(tree: Path, out: Path) -> Path:
    layer = build_layer([Tree(tree)])
    manifest, config = build_image(
        [layer], architecture="amd64", run={"User": "65532"}, created_by=["a tree"]
    )
    write_layout(out, manifest, [config, layer], name=NAME)
    return out


def test_every_blob_is_under_its_digest_and_named_by_another(tree: Path, tmp_path: Path):
    with tarfile.open(an_image(tree, tmp_path / "out.tar")) as archive:
        files = {
            one.name: archive.extractfile(one).read()  # type: ignore[union-attr]  # a file
            for one in archive.getmembers()
            if one.isfile()
        }

    def blob(descriptor: dict[str, Any]) -> bytes:
        content = files[f"blobs/{descriptor['digest'].replace(':', '/')}"]
        digest = hashlib.sha256(content).hexdigest()
        assert (f"sha256:{digest}", len(content)) == (descriptor["digest"], descriptor["size"])
        return content

    assert json.loads(files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    (described,) = json.loads(files["index.json"])["manifests"]
    assert described["annotations"] == {
        "io.containerd.image.name": NAME,
        "org.opencontainers.image.ref.name": "1.0",
    }
    manifest = json.loads(blob(described))
    config = json.loads(blob(manifest["config"]))
    layers = [blob(one) for one in manifest["layers"]]
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layers[0]).hexdigest()}"]
    assert (config["os"], config["config"]) == ("linux", {"User": "65532"})
    assert len(files) == 2 + 3


def test_a_build_that_fails_leaves_the_earlier_image(tree: Path, tmp_path: Path):
    out = an_image(tree, tmp_path / "out.tar")
    before = out.read_bytes()

    def failing() -> object:
        yield Blob.of("x", b"1")
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        write_layout(out, Blob.of("m", b"2"), failing(), name=NAME)  # type: ignore[arg-type]
    assert out.read_bytes() == before
