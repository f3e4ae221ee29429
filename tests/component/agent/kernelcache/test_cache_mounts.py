"""Real mounts in a mount namespace of its own; skipped with a message where the kernel does not permit one."""

from pathlib import Path

import pytest

from tests.support.cache_mounts import CASES
from tests.support.mount_namespaces import run_in_mount_namespace

SENTENCES = {
    "protected": "C4: a mount is read-only, nosuid, nodev, noexec, and no file of it can be changed",
    "shared_objects": "C4: a cache with shared objects is mounted without noexec, and otherwise the same",
    "exposed": "C4: a mount that can be written to is told from a good one",
    "flags_taken_off": "C4: a runtime that takes the flags off the mount cannot write either",
    "names_with_separators": "C7: a mount is found whatever characters the store's path has",
    "links": "C9: a target that is a link, or lies below one, is refused, and its victim left alone",
    "missing": "a target that is missing, or a file, is refused",
    "busy": "C10: a mount in use stays, and stays a reference",
    "many_mounts_of_one_content": "C7: references are found again by mountinfo and kubelet's files",
    "removed_content_stays_a_reference": "C10: a mount of a content that was removed all the same stays a reference",
    "store_on_a_full_disk": "a full disk has one message, and nothing is left of the attempt",
    "read_only_store": "a read-only store has one message, and serves what it has",
    "mounted_over_store": "a store that was mounted over is lost",
}


@pytest.mark.parametrize("case", [pytest.param(item, id=SENTENCES[item]) for item in CASES])
def test_mounts(case: str, tmp_path: Path):
    assert run_in_mount_namespace("tests.support.cache_mounts", case, str(tmp_path)) == f"{case}\n"
