"""NVIDIA's validator beside our driver: it takes the driver for its operator's, waits for its probe, and checks what it has."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kube.resources import DAEMON_SETS
from operands.nvidia.states import driver as state_driver
from tests.cluster.node.environment.nvidia_programs.validator import NotReadyError, Validator
from tests.component.operands.test_driver_startup_probe import a_node, run
from tests.component.reconciler.operator_world import an_operator_world

__all__ = ("a_node",)
pytestmark = pytest.mark.looptime

Json = dict[str, Any]


@pytest.fixture(name="daemon_sets", params=["ClusterPolicy", "NVIDIADriver"])
async def daemon_sets_of_drivers(request: pytest.FixtureRequest) -> AsyncIterator[list[Json]]:
    """Those that the validator lists, as our controllers write them."""
    async with an_operator_world((state_driver.STATE,)) as world:
        await world.add_node(owner="blue")
        await world.add_policy(driver={"useNvidiaDriverCRD": request.param == "NVIDIADriver"})
        await world.add_driver("blue")
        await world.until_stable()
        selector = "app.kubernetes.io/component=nvidia-driver"
        yield await world.found(DAEMON_SETS, selector=selector)


def a_validator(node: Path, daemon_sets: list[Json], *modules: str) -> Validator:
    """The validator on a node whose driver's container has brought its libraries."""
    (node / "root").mkdir(exist_ok=True)
    (node / "root" / "libnvidia-ml.so.1").touch()
    (node / "validations").mkdir(exist_ok=True)
    return Validator(
        daemon_sets=lambda: daemon_sets,
        validations=node / "validations",
        driver_root=node / "root",
        modules=lambda: "".join(f"{item} 16384 0\n" for item in modules),
    )


def ready(node: Path) -> list[str]:
    return sorted(path.name for path in (node / "validations").glob("[!.]*-ready"))


def test_it_waits_for_the_startup_probe_of_our_driver(node: Path, daemon_sets: list[Json]):
    validator = a_validator(node, daemon_sets)
    with pytest.raises(NotReadyError, match="driver-ctr-ready is there"):
        validator.validate("driver")
    assert ready(node) == []
    assert run(node).returncode == 0
    validator.validate("driver")
    assert ready(node) == ["driver-ready"]


@pytest.mark.parametrize(
    ("variable", "module", "component"),
    [
        ("GDRCOPY_ENABLED", "gdrdrv", "gdrcopy"),
        ("GDS_ENABLED", "nvidia_fs", "nvidia-fs"),
        ("GPU_DIRECT_RDMA_ENABLED", "nvidia_peermem", "nvidia-peermem"),
    ],
)
def test_it_checks_the_module_of_what_the_driver_was_started_with(
    node: Path, daemon_sets: list[Json], variable: str, module: str, component: str
):
    assert run(node, **{variable: "true"}).returncode == 0
    with pytest.raises(NotReadyError, match=f"module of {component}"):
        a_validator(node, daemon_sets, "nvidia").validate("driver")
    assert ready(node) == []
    a_validator(node, daemon_sets, "nvidia", module).validate("driver")
    assert ready(node) == sorted([f"{component}-ready", "driver-ready"])
