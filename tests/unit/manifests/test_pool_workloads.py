"""Node workloads of a pool: golden files, names, selectors, and effects of a change of devices."""

import base64
import gzip
import itertools
from typing import Any

import msgspec
import pytest
import yaml

from api.kinds.gpupool import SlicePlacement
from api.names import MAX_POOL_NAME_LENGTH, NodeName, PoolName
from api.nodefiles.poolconfig import CONFIG_KEY, PACKED_CONFIG_KEY, ConfiguredDevice, PoolConfig
from manifests.node.device_plugin import (
    NodeAgentSettings,
    PluginKind,
    PluginMode,
    UnservablePoolError,
    WorkloadSettings,
    digest_of,
    names_registry,
    object_name,
    plugin_name,
    unserved,
)
from manifests.node.nvidia_device_plugin import NVIDIA_CONFIG_KEY
from pool.layout import layout_of
from tests.support import builders
from tests.unit.manifests.pool_objects import (
    DEVICES,
    MIG,
    MIG_DEVICES,
    SLICES,
    TAINT,
    WHOLE,
    a_pool,
    node_agent,
    objects_of,
)

PER_NODE = WorkloadSettings(image="i", mode=PluginMode.PER_NODE)
NVIDIA = WorkloadSettings(image="i", plugin=PluginKind.NVIDIA)
LONGEST = "a" * MAX_POOL_NAME_LENGTH


def kinds(objects: list[dict[str, Any]]) -> list[str]:
    return [f"{object_['kind']}/{object_['metadata']['name']}" for object_ in objects]


def template(objects: list[dict[str, Any]]) -> dict[str, Any]:
    (found,) = (object_ for object_ in objects if object_["kind"] == "DaemonSet")
    spec: dict[str, Any] = found["spec"]["template"]
    return spec


def test_a_change_of_devices_changes_the_list_only():
    before, after = objects_of(a_pool()), objects_of(a_pool(), MIG_DEVICES)
    assert template(before) == template(after)
    assert before[1] == after[1], "the digest is of the object, and that is the same"
    assert digest_of(before[0]) != digest_of(after[0])


def test_the_order_in_which_devices_are_found_is_no_change():
    shuffled = {node: tuple(reversed(devices)) for node, devices in reversed(list(DEVICES.items()))}
    assert objects_of(a_pool(), shuffled) == objects_of(a_pool())


def test_the_list_is_what_its_reader_takes():
    (listed, _) = objects_of(a_pool("small", mode=SLICES, slices_per_device=4))
    config = msgspec.json.decode(listed["data"][CONFIG_KEY], type=PoolConfig)
    assert (config.pool, config.resource, config.slices) == (
        "small",
        "gpu.deckhouse.io/small",
        4,
    )
    assert {NodeName(node): tuple(devices) for node, devices in config.nodes.items()} == DEVICES


def test_the_plugin_learns_where_the_slices_of_a_container_lie():
    same = SlicePlacement.SAME_DEVICE
    (listed, _) = objects_of(a_pool(mode=SLICES, slices_per_device=100, slice_placement=same))
    config = msgspec.json.decode(listed["data"][CONFIG_KEY], type=PoolConfig)
    assert (config.slices, config.slice_placement) == (100, same.value)
    (listed, _) = objects_of(a_pool(mode=SLICES, slices_per_device=4))
    assert "slicePlacement" not in listed["data"][CONFIG_KEY], "a plugin of before can read it"


@pytest.mark.parametrize("slices", [1, 2, 64, 100])
def test_units_are_called_as_the_index_calls_them(slices: int):
    config = PoolConfig(version="v1", pool="p", resource="r/p", slices=slices)
    facts = builders.a_pool("p") if slices == 1 else builders.a_slice_pool("p", slices)
    device = builders.a_device(pool="p", uuid="GPU-1")
    assert config.units_of(ConfiguredDevice(uuid="GPU-1")) == layout_of(device, facts).ids


def test_no_two_workloads_select_the_same_pods():
    """Lesson 20: selectors of pools whose names begin alike, and of a plugin that serves a whole node."""
    pools = ["a", "a-a", "gpu-device-plugin", LONGEST, LONGEST[:-1] + "b"]
    rendered = [*(objects_of(a_pool(name))[1] for name in pools), *node_agent(PER_NODE)]
    assert len({item["metadata"]["name"] for item in rendered}) == len(rendered)
    for item, other in itertools.permutations(rendered, 2):
        selector = item["spec"]["selector"]["matchLabels"]
        labels = other["spec"]["template"]["metadata"]["labels"]
        assert selector.items() <= item["spec"]["template"]["metadata"]["labels"].items()
        assert not selector.items() <= labels.items()


@pytest.mark.parametrize("name", ["a", LONGEST, LONGEST[:-10] + "-" * 8 + "ab"])
def test_names_are_valid_and_fit_a_label(name: str):
    found = plugin_name(PoolName(name))
    assert len(found) <= 63
    assert found.replace("-", "").isalnum()
    assert found[-1] != "-"


def test_names_that_are_cut_stay_apart():
    long = "p" * 60
    names = {object_name("gpu-device-plugin", PoolName(f"{long}{end}")) for end in "ab"}
    assert len(names) == 2
    assert object_name("x", PoolName("short")) == "x-short"


def test_no_taint_of_a_pool_changes_the_template():
    """Lesson 4: a DaemonSet tolerates every taint; labels say on which nodes it runs."""
    tainted = template(objects_of(a_pool("p", TAINT)))
    assert tainted["spec"]["tolerations"] == [{"operator": "Exists"}]
    assert template(objects_of(a_pool("p"))) == tainted


def test_pods_of_the_plugin_do_not_look_like_pods_that_ask_for_the_pool():
    assert "gpu.deckhouse.io/pool" not in template(objects_of(a_pool()))["metadata"]["labels"]


def test_our_plugin_has_an_account_and_a_foreign_one_has_no_token():
    ours = template(objects_of(a_pool()))["spec"]
    assert ours["serviceAccountName"] == "gpu-device-plugin"
    assert "automountServiceAccountToken" not in ours
    theirs = template(objects_of(a_pool(), settings=NVIDIA))["spec"]
    assert theirs["automountServiceAccountToken"] is False


def test_a_plugin_has_no_more_of_its_host_than_it_needs():
    spec = template(objects_of(a_pool()))["spec"]
    (container,) = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        "runAsGroup": 0,
        "runAsUser": 0,
    }
    assert spec["securityContext"] == {"seccompProfile": {"type": "RuntimeDefault"}}
    assert spec.keys().isdisjoint({"hostNetwork", "hostPID", "hostIPC"})
    paths = {
        volume["name"]: volume["hostPath"]["path"]
        for volume in spec["volumes"]
        if "hostPath" in volume
    }
    writable = {mount["name"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
    assert paths == {
        "device-plugins": "/var/lib/kubelet/device-plugins",
        "pod-resources": "/var/lib/kubelet/pod-resources",
        "run": "/run/gpu-control-plane",
        "problems": "/run/gpu-control-plane/plugins",
    }
    assert writable == {"device-plugins", "problems"}


def test_a_list_that_is_too_long_for_a_config_map_is_packed():
    devices = {
        NodeName(f"gpu-node-{n:05d}"): tuple(
            ConfiguredDevice(uuid=f"GPU-{n:08x}-{device:04x}-4a5b-9c8d-0123456789ab")
            for device in range(8)
        )
        for n in range(2_500)
    }
    (listed, _) = objects_of(a_pool(), devices)
    (key,) = listed["binaryData"]
    assert key == PACKED_CONFIG_KEY
    packed = base64.b64decode(listed["binaryData"][key])
    assert len(packed) < 1_000_000
    assert msgspec.json.decode(gzip.decompress(packed), type=PoolConfig).nodes.keys() == set(
        devices
    )
    assert objects_of(a_pool(), devices) == objects_of(a_pool(), devices)


def test_a_list_that_is_too_long_even_packed_is_refused_with_the_cure(monkeypatch):
    monkeypatch.setattr("manifests.node.device_plugin.MAX_TEXT_BYTES", 10)
    monkeypatch.setattr("manifests.node.device_plugin.MAX_PACKED_BYTES", 10)
    with pytest.raises(
        UnservablePoolError, match=r"3 devices of pool training .* set .* mode to PerNode"
    ):
        objects_of(a_pool())


def test_one_agent_for_all_pools_leaves_pools_without_objects():
    assert objects_of(a_pool(), settings=PER_NODE) == []


def test_a_foreign_plugin_needs_no_plugin_of_ours():
    nothing = WorkloadSettings(image="i", mode=PluginMode.NONE)
    mig = a_pool(mode=MIG, mig_profile="1g.10gb")
    assert objects_of(mig, MIG_DEVICES, nothing) == []


def test_nvidias_plugin_gets_the_devices_that_may_be_given_out():
    pool = a_pool("small", mode=SLICES, slices_per_device=2)
    (listed, plugin) = objects_of(pool, settings=NVIDIA)
    config = yaml.safe_load(listed["data"][NVIDIA_CONFIG_KEY])
    assert [item["pattern"] for item in config["resources"]["gpus"]] == ["GPU-1a", "GPU-2a"]
    assert config["sharing"]["timeSlicing"]["resources"] == [{"name": "small", "replicas": 2}]
    assert plugin["spec"]["template"]["metadata"]["annotations"], "it is restarted by a change"
    (empty, _) = objects_of(pool, {}, NVIDIA)
    gpus = yaml.safe_load(empty["data"][NVIDIA_CONFIG_KEY])["resources"]["gpus"]
    assert [item["pattern"] for item in gpus] == ["^$"], "no pattern at all would take every device"


def test_nvidias_plugin_serves_no_mig_pool_and_no_whole_node():
    mig = a_pool(mode=MIG, mig_profile="1g.10gb")
    assert "no pool of MIG instances" in unserved(mig, NVIDIA)
    fractions = a_pool(
        mode=SLICES, slices_per_device=50, slice_placement=SlicePlacement.SAME_DEVICE
    )
    assert "slicePlacement SameDevice" in unserved(fractions, NVIDIA)
    assert unserved(a_pool(mode=WHOLE), NVIDIA) == ""
    assert objects_of(mig, MIG_DEVICES, NVIDIA) == []
    with pytest.raises(ValueError, match="set mode to PerPool"):
        WorkloadSettings(image="i", plugin=PluginKind.NVIDIA, mode=PluginMode.PER_NODE)


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("registry.example.com/gpu:1", True),
        ("registry:5000/gpu", True),
        ("localhost/gpu@sha256:00", True),
        ("docker.io/library/gpu", True),
        ("gpu", False),
        ("gpu:1.0", False),
        ("gpu.example.com", False),
        ("team/gpu", False),
        ("", False),
    ],
)
def test_an_image_names_its_registry_as_runtimes_read_it(image, expected):
    assert names_registry(image) is expected


def test_images_are_those_of_the_daemon_sets_that_are_made():
    agent = NodeAgentSettings(image="r.test/agent")
    assert WorkloadSettings(image="r.test/plugin", agent=agent).images == (
        "r.test/agent",
        "r.test/plugin",
    )
    assert WorkloadSettings(image="i", mode=PluginMode.PER_NODE).images == ("i",)
    nothing = NodeAgentSettings(is_enabled=False)
    assert WorkloadSettings(image="i", mode=PluginMode.NONE, agent=nothing).images == ()
