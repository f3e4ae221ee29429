"""Resolution of an operand's image from repository, image and version, as NVIDIA's GPU Operator resolves it."""

from dataclasses import dataclass
from typing import Final, final

_DIGEST: Final = "sha256:"


class ImageSourceError(ValueError):
    """An image is given in half, or not at all; the message names the field and the cure."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ImageSource:
    """The three fields of an image."""

    repository: str = ""
    image: str = ""
    version: str = ""
    """Tag, or a digest that begins with `sha256:`."""


def resolve_image(source: ImageSource, *, field: str, default: str = "", variable: str = "") -> str:
    """Return the reference of the image.

    `image` alone is the whole reference; otherwise all three fields are required. If none is given, the
    result is the default.

    Args:
        source: the three fields.
        field: where they are, such as `bootstrap.gfd.image`; errors begin with it.
        default: the reference where none of the three is given.
        variable: name of the environment variable that could have given the default; errors name it.

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
    if len(missing) < len(given):
        raise ImageSourceError(
            f"{field}.{missing[0]} is empty: set repository, image and version, or image alone to the"
            " whole reference"
        )
    if default:
        return default
    environment = f", or the environment variable {variable}" if variable else ""
    raise ImageSourceError(
        f"{field}: the operand is enabled and has no image: set image to the whole reference, or repository, image"
        f" and version{environment}"
    )


def has_digest(reference: str) -> bool:
    """Return whether a digest names the image, so that nothing can be appended to its tag."""
    return _DIGEST in reference
