"""A cache fits a device of its backend, architecture and warp size; any other device has an exact reason."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.kinds.gkmcache import KernelTarget
from api.kinds.gpudevice import GPUDeviceStatus
from kernelcache.compatibility import (
    Fits,
    Incompatible,
    UnknownTarget,
    cuda_target,
    device_compatibility,
    device_fit,
    device_target,
)


def a_target(arch: str = "90", backend: str = "cuda", warp_size: int = 32) -> KernelTarget:
    return KernelTarget(backend=backend, arch=arch, warp_size=warp_size)


H200 = a_target()
MI300 = a_target("gfx942", "hip", 64)


@pytest.mark.parametrize(
    ("capability", "arch"),
    [("9.0", "90"), ("8.0", "80"), ("8.6", "86"), ("10.0", "100"), ("12.0", "120"), ("7.5", "75")],
)
def test_compute_capability_names_the_architecture(capability, arch):
    assert cuda_target(capability) == a_target(arch)


@pytest.mark.parametrize(
    ("capability", "reason"),
    [
        ("", "its compute capability is unknown"),
        ("9", '"9" is no compute capability'),
        ("9.0\n", '"9.0\n" is no compute capability'),
        ("9.01", '"9.01" is no compute capability'),
        ("x", '"x" is no compute capability'),
    ],
)
def test_device_of_unknown_capability_fits_nothing_and_says_so(capability, reason):
    unknown = cuda_target(capability)
    assert unknown == UnknownTarget(reason)
    assert device_fit([H200], unknown) == Incompatible(reason)


def a_status(**fields: object) -> GPUDeviceStatus:
    return msgspec.convert(fields, GPUDeviceStatus)


def test_device_of_the_inventory_has_its_target():
    """An H200 is backend cuda, arch 90, warp size 32 (facts, section 5)."""
    assert device_target(a_status(computeCapability="9.0", pci={"vendor": "10de"})) == H200
    assert device_target(a_status(computeCapability="9.0")) == H200
    assert device_target(a_status(pci={"vendor": "1002"})) == UnknownTarget(
        "the device is of vendor 1002, not NVIDIA's"
    )


@pytest.mark.parametrize(
    "target",
    [
        H200,
        pytest.param(a_target("sm_90"), id="prefix, which GKM's CSI generation compared as text"),
        pytest.param(a_target("SM_90"), id="prefix in capitals"),
        pytest.param(a_target("sm90"), id="prefix without a line"),
        pytest.param(a_target("sm_90a"), id="code of the architecture's feature set"),
        pytest.param(a_target("90", "CUDA"), id="backend in capitals"),
        pytest.param(a_target(" 90 "), id="blanks"),
    ],
)
def test_spelling_does_not_matter(target):
    assert device_fit([target], H200) == Fits(target)


@pytest.mark.parametrize(
    ("targets", "reason"),
    [
        ([a_target("80")], "arch 80 of the cache, device has 90"),
        ([a_target("86"), a_target("sm_80")], "arch 86 or sm_80 of the cache, device has 90"),
        ([MI300], "backend hip of the cache, device has cuda: only NVIDIA is supported"),
        ([MI300, a_target("80")], "arch 80 of the cache, device has 90"),
        ([a_target("gfx942")], "arch gfx942 of the cache, device has 90"),
        ([a_target(warp_size=64)], "warp size 64 of the cache, device has 32"),
        ([a_target(warp_size=64), a_target("80")], "warp size 64 of the cache, device has 32"),
        ([a_target("9")], "arch 9 of the cache, device has 90"),
        ([a_target("900")], "arch 900 of the cache, device has 90"),
        (
            [a_target("90", "hip", 32)],
            "backend hip of the cache, device has cuda: only NVIDIA is supported",
        ),
    ],
)
def test_misfit_has_the_nearest_reason(targets, reason):
    assert device_fit(targets, H200) == Incompatible(reason)
    assert device_fit(targets[::-1], H200) == Incompatible(reason)


def test_any_target_is_enough():
    targets = [MI300, a_target("80"), H200]
    assert device_fit(targets, H200) == Fits(H200)
    assert device_fit(targets, a_target("80")) == Fits(a_target("80"))


def test_devices_of_a_node_are_told_apart():
    """C6: the node knows which of its devices a cache does not fit, and why."""
    devices = {2: H200, 0: a_target("80"), 1: H200, 3: cuda_target("")}
    found = device_compatibility([a_target("sm_90")], devices)
    assert found.compatible == (1, 2)
    assert found.incompatible == {
        0: "arch sm_90 of the cache, device has 80",
        3: "its compute capability is unknown",
    }
    assert found.fits_any
    assert found.incompatibility == ""


def test_node_without_a_fitting_device_says_why():
    """C6."""
    devices = {"a": H200, "b": H200, "c": cuda_target("")}
    found = device_compatibility([a_target("80")], devices)
    assert not found.fits_any
    assert found.incompatibility == (
        "the cache fits no device of the node: arch 80 of the cache, device has 90 (2 devices),"
        " its compute capability is unknown (1 device)"
    )


def test_node_without_devices_fits_nothing():
    found = device_compatibility([H200], dict[int, KernelTarget | UnknownTarget]())
    assert not found.fits_any
    assert found.incompatibility == "the node has no device"


TARGETS = st.builds(
    a_target,
    st.sampled_from(["80", "90", "sm_90", "SM_80", "gfx942", "90a", ""]) | st.text(max_size=5),
    st.sampled_from(["cuda", "CUDA", "hip", ""]) | st.text(max_size=5),
    st.sampled_from([32, 64]),
)


@given(st.lists(TARGETS, min_size=1, max_size=4), st.sampled_from(["9.0", "8.0", "12.0"]))
def test_an_nvidia_device_never_runs_amd_code_and_the_order_does_not_matter(targets, capability):
    device = cuda_target(capability)
    found = device_fit(targets, device)
    assert device_fit(targets[::-1], device) == found
    match found:
        case Fits(target):
            assert target in targets
            assert target.backend.strip().lower() == "cuda"
            assert target.warp_size == 32
            assert "gfx" not in target.arch
        case Incompatible(reason):
            assert reason
