"""What goes wrong while the image is built.

ImageBuildError(Exception)
"""


class ImageBuildError(Exception):
    """The image cannot be built; the text says what is needed."""
