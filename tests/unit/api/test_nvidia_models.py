"""What an author leaves out of a ClusterPolicy or an NVIDIADriver: images, switches, probes, and which policy counts."""

from typing import Any

import msgspec
import pytest

from api.image_source import ImageSourceError
from api.kinds.nvidia.clusterpolicy import ClusterPolicy, active_policy
from api.kinds.nvidia.driver_blocks import ContainerProbe
from api.kinds.nvidia.nvidiadriver import NVIDIADriver
from api.kinds.nvidia.operand_block import DriverManager
from api.kinds.nvidia.operand_image import image_for_nodes, operand_image
from api.kinds.nvidia.probe_defaults import further_probe, startup_probe
from tests.support.nvidia.stricter_rules import OFF_BY_DEFAULT, ON_BY_DEFAULT

FIELD = "ClusterPolicy gpus: spec.toolkit"
ENVIRONMENT = {"CONTAINER_TOOLKIT_IMAGE": "registry.example.com/toolkit:1"}


def a_policy(**spec: Any) -> ClusterPolicy:
    return msgspec.convert({"metadata": {"name": "gpus"}, "spec": spec}, ClusterPolicy)


def a_policy_of(name: str, created: str) -> ClusterPolicy:
    metadata = {"name": name} | ({"creationTimestamp": created} if created else {})
    return msgspec.convert({"metadata": metadata}, ClusterPolicy)


def a_driver(**spec: Any) -> NVIDIADriver:
    return msgspec.convert({"metadata": {"name": "driver"}, "spec": spec}, NVIDIADriver)


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        pytest.param(
            {"image": "registry.example.com/a/toolkit@sha256:0a"},
            "registry.example.com/a/toolkit@sha256:0a",
            id="whole reference",
        ),
        pytest.param(
            {"repository": "registry.example.com/a", "image": "toolkit", "version": "v1.2"},
            "registry.example.com/a/toolkit:v1.2",
            id="tag",
        ),
        pytest.param(
            {"repository": "registry.example.com/a", "image": "toolkit", "version": "sha256:0a"},
            "registry.example.com/a/toolkit@sha256:0a",
            id="digest",
        ),
        pytest.param({}, "registry.example.com/toolkit:1", id="environment"),
    ],
)
def test_image_is_the_objects_or_the_environments(block, expected):
    toolkit = a_policy(toolkit=block).spec.toolkit
    assert operand_image(toolkit, field=FIELD, environment=ENVIRONMENT) == expected


@pytest.mark.parametrize(
    ("block", "environment", "error"),
    [
        pytest.param(
            {"version": "v1"},
            ENVIRONMENT,
            "ClusterPolicy gpus: spec.toolkit.repository is empty: set repository, image and version, or image"
            " alone to the whole reference",
            id="half",
        ),
        pytest.param(
            {},
            {},
            "ClusterPolicy gpus: spec.toolkit: the operand is enabled and has no image: set image to the whole"
            " reference, or repository, image and version, or the environment variable CONTAINER_TOOLKIT_IMAGE",
            id="nowhere",
        ),
    ],
)
def test_image_that_is_missing_is_an_error_with_object_field_and_cure(block, environment, error):
    toolkit = a_policy(toolkit=block).spec.toolkit
    with pytest.raises(ImageSourceError) as raised:
        operand_image(toolkit, field=FIELD, environment=environment)
    assert str(raised.value) == error


def test_every_operand_has_a_variable_for_its_image_and_an_nvidiadriver_has_none():
    spec = a_policy().spec
    blocks = {
        name: block
        for name in spec.__struct_fields__
        if hasattr(block := getattr(spec, name), "image_variable")
    }
    assert len(blocks) == 18
    variables = {name: type(block).image_variable for name, block in blocks.items()}
    assert all(variable.endswith("_IMAGE") for variable in variables.values())
    # The exporter of the node's state is a part of the validator's image.
    assert len(set(variables.values())) == len(blocks) - 1
    assert variables["validator"] == variables["node_status_exporter"] == "VALIDATOR_IMAGE"
    assert DriverManager.image_variable == "DRIVER_MANAGER_IMAGE"
    assert a_driver().spec.image_variable == ""


def test_nvidiadriver_without_an_image_has_the_published_one():
    driver = a_driver().spec
    assert operand_image(driver, field="f", environment={}) == "nvcr.io/nvidia/driver"


@pytest.mark.parametrize(
    ("image", "kernel", "expected"),
    [
        ("r/driver:580.95", "", "r/driver:580.95-ubuntu24.04"),
        ("r/driver:580", "6.8.0-60-generic", "r/driver:580-6.8.0-60-generic-ubuntu24.04"),
        ("r/driver@sha256:0a", "", "r/driver@sha256:0a"),
        ("localhost:5000/driver:1", "", "localhost:5000/driver:1-ubuntu24.04"),
    ],
)
def test_driver_image_is_tagged_for_the_nodes_system_and_kernel(image, kernel, expected):
    found = image_for_nodes(image, field="f", os_tag="ubuntu24.04", kernel=kernel)
    assert found == expected


@pytest.mark.parametrize(
    ("image", "kernel", "error"),
    [
        ("r/driver@sha256:0a", "6.8.0", r"^f\.version is a digest, .* set version to the driver"),
        (
            "localhost:5000/driver",
            "",
            r"^f: localhost:5000/driver has no tag, .* set repository, image and version",
        ),
    ],
)
def test_driver_image_that_cannot_be_tagged_is_refused(image, kernel, error):
    with pytest.raises(ImageSourceError, match=error):
        image_for_nodes(image, field="f", os_tag="ubuntu24.04", kernel=kernel)


def snake(name: str) -> str:
    return "".join(f"_{item.lower()}" if item.isupper() else item for item in name)


@pytest.mark.parametrize("name", sorted(ON_BY_DEFAULT | OFF_BY_DEFAULT | {"driver"}))
def test_operand_of_which_nothing_is_said_is_on_or_off_as_upstream_has_it(name):
    blocks = [{}, {"enabled": True}, {"enabled": False}]
    switches = [getattr(a_policy(**{name: block}).spec, snake(name)).is_enabled for block in blocks]
    assert switches == [name not in OFF_BY_DEFAULT, True, False]


def test_driver_of_a_policy_may_be_left_to_driver_objects():
    assert not a_policy().spec.driver.is_left_to_driver_objects
    driver = a_policy(driver={"useNvidiaDriverCRD": True, "usePrecompiled": True}).spec.driver
    assert (driver.is_left_to_driver_objects, driver.is_precompiled) == (True, True)


def test_cdi_is_on_and_its_plugin_off():
    cdi = a_policy().spec.cdi
    assert (cdi.is_enabled, cdi.nri_plugin_enabled) == (True, False)
    assert not a_policy(cdi={"enabled": False}).spec.cdi.is_enabled


def test_policies_of_upgrades_differ_where_nothing_is_said():
    """Of a ClusterPolicy no node is upgraded, and no pod evicted; of an NVIDIADriver both happen."""
    of_policy = a_policy(driver={"upgradePolicy": {}}).spec.driver.upgrade_policy
    of_driver = a_driver().spec.upgrade_policy
    assert (of_policy.auto_upgrade, of_driver.auto_upgrade) == (False, True)
    assert (of_policy.pod_deletion, of_policy.drain) == (None, None)
    assert of_driver.pod_deletion is not None
    assert of_driver.pod_deletion.timeout_seconds == 300
    assert of_driver.drain is not None
    assert not of_driver.drain.enable
    assert of_policy.max_unavailable == of_driver.max_unavailable == "25%"


def test_directories_of_nodes_have_the_documented_defaults():
    paths = a_policy().spec.host_paths
    assert (paths.root, paths.driver_root, paths.kubelet_root_dir) == (
        "/",
        "/run/nvidia/driver",
        "/var/lib/kubelet",
    )
    assert a_policy(hostPaths={"rootFS": "/host"}).spec.host_paths.root == "/host"


@pytest.mark.parametrize(("is_precompiled", "delay"), [(False, 60), (True, 5)])
def test_startup_probe_has_the_documented_timing(is_precompiled, delay):
    assert startup_probe(None, is_precompiled=is_precompiled) == ContainerProbe(
        initial_delay_seconds=delay,
        timeout_seconds=60,
        period_seconds=10,
        success_threshold=1,
        failure_threshold=120,
    )


def test_field_of_a_probe_that_is_left_out_keeps_its_default():
    """Upstream takes an NVIDIADriver's probe as it is: the others become Kubernetes' defaults, 30 s in all."""
    given = a_driver(
        startupProbe={"initialDelaySeconds": 0, "periodSeconds": 30}
    ).spec.startup_probe
    probe = startup_probe(given, is_precompiled=False)
    assert (probe.initial_delay_seconds, probe.period_seconds) == (0, 30)
    assert (probe.timeout_seconds, probe.failure_threshold) == (60, 120)


def test_other_probes_exist_where_the_object_has_them():
    assert further_probe(None) is None
    assert further_probe(ContainerProbe(failure_threshold=9)) == ContainerProbe(
        initial_delay_seconds=0,
        timeout_seconds=1,
        period_seconds=10,
        success_threshold=1,
        failure_threshold=9,
    )


@pytest.mark.parametrize(
    ("policies", "expected"),
    [
        pytest.param([], None, id="none"),
        pytest.param(
            [("b", "2026-01-02T00:00:00Z"), ("c", "2026-01-01T23:59:59Z")], "c", id="oldest"
        ),
        pytest.param([("b", "2026-01-01T00:00:00Z"), ("a", "2026-01-01T00:00:00Z")], "a", id="tie"),
        pytest.param([("b", ""), ("a", "")], "a", id="from a file"),
    ],
)
@pytest.mark.parametrize("step", [1, -1])
def test_oldest_policy_counts_whatever_the_order(policies, expected, step):
    found = active_policy([a_policy_of(*policy) for policy in policies][::step])
    assert (found and found.metadata.name) == expected


@pytest.mark.parametrize(
    ("kind", "spec", "field"),
    [
        (ClusterPolicy, {"driver": {"startupProbe": {"periodSeconds": 0}}}, "driver.startupProbe.periodSeconds"),
        (ClusterPolicy, {"dcgm": {"enabled": "yes"}}, "dcgm.enabled"),
        (ClusterPolicy, {"mig": {"strategy": "some"}}, "mig.strategy"),
        (ClusterPolicy, {"toolkit": {"image": "!"}}, "toolkit.image"),
        (ClusterPolicy, {"gfd": {"env": [{"value": "x"}]}}, r"gfd.env\[0\]"),
        (ClusterPolicy, {"gfd": {"resources": {"limits": {"cpu": "one"}}}}, r"gfd.resources.limits\[...\]"),
        (NVIDIADriver, {"driverType": "cpu"}, "driverType"),
        (NVIDIADriver, {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}, "nodeAffinity"),
    ],
)  # fmt: skip
def test_error_of_an_object_that_cannot_be_decoded_names_the_field(kind, spec, field):
    with pytest.raises(msgspec.ValidationError, match=rf"`\$\.spec\.{field}"):
        msgspec.convert({"spec": spec}, kind)


def test_object_with_every_part_is_encoded_as_it_was_written():
    spec = {
        "toolkit": {},
        "dcgmExporter": {"hostPID": True, "enablePodUID": True, "config": {"name": "metrics"}},
        "operator": {"use_ocp_driver_toolkit": False},
        "hostPaths": {"rootFS": "/host"},
        "validator": {"vfioPCI": {"env": [{"name": "A", "value": "b"}]}},
        "driver": {"useNvidiaDriverCRD": True, "rdma": {"useHostMofed": True}},
    }
    assert msgspec.to_builtins(a_policy(**spec).spec) == spec
