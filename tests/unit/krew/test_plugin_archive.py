"""The archive of the plugin is the same from the same files, and its manifest names it by its digest."""

import hashlib
import importlib.metadata
import os
import sysconfig
import tarfile
from pathlib import Path

import pytest
import yaml
from image.errors import ImageBuildError
from krew.build import write_archive
from krew.plugin_manifest import PluginArchive, plugin_manifest
from krew.shipped_licenses import copy_licenses

ROOT = Path(__file__).resolve().parents[3]
COMPLETION = ROOT / "packaging" / "krew" / "kubectl_complete-gpu"


def a_bundle(directory: Path, *, mtime: int) -> Path:
    inner = directory / "_internal"
    inner.mkdir(parents=True)
    (directory / "kubectl-gpu").write_text("program")
    (directory / "kubectl-gpu").chmod(0o711)
    (inner / "library.so").write_text("library")
    (inner / "link.so").symlink_to("library.so")
    for path in (directory / "kubectl-gpu", inner / "library.so"):
        os.utime(path, (mtime, mtime))
    return directory


def test_two_archives_of_the_same_files_are_equal(tmp_path: Path):
    for name in ("a", "b"):
        bundle = a_bundle(tmp_path / name / "bundle", mtime=hash(name) % 1000)
        write_archive(tmp_path / f"{name}.tar.gz", bundle)
    first, second = (tmp_path / f"{name}.tar.gz" for name in ("a", "b"))
    assert first.read_bytes() == second.read_bytes()


def test_an_archive_has_root_as_its_owner_and_programs_that_run(tmp_path: Path):
    write_archive(tmp_path / "a.tar.gz", a_bundle(tmp_path / "bundle", mtime=7))
    with tarfile.open(tmp_path / "a.tar.gz") as archive:
        found = {item.name: (item.mode, item.mtime, item.uid, item.uname) for item in archive}
        assert archive.getmember("_internal/link.so").linkname == "library.so"
    assert found == {
        "_internal": (0o755, 0, 0, "root"),
        "_internal/library.so": (0o644, 0, 0, "root"),
        "_internal/link.so": (0o777, 0, 0, "root"),
        "kubectl-gpu": (0o755, 0, 0, "root"),
    }


def test_the_manifest_names_each_archive_by_its_digest():
    digest = hashlib.sha256(b"archive").hexdigest()
    archives = [PluginArchive(item, f"gpu_{item}.tar.gz", digest) for item in ("amd64", "arm64")]
    found = yaml.safe_load(plugin_manifest("1.2.3", archives, url="https://example.com/v1"))
    assert (found["metadata"], found["spec"]["version"]) == ({"name": "gpu"}, "v1.2.3")
    assert found["spec"]["platforms"] == [
        {
            "selector": {"matchLabels": {"os": "linux", "arch": item}},
            "uri": f"https://example.com/v1/gpu_{item}.tar.gz",
            "sha256": digest,
            "bin": "kubectl-gpu",
        }
        for item in ("amd64", "arm64")
    ]
    # krew prints it in a table of eighty columns.
    assert len(found["spec"]["shortDescription"]) < 60


def test_the_program_for_completion_is_executable_and_asks_the_plugin():
    assert os.access(COMPLETION, os.X_OK)
    assert COMPLETION.read_text().splitlines()[-1] == 'exec kubectl-gpu __complete "$@"'


def lists_of(directory: Path, *, modules: list[str], files: list[str]) -> Path:
    """Write PyInstaller's lists of modules and files as it does."""
    pure = [(Path(source).stem, source, "PYMODULE") for source in modules]
    collected = [(Path(source).name, source, "BINARY") for source in files]
    (directory / "PYZ-00.toc").write_text(repr(("PYZ-00.pyz", pure)))
    (directory / "COLLECT-00.toc").write_text(repr((collected,)))
    return directory


def test_the_archive_has_the_license_of_each_origin_of_its_files(tmp_path: Path):
    own = tmp_path / "site" / "kubectl_gpu" / "__main__.py"
    lists = lists_of(tmp_path, modules=[yaml.__file__, os.__file__, str(own), "-"], files=[])
    copy_licenses(lists, tmp_path / "licenses", own=tmp_path / "site")
    version = importlib.metadata.version("PyYAML")
    found = [path.relative_to(tmp_path / "licenses") for path in tmp_path.glob("licenses/**/*")]
    names = {path.as_posix() for path in found}
    assert {
        f"PyYAML-{version}/licenses/LICENSE",
        f"python-{sysconfig.get_python_version()}/LICENSE.txt",
    } <= names
    assert any(name.startswith("pyinstaller-") for name in names)
    assert {path.parts[0].partition("-")[0] for path in found} == {
        "PyYAML",
        "pyinstaller",
        "python",
    }


def test_a_file_whose_license_is_not_known_fails_the_build(tmp_path: Path):
    lists = lists_of(tmp_path, modules=[], files=["/opt/vendor/libvendor.so.1"])
    with pytest.raises(ImageBuildError, match="dpkg-query"):
        copy_licenses(lists, tmp_path / "licenses", own=tmp_path / "site")
