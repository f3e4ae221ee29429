"""The list of what an image is made of, in CycloneDX's form.

It is read from the tree that becomes the image: dpkg's control data and the metadata of the wheels. The
text is reproducible: its serial number is derived from the image's digest, its time is the image's.

cyclonedx.org/docs/1.6/json; github.com/package-url/purl-spec, types deb, oci and pypi.
"""

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final
from urllib.parse import quote

import msgspec

from image import debian, wheels

if TYPE_CHECKING:
    from collections.abc import Mapping
    from email.message import Message
    from pathlib import Path

_LONGEST_NAME: Final = 64
"""Characters of a licence's name; some wheels have its whole text in that field."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The image that a bill is of."""

    name: str
    version: str
    architecture: str
    digest: str
    """Digest of the manifest."""
    created: str | None
    license: str | None


def components(root: "Path", libraries: "Path", subject: Subject) -> list[dict[str, Any]]:
    """Return what is in an image: the release of Debian, its packages, the wheels and the program.

    Args:
        root: tree of the lowest layer.
        libraries: directory of the wheels.
        subject: the image.
    """
    return [
        {
            "type": "operating-system",
            "bom-ref": "debian",
            "name": "debian",
            "version": debian.RELEASE,
        },
        *(_debian_package(item) for item in debian.unpacked(root)),
        *(_wheel(metadata, path) for path, metadata in wheels.installed(libraries).items()),
        {
            "type": "application",
            "bom-ref": subject.name,
            "name": subject.name,
            "version": subject.version,
            **({"licenses": [{"expression": subject.license}]} if subject.license else {}),
        },
    ]


def write_bill(out: "Path", subject: Subject, found: list[dict[str, Any]]) -> None:
    """Write the bill of an image."""
    name = quote(subject.name, safe="")
    digest = quote(subject.digest, safe="")
    image = f"pkg:oci/{name}@{digest}?arch={subject.architecture}"
    bill = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, image)}",
        "version": 1,
        "metadata": {
            **({"timestamp": subject.created} if subject.created else {}),
            "component": {
                "type": "container",
                "bom-ref": image,
                "name": subject.name,
                "version": subject.version,
                "purl": image,
            },
        },
        "components": found,
        "dependencies": [{"ref": image, "dependsOn": [item["bom-ref"] for item in found]}],
    }
    out.write_bytes(msgspec.json.format(msgspec.json.encode(bill), indent=2) + b"\n")


def _debian_package(fields: "Mapping[str, str]") -> dict[str, Any]:
    name, version = fields["Package"], fields["Version"]
    # Advisories are about source packages: `Source: glibc`, or `gcc-12 (12.2.0-14)`.
    source, _, source_version = fields.get("Source", name).partition(" ")
    upstream = f"{source}@{source_version.strip('()') or version}"
    qualifiers = {
        "arch": fields["Architecture"],
        "distro": f"debian-{debian.RELEASE}",
        "upstream": upstream,
    }
    remaining = "&".join(f"{key}={quote(value, safe='')}" for key, value in qualifiers.items())
    purl = f"pkg:deb/debian/{quote(name, safe='')}@{quote(version, safe='')}?{remaining}"
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
    }


def _wheel(metadata: "Message", directory: "Path") -> dict[str, Any]:
    name, version = metadata["Name"], metadata["Version"]
    purl = f"pkg:pypi/{wheels.normal(name)}@{quote(version, safe='')}"
    licenses = _licenses(metadata, directory)
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        **({"licenses": licenses} if licenses else {}),
        "purl": purl,
    }


def _licenses(metadata: "Message", directory: "Path") -> list[dict[str, Any]]:
    """Return how the wheel says its license: as an expression, a name, classifiers, or else the text of files."""
    if expression := metadata["License-Expression"]:
        return [{"expression": expression}]
    name = metadata["License"]
    if name and len(name) <= _LONGEST_NAME and "\n" not in name:
        return [{"license": {"name": name}}]
    classifiers = [text.split(" :: ") for text in metadata.get_all("Classifier", [])]
    if names := [parts[-1] for parts in classifiers if parts[0] == "License"]:
        return [{"license": {"name": name}} for name in names]
    return [
        {"license": {"name": file, "text": {"content": _text(directory, file)}}}
        for file in metadata.get_all("License-File", [])
    ]


def _text(directory: "Path", file: str) -> str:
    """Return a text of a license, which stands below `licenses`, or beside the metadata in older wheels."""
    below = directory / "licenses" / file
    return (below if below.exists() else directory / file).read_text(encoding="utf-8")
