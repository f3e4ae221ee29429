"""The image of an operand, and that of a driver for one kind of node."""

from typing import TYPE_CHECKING

from api.image_source import ImageSource, ImageSourceError, has_digest, resolve_image

if TYPE_CHECKING:
    from collections.abc import Mapping

    from api.kinds.nvidia.operand_block import ImageFields


def operand_image(block: "ImageFields", *, field: str, environment: "Mapping[str, str]") -> str:
    """Return the reference of an operand's image: the object's, or the environment's where the object names none.

    Args:
        block: the part of the spec with the image.
        field: the object and the part, such as `ClusterPolicy gpus: spec.toolkit`; errors begin with it.
        environment: variables of the control plane. An NVIDIADriver's own image has none.

    Raises:
        ImageSourceError: the image is given in half, or nowhere.
    """
    source = ImageSource(repository=block.repository, image=block.image, version=block.version)
    variable = block.image_variable
    return resolve_image(
        source, field=field, default=environment.get(variable, ""), variable=variable
    )


def image_for_nodes(image: str, *, field: str, os_tag: str, kernel: str = "") -> str:
    """Return the reference of a driver's image for nodes of one system: its tag tells them apart.

    An image by digest serves all of them.

    Args:
        image: what `operand_image` returned, of a driver, a vGPU manager, GPUDirect Storage or GDRCopy.
        field: as in `operand_image`.
        os_tag: system of the nodes, such as `ubuntu24.04` or `rhel9`.
        kernel: version of their kernel, for a precompiled driver only.

    Raises:
        ImageSourceError: there is no tag, or a precompiled driver is given by digest.
    """
    if has_digest(image):
        if not kernel:
            return image
        raise ImageSourceError(
            f"{field}.version is a digest, and a precompiled driver has an image for each kernel: set version to"
            " the driver's branch"
        )
    if ":" not in image.rpartition("/")[2]:
        raise ImageSourceError(
            f"{field}: {image} has no tag, to which {os_tag} could be appended: set repository, image and version"
        )
    return "-".join(part for part in (image, kernel, os_tag) if part)
