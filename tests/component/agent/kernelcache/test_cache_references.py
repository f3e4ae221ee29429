"""References: rebuilt from mounts and kubelet's files, never less than the mounts, and removal that waits for them."""

import random
from pathlib import Path

import pytest

from agent.kernelcache.content.errors import VolumesUnknownError
from agent.kernelcache.content.mountinfo import MountEntry, read_mounts
from agent.kernelcache.content.references import References, VolumeReference, find_references
from api.image_reference import Digest
from api.names import PodUid

A, B = (Digest("sha256:" + item * 64) for item in "ab")


def a_root(digest: Digest = A, above: str = "/var/lib/gkm") -> str:
    return f"{above}/content/{digest.replace(':', '-')}/files"


def a_target(pods: Path, pod: str = "uid-1", volume: str = "cache") -> Path:
    return pods / pod / "volumes" / "kubernetes.io~csi" / volume / "mount"


def a_mount(target: Path | str, digest: Digest = A, **fields: str) -> MountEntry:
    return MountEntry(root=a_root(digest, **fields), mount_point=str(target))


def data_of_kubelet(target: Path, content: bytes) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    (target.parent / "vol_data.json").write_bytes(content)


def test_a_volume_is_found_with_its_pod_and_its_id(tmp_path: Path):
    """C7: after a restart, from mountinfo and kubelet's directory alone."""
    target = a_target(tmp_path)
    data_of_kubelet(
        target,
        b'{"attachmentID":"csi-1","driverName":"csi.gkm.io","nodeName":"n","specVolID":"cache",'
        b'"volumeHandle":"csi-2f","volumeLifecycleMode":"Ephemeral"}',
    )
    assert find_references([a_mount(target)], tmp_path) == (
        VolumeReference(target=str(target), digest=A, pod_uid=PodUid("uid-1"), volume_id="csi-2f"),
    )


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(None, id="missing"),
        pytest.param(b"", id="empty"),
        pytest.param(b'{"volumeHandle": ', id="cut"),
        pytest.param(b"[]", id="a list"),
        pytest.param(b'{"volumeHandle": 3}', id="a number"),
        pytest.param(b"\xff", id="no text"),
    ],
)
def test_a_mount_counts_whatever_kubelets_file_says(tmp_path: Path, data):
    """C10: a reference is never lost."""
    target = a_target(tmp_path)
    if data is not None:
        data_of_kubelet(target, data)
    (found,) = find_references([a_mount(target)], tmp_path)
    assert (found.digest, found.pod_uid, found.volume_id) == (A, "uid-1", None)


@pytest.mark.parametrize(
    ("root", "is_reference"),
    [
        (a_root(above=""), True),
        (a_root(above="/elsewhere/of/the/file/system"), True),
        (a_root() + "/inside", False),
        (a_root().removesuffix("/files"), False),
        (a_root().replace("sha256-", "sha512-"), False),
        (a_root().replace("content", "contents"), False),
        ("/", False),
        ("", False),
    ],
)
def test_a_mount_is_known_by_the_directory_that_is_mounted(tmp_path: Path, root, is_reference):
    mounts = [MountEntry(root=root, mount_point=str(a_target(tmp_path)))]
    assert bool(find_references(mounts, tmp_path)) is is_reference


def test_a_mount_outside_of_kubelets_directory_counts(tmp_path: Path):
    assert find_references([a_mount("/mnt/x")], tmp_path) == (
        VolumeReference(target="/mnt/x", digest=A),
    )


def test_a_volume_that_is_seen_below_the_mounted_root_too_is_one(tmp_path: Path):
    """In the agent's pod the node's root is mounted at /host."""
    target = a_target(tmp_path)
    found = find_references([a_mount(target), a_mount(f"/host{target}")], tmp_path)
    assert [item.target for item in found] == [str(target)]
    # Another content there, or a volume that is seen there only, is a reference of its own.
    assert len(find_references([a_mount(target), a_mount(f"/host{target}", B)], tmp_path)) == 2
    assert len(find_references([a_mount(f"/host{target}")], tmp_path)) == 1


def test_kubelets_directory_may_be_a_link(tmp_path: Path):
    real = tmp_path / "real"
    target = a_target(real)
    data_of_kubelet(target, b'{"volumeHandle": "csi-1"}')
    (tmp_path / "pods").symlink_to(real)
    (found,) = find_references([a_mount(target)], tmp_path / "pods")
    assert found.volume_id == "csi-1"


def test_kubelets_directory_may_be_elsewhere(tmp_path: Path):
    assert len(find_references([a_mount("/data/kubelet/pods/x")], tmp_path / "missing")) == 1


def test_two_mounts_at_one_target_are_two_references(tmp_path: Path):
    target = a_target(tmp_path)
    found = find_references([a_mount(target, A), a_mount(target, B)], tmp_path)
    references = References(found)
    assert references.digests() == {A, B}
    references.release(str(target))
    assert references.digests() == frozenset()


def test_what_cannot_be_read_is_an_error_and_not_an_empty_list(tmp_path: Path):
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(VolumesUnknownError, match="mountinfo cannot be read: No such file"):
        read_mounts(tmp_path / "mountinfo")
    with pytest.raises(VolumesUnknownError, match="loop cannot be read"):
        find_references([], tmp_path / "loop")


def test_a_content_in_use_is_not_removed_and_one_being_removed_is_not_used():
    references = References()
    first = VolumeReference(target="/1", digest=A)
    assert references.hold(first)
    assert not references.begin_removal(A)
    references.release("/1")
    references.release("/1")
    assert references.begin_removal(A)
    assert not references.hold(first)
    assert references.hold(VolumeReference(target="/2", digest=B))
    references.end_removal(A)
    assert references.hold(first)
    assert references.of(A) == (first,)


@pytest.mark.parametrize("seed", range(20))
def test_in_any_order_of_events_the_references_are_those_of_a_plain_list(seed: int):
    chance = random.Random(seed)
    references, naive = References(), set()
    removing: set[Digest] = set()
    for _ in range(300):
        digest, target = chance.choice([A, B]), f"/{chance.randrange(5)}"
        match chance.randrange(4):
            case 0:
                held = references.hold(VolumeReference(target=target, digest=digest))
                assert held is (digest not in removing)
                naive |= {(target, digest)} if held else set()
            case 1:
                references.release(target)
                naive = {item for item in naive if item[0] != target}
            case 2:
                begun = references.begin_removal(digest)
                assert begun is (digest not in {item for _, item in naive})
                removing |= {digest} if begun else set()
            case _:
                references.end_removal(digest)
                removing.discard(digest)
        assert references.digests() == {item for _, item in naive}
        assert {item.target for item in references.of(A)} == {at for at, item in naive if item == A}


def test_a_thousand_volumes_are_found(tmp_path: Path):
    targets = [a_target(tmp_path, f"uid-{number}") for number in range(1000)]
    for number, item in enumerate(targets):
        data_of_kubelet(item, b'{"volumeHandle": "csi-%d"}' % number)
    found = find_references([a_mount(target) for target in targets], tmp_path)
    assert {item.volume_id for item in found} == {f"csi-{number}" for number in range(1000)}
