"""Names made of other names are names that Kubernetes takes, and different parts have different ones."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operands.nvidia.node_software import HostSoftware
from operands.nvidia.object_names import object_name
from tests.unit.operands.nvidia.driver_cases import (
    a_driver,
    a_policy,
    daemon_sets,
    objects_of,
)

SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
"""RFC 1123, as the API server checks it."""
LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
names = st.from_regex(r"\A[a-z0-9]([a-z0-9.-]{0,250}[a-z0-9])?\Z")
kernels = st.from_regex(r"\A[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?\Z")
"""Whatever is the value of a label."""


def is_name(text: str) -> bool:
    return len(text) <= 63 and SUBDOMAIN.fullmatch(text) is not None


@given(st.lists(st.text(max_size=80), min_size=1, max_size=4))
def test_any_parts_make_a_name(parts: list[str]):
    assert is_name(object_name(*parts))


@given(st.text(max_size=90), st.text(max_size=90))
def test_different_texts_have_different_names(one: str, other: str):
    assert (one == other) == (object_name(one) == object_name(other))


@pytest.mark.parametrize(
    "parts",
    [
        ("nvidia-driver-daemonset", "ubuntu24.04"),
        ("a",),
        ("x" * 63,),
        ("5.15.0-69-generic", "rhel9"),
    ],
)
def test_a_name_stays_as_it_is(parts: tuple[str, ...]):
    assert object_name(*parts) == "-".join(parts)


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("5.14.0-570.el9.x86_64", "5.14.0-570.el9.x86-64-"),
        ("UPPER", "upper-"),
        ("a-.b", "a.b-"),
        ("a..b", "a.b-"),
        ("x" * 64, "x" * 52 + "-"),
    ],
)
def test_what_is_no_name_is_cleaned_and_ends_with_a_hash(text: str, start: str):
    found = object_name(text)
    assert found.startswith(start)
    assert re.fullmatch(r"[0-9a-f]{10}", found.removeprefix(start))


@given(kernels)
def test_absurd_kernels_make_names(kernel: str):
    software = HostSoftware(os_tag="ubuntu24.04", kernel=kernel, runtime="containerd")
    (found,) = daemon_sets(a_policy(software, driver={"usePrecompiled": True}))
    assert is_name(found)


@given(names, kernels)
def test_absurd_names_of_drivers_make_names_and_values_of_labels(name: str, kernel: str):
    software = HostSoftware(os_tag="ubuntu24.04", kernel=kernel, runtime="containerd")
    for object_ in objects_of(a_driver(software, name=name, usePrecompiled=True)):
        assert is_name(object_["metadata"]["name"])
        for value in object_["metadata"]["labels"].values():
            assert LABEL_VALUE.fullmatch(value)
        if object_["kind"] == "DaemonSet":
            template = object_["spec"]["template"]
            for value in (
                *template["metadata"]["labels"].values(),
                *template["spec"]["nodeSelector"].values(),
            ):
                assert LABEL_VALUE.fullmatch(value)
