"""The lowest layer: Debian's Python and the libraries of it and of the wheels, from Debian packages.

The build machine's apt and its sources select the versions. Package lists are kept in the build's own
directory, for all architectures at once: they are fetched by every build, so that security updates
come with it, and those of an earlier build serve where there is no network. Nothing is installed, no
maintainer script runs, root is not needed. python3.11 is the only program in the image: no shell, no
package tool.
"""

import hashlib
import platform
import re
import shlex
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from image.errors import ImageBuildError
from image.running import call, say

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PYTHON: Final = "python3.11"
RELEASE: Final = "12"
"""Release of Debian, which has that Python, and these packages."""
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
ARCHITECTURES: Final = ("amd64", "arm64")
"""Debian's names, which are OCI's too."""
_UNWANTED: Final = re.compile(
    r"usr/share/(man|lintian|locale|bug|info|python3|binfmts|gcc|gdb|dict|misc|base-files)(/|$)"
    r"|usr/share/doc/[^/]+/(?!copyright$)"
    r"|usr/lib/[^/]+/(gconv|audit|perl5)(/|$)"
    r"|usr/lib/[^/]+/lib(mvec|c_malloc_debug|memusage|pcprofile|thread_db)\.so"
    r"|usr/lib/python3\.11/(ensurepip|idlelib|lib2to3|pydoc_data|tkinter|turtledemo|test)(/|$)"
    r"|usr/lib/python3\.11/(__pycache__/)?turtle\."
    r"|usr/lib/python3\.11/lib-dynload/_(test|ctypes_test|xx)"
    # Modules that need a library which is not in the image.
    r"|usr/lib/python3\.11/lib-dynload/(_curses|_curses_panel|_dbm|_sqlite3|nis|readline)\."
    r"|etc/(update-motd\.d|dpkg|profile\.d|skel)(/|$)"
    r"|(usr/games|boot|home|media|mnt)(/|$)"
)
_MERGED: Final = ("bin", "lib", "lib64", "sbin")
"""Directories that are links into /usr since Debian 12; some packages still contain them."""
_APT: Final = ("apt-get", "--quiet=2")
_LISTS: Final = "Is there a way to the Debian mirror, and does apt's list of sources have it?"
USER: Final = 65532
"""User of the image unless a pod sets another one."""
_PASSWD: Final = f"""\
root:x:0:0:root:/root:/usr/sbin/nologin
nonroot:x:{USER}:{USER}:nonroot:/nonexistent:/usr/sbin/nologin
"""
_GROUP: Final = f"root:x:0:\nnonroot:x:{USER}:\n"


@final
@dataclass(frozen=True, slots=True)
class Package:
    """A Debian package's file."""

    file: str
    sha256: str


@final
@dataclass(frozen=True, slots=True)
class Archive:
    """Debian's packages as one state of the package lists has them, and the files fetched so far."""

    cache: "Path"

    def update(self, architectures: "Sequence[str]") -> None:
        """Fetch the package lists.

        Raises:
            ImageBuildError: there are none, neither from the mirror nor of an earlier build.
        """
        lists = self.cache / "lists"
        (lists / "partial").mkdir(parents=True, exist_ok=True)
        try:
            call([*self._apt(native(), architectures), "update"], cure=_LISTS)
        except ImageBuildError as error:
            if not any(lists.glob("*_Packages*")):
                raise
            say(f"package lists of an earlier build, since there are no new ones: {error}")

    def fetch(self, architecture: str) -> "list[Path]":
        """Download all packages that are not there yet, and return the files of all.

        Raises:
            ImageBuildError: a package is unknown, cannot be fetched, or has another digest.
        """
        into = self.cache / "packages"
        into.mkdir(parents=True, exist_ok=True)
        apt = self._apt(architecture, (architecture,))
        packages = packages_of(call([*apt, "--print-uris", "download", *PACKAGES], cure=_LISTS))
        if len(packages) != len(PACKAGES):
            raise ImageBuildError(
                f"apt offers {len(packages)} of {len(PACKAGES)} packages for {architecture}. {_LISTS}"
            )
        missing = [package for package in packages if not _is_there(into, package)]
        say(f"Debian packages for {architecture}: {len(packages)}, {len(missing)} to be fetched")
        if missing:
            # By name: apt finds the same candidate as a moment ago.
            names = [item.file.split("_")[0] for item in missing]
            call([*apt, "download", *names], cwd=into, cure=_LISTS)
        for item in missing:
            if not _is_there(into, item):
                raise ImageBuildError(f"{into / item.file} is not what apt's lists say. {_LISTS}")
        return [into / package.file for package in packages]

    def _apt(self, native: str, architectures: "Sequence[str]") -> list[str]:
        """Return a command of apt that knows this archive only, and no installed package."""
        caches = self.cache / f"apt-{native}"
        caches.mkdir(parents=True, exist_ok=True)
        settings = {
            # As root, apt would download as user _apt, which cannot write here, and warn.
            "APT::Sandbox::User": "root",
            "APT::Architecture": native,
            "Dir::State::Lists": str(self.cache / "lists"),
            "Dir::State::status": "/dev/null",
            "Dir::Cache": str(caches),
            "Acquire::Languages": "none",
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled": "false",
            "DPkg::Lock::Timeout": "120",
        }
        command = list(_APT)
        for name, value in settings.items():
            command += ["-o", f"{name}={value}"]
        for architecture in architectures:
            command += ["-o", f"APT::Architectures::={architecture}"]
        return command


def check_release() -> None:
    """Refuse a machine of another release than the image's.

    Raises:
        ImageBuildError: the release differs or is unknown.
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


def native() -> str:
    """Return the architecture of this machine."""
    return call(["dpkg", "--print-architecture"]).strip()


def packages_of(listed: str) -> list[Package]:
    """Parse the output of `apt-get --print-uris download`: address, file, size and digest of each."""
    packages = []
    for line in listed.splitlines():
        _, file, _, digest = shlex.split(line)
        kind, _, value = digest.partition(":")
        if kind != "SHA256":
            raise ImageBuildError(f"apt reports no SHA256 of {file}. {_LISTS}")
        packages.append(Package(file, value))
    return sorted(packages, key=lambda package: package.file)


def unpack(packages: "Sequence[Path]", root: "Path") -> None:
    """Unpack the packages into a new directory, and record them there.

    Image scanners read the packages' control data in /var/lib/dpkg/status.d.
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


def unpacked(root: "Path") -> "list[Mapping[str, str]]":
    """Return the fields of each package that was unpacked into a directory, by their names."""
    files = sorted((root / "var/lib/dpkg/status.d").iterdir())
    return [dict(HeaderParser().parsestr(file.read_text(encoding="utf-8"))) for file in files]


def is_selected(path: str) -> bool:
    """Return whether a file of the packages is part of the image; the path has no leading slash."""
    return _UNWANTED.match(path) is None


def _is_there(directory: Path, package: Package) -> bool:
    file = directory / package.file
    return file.is_file() and hashlib.sha256(file.read_bytes()).hexdigest() == package.sha256
