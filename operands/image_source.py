"""Resolution of an operand's image from repository, image and version, as NVIDIA's GPU Operator resolves it."""

from dataclasses import dataclass
from typing import final

from operands.errors import ImageSourceError

_DIGEST = "sha256:"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ImageSource:
    """The three fields of an image."""

    repository: str = ""
    image: str = ""
    version: str = ""
    """Tag, or a digest that begins with `sha256:`."""


def resolve_image(source: ImageSource, *, setting: str, default: str = "") -> str:
    """Return the reference of the image.

    `image` alone is the whole reference; otherwise all three fields are required. If none is given, the
    result is the default.

    Raises:
        ImageSourceError: some of the three are missing, or there is no default.
    """
    repository, image, version = source.repository, source.image, source.version
    if image and not repository and not version:
        return image
    given = {"repository": repository, "image": image, "version": version}
    missing = [name for name, value in given.items() if not value]
    if not missing:
        separator = "@" if version.startswith(_DIGEST) else ":"
        return f"{repository.removesuffix('/')}/{image}{separator}{version}"
    if len(missing) == len(given):
        if default:
            return default
        raise ImageSourceError(
            f"{setting}.image: the operand is enabled and has no image: set {setting}.image.image to the whole"
            f" reference, or {setting}.image.repository, .image and .version"
        )
    raise ImageSourceError(
        f"{setting}.image.{missing[0]} is empty: set repository, image and version, or image alone to the"
        " whole reference"
    )
