"""What calls of CSI's Node service ask for, and why they are refused, each with its exact text."""

from pathlib import Path
from typing import Any

import pytest
from grpc import StatusCode
from hypothesis import given
from hypothesis import strategies as st

from agent.csi.volume_request import (
    PublishedVolume,
    PublishVolume,
    VolumeRefused,
    plan_publish,
    plan_stats,
    plan_unpublish,
)
from api.cache_name import CacheName
from api.csi.names import CACHE_ATTRIBUTE, NAMESPACE_ATTRIBUTE
from api.csi.proto.csi_pb2 import (
    NodeGetVolumeStatsRequest,
    NodePublishVolumeRequest,
    NodeUnpublishVolumeRequest,
    VolumeCapability,
)
from tests.support.csi import UID, a_capability, a_publish, a_target, some_attributes

PODS = Path("/var/lib/kubelet/pods")
TARGET = a_target(PODS)
NO_POD = (
    "kubelet does not say which pod the volume is for: the CSIDriver csi.gkm.io needs"
    " podInfoOnMount: true"
)
Mode = VolumeCapability.AccessMode


def refused(request: NodePublishVolumeRequest) -> tuple[StatusCode, str]:
    plan = plan_publish(request, PODS)
    assert isinstance(plan, VolumeRefused)
    return plan.code, plan.text


def test_a_cache_of_the_pods_own_namespace_is_mounted():
    """C5: the namespace of the attribute is the pod's."""
    assert plan_publish(a_publish(TARGET), PODS) == PublishVolume(
        volume="csi-1",
        target=TARGET,
        cache=CacheName(name="llama", namespace="team-a"),
        pod="team-a/worker",
    )


def test_without_a_namespace_it_is_a_cluster_wide_cache():
    plan = plan_publish(a_publish(TARGET, some_attributes(namespace=None)), PODS)
    assert isinstance(plan, PublishVolume)
    assert plan.cache == CacheName(namespace="", name="llama")
    assert str(plan.cache) == "ClusterGKMCache llama"


def test_a_cache_of_another_namespace_is_denied():
    """C5: tenants do not read each other's caches."""
    assert refused(a_publish(TARGET, some_attributes(namespace="team-b"))) == (
        StatusCode.PERMISSION_DENIED,
        "pod team-a/worker cannot mount GKMCache team-b/llama: a pod mounts the GKMCaches of its own"
        " namespace, and ClusterGKMCaches",
    )


def test_a_pods_namespace_that_its_user_wrote_does_not_count():
    """C5: nobody knows the UID in the target path before the pod exists."""
    forged = some_attributes(namespace="team-b", pod_namespace="team-b", pod_uid="guessed")
    assert refused(a_publish(TARGET, forged)) == (
        StatusCode.INVALID_ARGUMENT,
        f"target_path is '{TARGET}', not {PODS}/guessed/volumes/kubernetes.io~csi/<volume>/mount:"
        " is that kubelet's root directory?",
    )


@pytest.mark.parametrize("key", ["pod_name", "pod_namespace", "pod_uid", "ephemeral"])
@pytest.mark.parametrize("value", [None, ""])
def test_a_call_that_does_not_name_the_pod_is_refused(key: str, value: str | None):
    """C5: without podInfoOnMount nothing can be compared."""
    changed: dict[str, Any] = {key: value}
    request = a_publish(TARGET, some_attributes(**changed))
    assert refused(request) == (StatusCode.FAILED_PRECONDITION, NO_POD)


def test_a_persistent_volume_is_refused():
    assert refused(a_publish(TARGET, some_attributes(ephemeral="false"))) == (
        StatusCode.FAILED_PRECONDITION,
        "csi.gkm.io serves inline volumes of pods, not PersistentVolumes: set the volume's csi source in the"
        " pod",
    )


@pytest.mark.parametrize(
    "mode", [Mode.SINGLE_NODE_WRITER, Mode.SINGLE_NODE_READER_ONLY, Mode.MULTI_NODE_READER_ONLY]
)
def test_what_kubelet_asks_for_and_read_only_modes_are_served(mode: int):
    plan = plan_publish(a_publish(TARGET, capability=a_capability(mode)), PODS)
    assert isinstance(plan, PublishVolume)


@pytest.mark.parametrize(
    ("mode", "name"),
    [
        (0, "UNKNOWN"),
        (Mode.MULTI_NODE_SINGLE_WRITER, "MULTI_NODE_SINGLE_WRITER"),
        (Mode.MULTI_NODE_MULTI_WRITER, "MULTI_NODE_MULTI_WRITER"),
        (Mode.SINGLE_NODE_SINGLE_WRITER, "SINGLE_NODE_SINGLE_WRITER"),
        (Mode.SINGLE_NODE_MULTI_WRITER, "SINGLE_NODE_MULTI_WRITER"),
        (99, "99"),
    ],
)
def test_writable_access_modes_are_refused(mode: int, name: str):
    """C4: what all pods of a node share is not written."""
    assert refused(a_publish(TARGET, capability=a_capability(mode))) == (
        StatusCode.FAILED_PRECONDITION,
        f"access mode {name} is not supported: a kernel cache is mounted read-only, as an inline volume of"
        " a pod",
    )


def capability_with(**changed: object) -> VolumeCapability:
    mode = Mode(mode=Mode.SINGLE_NODE_WRITER)
    return VolumeCapability(access_mode=mode, **changed)  # type: ignore[arg-type]  # one of two kinds


@pytest.mark.parametrize(
    ("capability", "code", "text"),
    [
        pytest.param(
            capability_with(block=VolumeCapability.BlockVolume()),
            StatusCode.FAILED_PRECONDITION,
            "a kernel cache is a directory: volumeMode Block is not supported",
            id="block",
        ),
        pytest.param(
            capability_with(),
            StatusCode.INVALID_ARGUMENT,
            "volume_capability has no access type: mount is supported",
            id="no access type",
        ),
        pytest.param(
            capability_with(mount=VolumeCapability.MountVolume(fs_type="ext4")),
            StatusCode.INVALID_ARGUMENT,
            'fsType "ext4" is not supported: remove it from the pod\'s volume',
            id="file system",
        ),
        pytest.param(
            capability_with(mount=VolumeCapability.MountVolume(mount_flags=["rw", "exec"])),
            StatusCode.INVALID_ARGUMENT,
            "mount options are not supported: exec, rw",
            id="mount options",
        ),
    ],
)
def test_a_capability_that_a_cache_does_not_have_is_refused(
    capability: VolumeCapability, code: StatusCode, text: str
):
    assert refused(a_publish(TARGET, capability=capability)) == (code, text)


@pytest.mark.parametrize("field", ["volume_id", "target_path", "volume_capability"])
def test_a_request_without_an_argument_is_refused(field: str):
    request = a_publish(TARGET)
    request.ClearField(field)  # type: ignore[arg-type]  # one of its fields
    assert refused(request) == (StatusCode.INVALID_ARGUMENT, f"the request has no {field}")


def test_a_volume_that_names_no_cache_is_refused():
    attributes = some_attributes()
    del attributes[CACHE_ATTRIBUTE]
    assert refused(a_publish(TARGET, attributes)) == (
        StatusCode.INVALID_ARGUMENT,
        "the volume has no attribute csi.gkm.io/GKMCache: the name of a GKMCache, or of a ClusterGKMCache if"
        " there is no csi.gkm.io/namespace",
    )


def test_unknown_attributes_are_refused_and_kubelets_are_not():
    attributes = some_attributes() | {"csi.gkm.io/gkmCache": "x", "image": "y"}
    attributes["csi.storage.k8s.io/serviceAccount.tokens"] = "{}"
    assert refused(a_publish(TARGET, attributes)) == (
        StatusCode.INVALID_ARGUMENT,
        "unknown volume attributes: csi.gkm.io/gkmCache, image; known are csi.gkm.io/GKMCache,"
        " csi.gkm.io/namespace",
    )


@pytest.mark.parametrize(
    "name",
    [
        "",
        "..",
        ".",
        "../llama",
        "a/b",
        "/etc",
        "a..b",
        "-a",
        "a-",
        "A",
        "a_b",
        "a\0",
        "a\n",
        "a" * 254,
    ],
)
def test_a_name_that_no_object_can_have_is_refused(name: str):
    """C9: names cannot lead out of the store."""
    code, text = refused(a_publish(TARGET, some_attributes(name)))
    assert code is StatusCode.INVALID_ARGUMENT
    assert text.startswith("csi.gkm.io/GKMCache is '")
    assert text.endswith(", which no cache can be called")
    assert text.isprintable()


@pytest.mark.parametrize("namespace", ["", "..", "a/b", "a.b", "A", "team-a\n", "a" * 64])
def test_a_namespace_that_cannot_be_is_refused(namespace: str):
    """C9: nor do namespaces, and an empty one is not a cluster-wide cache."""
    attributes = some_attributes(namespace=namespace, pod_namespace="team-a")
    code, text = refused(a_publish(TARGET, attributes))
    assert code is StatusCode.INVALID_ARGUMENT
    assert text.startswith(f"{NAMESPACE_ATTRIBUTE} is '")
    assert text.endswith("which no namespace can be called; remove it for a ClusterGKMCache")


@pytest.mark.parametrize("name", ["a", "a.b-c", "9", "a" * 63, "a" * 246])
def test_names_of_objects_are_served(name: str):
    plan = plan_publish(a_publish(TARGET, some_attributes(name)), PODS)
    assert isinstance(plan, PublishVolume)
    assert plan.cache.name == name


BAD_TARGETS = [
    pytest.param("relative", id="relative"),
    pytest.param("/", id="root"),
    pytest.param("/etc", id="elsewhere"),
    pytest.param(str(PODS), id="all pods"),
    pytest.param(f"{PODS}/{UID}", id="the pod"),
    pytest.param(f"{PODS}/{UID}/volumes/kubernetes.io~csi", id="all its volumes"),
    pytest.param(f"{PODS}/{UID}/volumes/kubernetes.io~csi/cache", id="above the target"),
    pytest.param(f"{TARGET}/deeper", id="below the target"),
    pytest.param(f"{PODS}/{UID}/volumes/kubernetes.io~empty-dir/x/mount", id="another plugin"),
    pytest.param(f"{PODS}/{UID}/volumes/kubernetes.io~csi/../mount", id="dots"),
    pytest.param(
        f"/var/lib/kubelet2/pods/{UID}/volumes/kubernetes.io~csi/c/mount", id="other root"
    ),
    pytest.param(f"{TARGET}\0", id="zero byte"),
]


@pytest.mark.parametrize("target", BAD_TARGETS)
def test_only_targets_of_a_pods_csi_volumes_are_touched(target: str):
    """C9: neither is a path outside kubelet's directory mounted, nor removed, nor measured."""
    code, text = refused(a_publish(target))
    assert code is StatusCode.INVALID_ARGUMENT
    assert text == (
        f"target_path is {target!a}, not {PODS}/{UID}/volumes/kubernetes.io~csi/<volume>/mount:"
        " is that kubelet's root directory?"
    )
    unpublish = plan_unpublish(
        NodeUnpublishVolumeRequest(volume_id="csi-1", target_path=target), PODS
    )
    assert unpublish == VolumeRefused(
        code=StatusCode.INVALID_ARGUMENT,
        text=text.replace(f"not {PODS}/{UID}", f"not {PODS}/<uid>"),
    )
    stats = plan_stats(NodeGetVolumeStatsRequest(volume_id="csi-1", volume_path=target), PODS)
    assert stats == VolumeRefused(
        code=StatusCode.NOT_FOUND, text=f"volume 'csi-1' is not mounted at {target!a}"
    )


def test_what_is_published_can_be_unpublished_and_measured():
    published = PublishedVolume(volume="csi-1", target=TARGET)
    unpublish = NodeUnpublishVolumeRequest(volume_id="csi-1", target_path=str(TARGET))
    assert plan_unpublish(unpublish, PODS) == published
    stats = NodeGetVolumeStatsRequest(volume_id="csi-1", volume_path=str(TARGET))
    assert plan_stats(stats, PODS) == published


@given(
    target=st.one_of(st.text(), st.lists(st.sampled_from(["..", ".", "", UID, "a"])).map("/".join)),
    below=st.booleans(),
    uid=st.sampled_from([UID, "", "..", "/", "a/b"]),
    name=st.text(),
    namespace=st.one_of(st.none(), st.text()),
)
def test_nothing_that_is_served_leads_anywhere_else(
    target: str, below: bool, uid: str, name: str, namespace: str | None
):
    """C9, for any text."""
    path = f"{PODS}/{target}" if below else target
    attributes = some_attributes(name, namespace, pod_uid=uid)
    plan = plan_publish(a_publish(path, attributes), PODS)
    if isinstance(plan, PublishVolume):
        assert plan.target.parent.parent.parent.parent.parent == PODS
        assert ".." not in plan.target.parts
        assert "/" not in plan.cache.name
        assert plan.cache.namespace in {None, "team-a"}
    else:
        assert len(plan.text) < 1024
