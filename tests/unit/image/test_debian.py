"""What apt says of packages, and what of them goes into the image."""

import pytest
from image.debian import Package, is_selected, packages_of
from image.errors import ImageBuildError


def test_apts_list_is_read_as_it_names_files():
    listed = (
        "'http://somewhere/z/zlib1g_1.2.13_amd64.deb' zlib1g_1%3a1.2.13_amd64.deb 86684 SHA256:d7dd\n"
        "'http://somewhere/l/libc6_2.36_amd64.deb' libc6_2.36_amd64.deb 2759320 SHA256:ba4f\n"
    )
    assert packages_of(listed) == [
        Package("libc6_2.36_amd64.deb", "ba4f"),
        Package("zlib1g_1%3a1.2.13_amd64.deb", "d7dd"),
    ]


def test_a_package_without_a_digest_is_refused():
    with pytest.raises(ImageBuildError, match=r"no SHA256 of libc6_2.36_amd64.deb"):
        packages_of("'http://somewhere/libc6.deb' libc6_2.36_amd64.deb 2759320 MD5Sum:1\n")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("usr/share/doc/libc6", True),
        ("usr/share/doc/libc6/copyright", True),
        ("usr/share/doc/libc6/changelog.Debian.gz", False),
        ("usr/share/man/man1", False),
        ("usr/lib/x86_64-linux-gnu/gconv/UTF-16.so", False),
        ("usr/lib/x86_64-linux-gnu/libc.so.6", True),
        ("usr/lib/aarch64-linux-gnu/libmvec.so.1", False),
        ("usr/lib/python3.11/test", False),
        ("usr/lib/python3.11/lib-dynload/_testcapi.cpython-311-x86_64-linux-gnu.so", False),
        ("usr/lib/python3.11/lib-dynload/readline.cpython-311-x86_64-linux-gnu.so", False),
        ("usr/lib/python3.11/lib-dynload/_asyncio.cpython-311-x86_64-linux-gnu.so", True),
        ("usr/lib/python3.11/ensurepip/__init__.py", False),
        ("usr/lib/python3.11/encodings/utf_8.py", True),
        ("etc/os-release", True),
        ("home", False),
    ],
)
def test_manuals_and_other_locales_are_left_out(path: str, expected: bool):
    assert is_selected(path) is expected
