"""Errors of the image builder.

ImageBuildError(Exception)
"""


class ImageBuildError(Exception):
    """The image cannot be built; the text names the cure."""
