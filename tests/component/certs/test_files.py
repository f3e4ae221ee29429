"""Mounted files: followed by content, and whatever cannot be used leaves the old in place."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
import structlog.testing

from certs.bundle import Bundle
from certs.mounted import MountedCertificates
from certs.tls import ServingContext
from telemetry.metrics import REGISTRY
from tests.component.certs.doubles import SettableClock
from tests.unit.certs.builders import DAY, NOW, a_bundle, a_pair_by, renewed, rsa_key

BUNDLE = a_bundle()
NEWER = renewed(BUNDLE, now=NOW + 300 * DAY)


def mount(directory: Path, bundle: Bundle) -> None:
    for name in ("ca.crt", "tls.crt", "tls.key"):
        (directory / name).write_bytes(bundle.as_secret()[name])


def errors() -> float:
    return REGISTRY.get_sample_value("gpu_certificate_errors_total", {"step": "reload"}) or 0.0


class Following:
    """Files, their follower, and what is served."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clock = SettableClock()
        self.serving = ServingContext()
        self.files = MountedCertificates(directory, self.serving, self.clock)


@pytest.fixture
def following(tmp_path: Path) -> Following:
    return Following(tmp_path)


def test_what_is_mounted_is_served(following: Following):
    mount(following.directory, BUNDLE)
    following.files.poll()
    assert following.serving.loaded == BUNDLE.to_serve
    assert following.files.ready.is_set()


@pytest.mark.parametrize("missing", ["ca.crt", "tls.crt", "tls.key"])
def test_missing_file_is_named_and_nothing_is_ready(following: Following, missing: str):
    mount(following.directory, BUNDLE)
    (following.directory / missing).unlink()
    before = errors()
    with structlog.testing.capture_logs() as lines:
        following.files.poll()
    assert errors() == before + 1
    assert missing in lines[0]["error"]
    assert not following.files.ready.is_set()


def test_half_written_pair_keeps_the_old_until_the_other_half_comes(following: Following):
    mount(following.directory, BUNDLE)
    following.files.poll()
    before = errors()
    (following.directory / "tls.crt").write_bytes(NEWER.serving.certificate_pem)
    following.files.poll()
    assert following.serving.loaded == BUNDLE.to_serve
    assert errors() == before + 1
    (following.directory / "tls.key").write_bytes(NEWER.serving.key_pem)
    following.files.poll()
    assert following.serving.loaded == NEWER.to_serve
    assert errors() == before + 1


def test_rsa_pair_is_refused_and_says_what_is_needed(following: Following):
    mount(following.directory, BUNDLE)
    following.files.poll()
    mount(following.directory, replace(BUNDLE, serving=a_pair_by(BUNDLE.authority, rsa_key())))
    with structlog.testing.capture_logs() as lines:
        following.files.poll()
    assert "RSA" in lines[0]["error"]
    assert "P-256" in lines[0]["error"]
    assert following.serving.loaded == BUNDLE.to_serve


def test_lasting_fault_is_counted_each_time_and_logged_once(following: Following):
    before = errors()
    with structlog.testing.capture_logs() as lines:
        for _ in range(5):
            following.files.poll()
    assert errors() == before + 5
    assert len(lines) == 1


def test_fault_that_comes_again_is_logged_again(following: Following):
    with structlog.testing.capture_logs() as lines:
        following.files.poll()
        mount(following.directory, BUNDLE)
        following.files.poll()
        (following.directory / "ca.crt").unlink()
        following.files.poll()
    assert [line["log_level"] for line in lines] == ["error", "info", "error"]


def test_swapped_directory_of_a_secret_volume_is_followed(following: Following, tmp_path: Path):
    for name, bundle in (("one", BUNDLE), ("two", NEWER)):
        (tmp_path / name).mkdir()
        mount(tmp_path / name, bundle)
    data = tmp_path / "..data"
    data.symlink_to("one")
    for name in ("ca.crt", "tls.crt", "tls.key"):
        (tmp_path / name).symlink_to(Path("..data") / name)
    following.files.poll()
    assert following.serving.loaded == BUNDLE.to_serve
    (tmp_path / "next").symlink_to("two")
    (tmp_path / "next").rename(data)
    following.files.poll()
    assert following.serving.loaded == NEWER.to_serve


def test_rewritten_files_of_the_same_content_are_no_reload(following: Following):
    mount(following.directory, BUNDLE)
    following.files.poll()
    mount(following.directory, BUNDLE)
    with structlog.testing.capture_logs() as lines:
        following.files.poll()
    assert lines == []


def test_expired_certificate_is_served_and_complained_about_once(following: Following):
    mount(following.directory, BUNDLE)
    following.clock.now = NOW + 365 * DAY
    with structlog.testing.capture_logs() as lines:
        following.files.poll()
        following.files.poll()
    assert following.serving.loaded == BUNDLE.to_serve
    assert [line["error"] for line in lines if line["log_level"] == "error"] == [
        "tls.crt: it expired at 2027-01-01T12:00:00Z"
    ]


def test_no_log_line_shows_key_material(following: Following):
    mount(following.directory, BUNDLE)
    (following.directory / "tls.key").write_bytes(b"junk" + BUNDLE.serving.key_pem[30:])
    with structlog.testing.capture_logs() as lines:
        following.files.poll()
        mount(following.directory, BUNDLE)
        following.files.poll()
    assert len(lines) == 2
    assert BUNDLE.serving.key_pem.splitlines()[2].decode() not in repr(lines)
    assert "BEGIN" not in repr(lines)


@pytest.mark.looptime
async def test_change_is_served_within_the_interval(following: Following):
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(following.files.run())
        await asyncio.sleep(25)
        assert not following.files.ready.is_set()
        mount(following.directory, BUNDLE)
        await asyncio.wait_for(following.files.ready.wait(), 10)
        mount(following.directory, NEWER)
        await asyncio.sleep(10.1)
        assert following.serving.loaded == NEWER.to_serve
        task.cancel()
