"""The bill of materials names what is in the tree, as scanners look it up."""

import json
from pathlib import Path
from typing import Any

import pytest
from image.bill_of_materials import Subject, components, write_bill

SUBJECT = Subject(
    name="thing",
    version="1.0",
    architecture="arm64",
    digest="sha256:0a1b",
    created="2026-01-02T03:04:05Z",
    license="Apache-2.0",
)
LIBC = """\
Package: libc6
Source: glibc
Version: 2.36-9+deb12u14
Architecture: arm64
Description: GNU C Library
 Contains the standard libraries.
"""
GCC = """\
Package: libgcc-s1
Source: gcc-12 (12.2.0-14)
Version: 1:12.2.0-14+b1
Architecture: arm64
"""
WHEEL = """\
Metadata-Version: 2.4
Name: Web_Server
Version: 3.1
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    control = tmp_path / "root/var/lib/dpkg/status.d"
    control.mkdir(parents=True)
    (control / "libc6").write_text(LIBC)
    (control / "libgcc-s1").write_text(GCC)
    return tmp_path


def a_wheel(tree: Path, more: str) -> None:
    directory = tree / "wheels/web_server-3.1.dist-info"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "METADATA").write_text(f"{WHEEL}{more}\nA text: of the wheel.\n")


def found(tree: Path) -> list[dict[str, Any]]:
    return components(tree / "root", tree / "wheels", SUBJECT)


def test_packages_are_named_with_their_sources_and_wheels_as_the_index_has_them(tree: Path):
    a_wheel(tree, "")
    assert [(item["name"], item["version"], item.get("purl")) for item in found(tree)] == [
        ("debian", "12", None),
        (
            "libc6",
            "2.36-9+deb12u14",
            "pkg:deb/debian/libc6@2.36-9%2Bdeb12u14"
            "?arch=arm64&distro=debian-12&upstream=glibc%402.36-9%2Bdeb12u14",
        ),
        (
            "libgcc-s1",
            "1:12.2.0-14+b1",
            "pkg:deb/debian/libgcc-s1@1%3A12.2.0-14%2Bb1"
            "?arch=arm64&distro=debian-12&upstream=gcc-12%4012.2.0-14",
        ),
        ("Web_Server", "3.1", "pkg:pypi/web-server@3.1"),
        ("thing", "1.0", None),
    ]


@pytest.mark.parametrize(
    ("more", "licenses"),
    [
        pytest.param("", None, id="none"),
        pytest.param(
            "License-Expression: MIT OR PSF-2.0\n", [{"expression": "MIT OR PSF-2.0"}], id="SPDX"
        ),
        pytest.param("License: BSD\n", [{"license": {"name": "BSD"}}], id="a name"),
        pytest.param(
            f"License: {'Permission is granted ' * 9}\nClassifier: License :: OSI Approved :: MIT License\n"
            "Classifier: Typing :: Typed\n",
            [{"license": {"name": "MIT License"}}],
            id="its whole text and a classifier",
        ),
        pytest.param(
            "License-File: COPYING\n",
            [{"license": {"name": "COPYING", "text": {"content": "do as you like"}}}],
            id="a file",
        ),
    ],
)
def test_a_licence_is_named_as_the_wheel_says_it(tree: Path, more: str, licenses: object):
    a_wheel(tree, more)
    texts = tree / "wheels/web_server-3.1.dist-info/licenses"
    texts.mkdir()
    (texts / "COPYING").write_text("do as you like")
    (wheel,) = (item for item in found(tree) if item["name"] == "Web_Server")
    assert wheel.get("licenses") == licenses


def test_the_bill_is_of_the_image_and_has_no_time_of_its_own(tree: Path, tmp_path: Path):
    a_wheel(tree, "")
    out = tmp_path / "bill.json"
    write_bill(out, SUBJECT, found(tree))
    first = out.read_bytes()
    write_bill(out, SUBJECT, found(tree))
    assert out.read_bytes() == first
    bill = json.loads(first)
    assert bill["metadata"]["timestamp"] == SUBJECT.created
    image = bill["metadata"]["component"]["bom-ref"]
    assert image == "pkg:oci/thing@sha256%3A0a1b?arch=arm64"
    (needs,) = bill["dependencies"]
    assert needs["ref"] == image
    assert needs["dependsOn"] == [component["bom-ref"] for component in bill["components"]]
    assert len(set(needs["dependsOn"])) == len(needs["dependsOn"])
