"""What can go wrong on the way to an answer. Every text is a sentence that names the object and the cure."""


class UnreadableError(Exception):
    """The cluster cannot be read, or not the part that the question needs."""


class ForbiddenError(UnreadableError):
    """The user may not read this; part of an answer may be possible without it."""


class NotFoundError(UnreadableError):
    """There is no such object, or the API server does not serve the kind."""


class ChangeRefusedError(Exception):
    """The API server refuses a change: the user's rights, or admission, whose words it has."""


class ListExpiredError(UnreadableError):
    """The pages of a list, or the events of a watch, are older than what the API server keeps."""


class BadSelectorError(UnreadableError):
    """The API server does not understand a selector: the user's own, or one that came after its version."""
