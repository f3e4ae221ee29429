"""The one error of a simulation: its input cannot be used. The text is one line."""


class BadInputError(Exception):
    """A file, an object or a list that the simulation needs cannot be used; the text names it and the cure."""
