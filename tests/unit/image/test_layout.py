"""Layers and layouts are the same each time, and are what the specification asks for."""

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from image.layout import Blob, Image, Tree, build_image, build_layer, write_layout

NAME = "localhost/thing:1.0"
LABELS = {"org.opencontainers.image.version": "1.0"}


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
        return {getmember.name: getmember for getmember in archive.getmembers()}


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
    assert {(item.uid, item.gid, item.uname, item.mtime) for item in found.values()} == {
        (0, 0, "", 0)
    }
    modes = {name: oct(item.mode) for name, item in found.items() if not item.issym()}
    assert modes["opt/it/b/deep/file"] == "0o644"
    assert modes["opt/it/b/program"] == modes["opt/it/b"] == "0o755"
    assert modes["tmp"] == "0o1777"
    assert found["opt/it/b/link"].linkname == "deep/file"


def test_what_is_not_wanted_is_not_entered(tree: Path):
    layer = build_layer([Tree(tree, is_selected=lambda path: path != "b/deep")])
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


def images(tree: Path, *architectures: str) -> list[Image]:
    shared = build_layer([Tree(tree)])
    return [
        build_image(
            {"a tree": shared, "its own": build_layer([], directories=(item,))},
            architecture=item,
            run={"User": "65532"},
            labels=LABELS,
            created="2026-01-02T03:04:05Z",
        )
        for item in architectures
    ]


def an_image(tree: Path, out: Path) -> Path:
    write_layout(out, images(tree, "amd64"), name=NAME)
    return out


class Layout:
    """An archive as the specification says to read it."""

    def __init__(self, file: Path) -> None:
        with tarfile.open(file) as archive:
            self.files = {
                getmember.name: archive.extractfile(getmember).read()  # type: ignore[union-attr]  # a file
                for getmember in archive.getmembers()
                if getmember.isfile()
            }
        assert json.loads(self.files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
        (self.named,) = json.loads(self.files["index.json"])["manifests"]
        assert self.named["annotations"] == {
            "io.containerd.image.name": NAME,
            "org.opencontainers.image.ref.name": "1.0",
        }

    def blob(self, descriptor: dict[str, Any]) -> bytes:
        content = self.files[f"blobs/{descriptor['digest'].replace(':', '/')}"]
        digest = hashlib.sha256(content).hexdigest()
        assert (f"sha256:{digest}", len(content)) == (descriptor["digest"], descriptor["size"])
        return content

    def check(self, descriptor: dict[str, Any]) -> set[str]:
        """The image that a descriptor is of, and its digests."""
        manifest = json.loads(self.blob(descriptor))
        assert manifest["annotations"] == LABELS
        config = json.loads(self.blob(manifest["config"]))
        layers = [self.blob(layer) for layer in manifest["layers"]]
        digests = [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers]
        assert config["rootfs"]["diff_ids"] == digests
        assert config["config"] == {"User": "65532", "Labels": LABELS}
        assert config["created"] == "2026-01-02T03:04:05Z"
        platform = descriptor["platform"]
        assert (platform["os"], platform["architecture"]) == (config["os"], config["architecture"])
        return {descriptor["digest"], manifest["config"]["digest"], *digests}


def test_every_blob_is_under_its_digest_and_named_by_another(tree: Path, tmp_path: Path):
    layout = Layout(an_image(tree, tmp_path / "out.tar"))
    assert layout.named["mediaType"] == "application/vnd.oci.image.manifest.v1+json"
    assert len(layout.check(layout.named)) == 4
    assert len(layout.files) == 2 + 4


def test_several_architectures_are_one_index_and_share_what_is_equal(tree: Path, tmp_path: Path):
    out = tmp_path / "out.tar"
    named = write_layout(out, images(tree, "amd64", "arm64"), name=NAME)
    layout = Layout(out)
    assert layout.named["digest"] == named.digest
    assert layout.named["mediaType"] == "application/vnd.oci.image.index.v1+json"
    index = json.loads(layout.blob(layout.named))
    assert (index["mediaType"], index["annotations"]) == (layout.named["mediaType"], LABELS)
    assert [manifest["platform"] for manifest in index["manifests"]] == [
        {"architecture": "amd64", "os": "linux"},
        {"architecture": "arm64", "os": "linux", "variant": "v8"},
    ]
    digests = {item for described in index["manifests"] for item in layout.check(described)}
    assert len(digests) == 2 * 4 - 1
    assert len(layout.files) == 2 + 1 + len(digests)


def test_a_build_that_fails_leaves_the_earlier_image_and_nothing_else(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    out = an_image(tree, tmp_path / "out.tar")
    before = out.read_bytes()

    def fail(*_: object) -> None:
        raise OSError("no space")

    monkeypatch.setattr(tarfile.TarFile, "addfile", fail)
    with pytest.raises(OSError, match="no space"):
        write_layout(out, images(tree, "arm64"), name=NAME)
    assert out.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["out.tar"]
