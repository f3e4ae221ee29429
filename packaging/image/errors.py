"""What goes wrong while the image is built.

CannotBuild(Exception)
"""


class CannotBuild(Exception):  # noqa: N818  # it is named for what is wrong
    """The image cannot be built; the text says what is needed."""
