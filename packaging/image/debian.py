"""The lowest layer: Debian's Python and the libraries that it and the wheels load, from the packages' files.

Packages are apt's candidates for the machine that builds, so that security updates come with its package
lists; nothing is installed, no maintainer script runs, no root is needed. Beside python3.11 there is no
program in the image: no shell, no package tool.
"""

import hashlib
import platform
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from image.errors import ImageBuildError
from image.running import call, say

PYTHON: Final = "python3.11"
RELEASE: Final = "12"
"""Of Debian, which has that Python, and these packages."""
PACKAGES: Final = (
    "base-files",  # /etc/os-release, by which scanners know what they look at; /tmp, /var
    "netbase",  # /etc/protocols and /etc/services, which socket asks
    f"{PYTHON}-minimal",
    f"lib{PYTHON}-minimal",
    f"lib{PYTHON}-stdlib",
    "gcc-12-base",  # the licence of the two libraries of GCC
    "libc6",
    "zlib1g",
    "libexpat1",
    "libssl3",
    "libbz2-1.0",
    "liblzma5",
    "libffi8",
    "libuuid1",
    "libcrypt1",
    "libgcc-s1",
    "libstdc++6",  # grpcio
)
_UNWANTED: Final = re.compile(
    r"usr/share/(man|lintian|locale|bug|info|python3|binfmts|gcc|gdb|dict|misc|base-files)(/|$)"
    r"|usr/share/doc/(?!.*/copyright$)"
    r"|usr/lib/[^/]+/(gconv|audit|perl5)(/|$)"
    r"|usr/lib/python3\.11/(ensurepip|idlelib|lib2to3|pydoc_data|tkinter|turtledemo)(/|$)"
    r"|etc/(update-motd\.d|dpkg|profile\.d|skel)(/|$)"
    r"|(usr/games|boot|home|media|mnt)(/|$)"
)
_MERGED: Final = ("bin", "lib", "lib64", "sbin")
"""Directories that are links into /usr since Debian 12; packages still name some of them."""
_APT: Final = ("apt-get", "--quiet=2", "-o", "APT::Sandbox::User=root")
"""As root apt would download as _apt, who cannot write here, and says so."""
_LISTS: Final = "Are there package lists? Run apt-get update."
USER: Final = 65532
"""Who runs the image unless a pod says otherwise."""
_PASSWD: Final = f"""\
root:x:0:0:root:/root:/usr/sbin/nologin
nonroot:x:{USER}:{USER}:nonroot:/nonexistent:/usr/sbin/nologin
"""
_GROUP: Final = f"root:x:0:\nnonroot:x:{USER}:\n"


@final
@dataclass(frozen=True, slots=True)
class Package:
    """A package's file, as apt knows it."""

    file: str
    sha256: str


def check_release() -> None:
    """Refuse a machine whose packages are not those of the image.

    Raises:
        ImageBuildError: it is not the release, and how it is told.
    """
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        release = {}
    name, version = release.get("ID", "unknown"), release.get("VERSION_ID", "?")
    if (name, version) != ("debian", RELEASE):
        raise ImageBuildError(
            f"the image is made of Debian {RELEASE}'s packages, and this machine is {name} {version}:"
            f" build it on Debian {RELEASE}, or in a container of it"
        )


def architecture() -> str:
    """Return Debian's word for the machine, which is OCI's too."""
    return call(["dpkg", "--print-architecture"]).strip()


def fetch(into: "Path") -> list["Path"]:
    """Bring all packages into a directory, and return their files; what is there is verified and kept.

    Raises:
        ImageBuildError: apt knows a package not, or cannot fetch it, or it is not what its lists say.
    """
    into.mkdir(parents=True, exist_ok=True)
    listed = call([*_APT, "--print-uris", "download", *PACKAGES], cure=_LISTS)
    packages = packages_of(listed)
    if len(packages) != len(PACKAGES):
        raise ImageBuildError(f"apt offers {len(packages)} of {len(PACKAGES)} packages. {_LISTS}")
    missing = [one for one in packages if not _is_there(into, one)]
    say(f"Debian packages: {len(packages)}, {len(missing)} to be fetched")
    if missing:
        # By name: apt finds the same candidate as a moment ago.
        names = [one.file.split("_")[0] for one in missing]
        call([*_APT, "download", *names], cwd=into, cure=_LISTS)
    for one in missing:
        if not _is_there(into, one):
            raise ImageBuildError(f"{into / one.file} is not what apt's lists say. {_LISTS}")
    return [into / one.file for one in packages]


def packages_of(listed: str) -> list[Package]:
    """Read what `apt-get --print-uris download` prints: address, file, size and digest of each."""
    packages = []
    for line in listed.splitlines():
        _, file, _, digest = shlex.split(line)
        kind, _, value = digest.partition(":")
        if kind != "SHA256":
            raise ImageBuildError(f"apt tells no SHA256 of {file}. {_LISTS}")
        packages.append(Package(file, value))
    return sorted(packages, key=lambda one: one.file)


def unpack(packages: "list[Path]", root: "Path") -> None:
    """Lay the packages' files into a new directory, and say there which they are.

    Scanners of images look for the packages' own words in /var/lib/dpkg/status.d.
    """
    for name in _MERGED:
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    status = root / "var/lib/dpkg/status.d"
    status.mkdir(parents=True)
    for package in packages:
        archive = root.with_name("package.tar")
        call(["dpkg-deb", "--fsys-tarfile", str(package)], to=archive)
        # dpkg-deb's own --extract replaces links by the directories that a package has in their place.
        options = ["--keep-directory-symlink", "--no-same-owner"]
        call(["tar", "-x", *options, "-f", str(archive), "-C", str(root)])
        fields = call(["dpkg-deb", "--field", str(package)])
        (status / package.name.split("_")[0]).write_text(fields, encoding="utf-8")
    (root / "usr/bin/python3").symlink_to(PYTHON)
    (root / "etc/passwd").write_text(_PASSWD, encoding="utf-8")
    (root / "etc/group").write_text(_GROUP, encoding="utf-8")


def is_wanted(path: str) -> bool:
    """Say whether a file of the packages is part of the image; the path begins without a slash."""
    return _UNWANTED.match(path) is None


def _is_there(directory: Path, package: Package) -> bool:
    file = directory / package.file
    return file.is_file() and hashlib.sha256(file.read_bytes()).hexdigest() == package.sha256
