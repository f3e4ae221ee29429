"""What can go wrong between us and a registry: one tree.

    RegistryError
    ├── RegistryUnreachable       no answer, or a broken one
    │   └── RegistryTimedOut      none within the time allowed
    ├── RegistryUntrusted         its certificate
    ├── RegistryRefusal           an answer that says no
    │   ├── AccessDenied          401, 403, or the token server's no
    │   ├── ContentNotFound       404
    │   ├── RateLimited           429
    │   ├── RegistryFailed        500 to 599
    │   └── UnexpectedAnswer      everything else, and answers outside the protocol
    ├── UnusableContent           what came is not what was asked for
    │   ├── DigestMismatch
    │   ├── LengthMismatch
    │   ├── ContentTooLarge
    │   └── PlatformMissing       an index without an image for the platform
    ├── AddressRefused            plain HTTP where no setting allows it, or a redirect that is not followed
    └── UnusableCredentials       of the pull secret

Each names registry, repository and tag or digest, the fact, and what to do. Texts from outside are cut.
`is_transient` says whether the same request may succeed later; the client has then already tried again.
"""

# ruff: noqa: N818  # names of facts

from typing import Final

from api.text import truncate


class RegistryError(Exception):
    """Base of everything that talking to a registry can raise."""

    is_transient: bool = False
    """Whether the same request may succeed if it is made again later."""

    def __init__(self, content: str, fact: str, cure: str) -> None:
        """Take the content's name (registry, repository, tag or digest), the fact, and what to do."""
        self.content = content
        self.fact = one_line(fact)
        self.cure = cure
        super().__init__(f"{content}: {self.fact}; {cure}")


class RegistryUnreachable(RegistryError):
    """No answer came, or it broke off: refused, reset, TLS failed, not HTTP."""

    is_transient = True


class RegistryTimedOut(RegistryUnreachable):
    """The time for an answer, or for the next byte of one, was over."""


class RegistryUntrusted(RegistryError):
    """The certificate is not one of a trusted authority for this name; nothing was sent."""


class RegistryRefusal(RegistryError):
    """The registry, or its token server, answered with a status that is not a success."""

    def __init__(
        self,
        content: str,
        fact: str,
        cure: str,
        *,
        status: int,
        retry_after_s: float | None = None,
    ) -> None:
        """Take the status and the seconds of `Retry-After`, too."""
        super().__init__(content, fact, cure)
        self.status = status
        self.retry_after_s = retry_after_s


class AccessDenied(RegistryRefusal):
    """401 or 403: of the registry after a renewal of the token, or of the token server."""


class ContentNotFound(RegistryRefusal):
    """404. Registries say so of repositories, too, that the credentials may not see."""


class RateLimited(RegistryRefusal):
    """429."""

    is_transient = True


class RegistryFailed(RegistryRefusal):
    """5xx."""

    is_transient = True


class UnexpectedAnswer(RegistryRefusal):
    """A status, header or body that has no place in the distribution protocol."""


class UnusableContent(RegistryError):
    """What came is not what was asked for, or not what is possible."""


class DigestMismatch(UnusableContent):
    """The bytes are others than the digest says."""


class LengthMismatch(UnusableContent):
    """There are more or fewer bytes than the descriptor says."""


class ContentTooLarge(UnusableContent):
    """A manifest, an index or a config beyond its limit."""


class PlatformMissing(UnusableContent):
    """An index has no image for the platform."""


class AddressRefused(RegistryError):
    """An address that is not asked: plain HTTP without the setting, or where a redirect must not lead."""


class UnusableCredentials(RegistryError):
    """A pull secret that cannot be read, or that holds what is not supported."""


_MOST_OF_A_TEXT: Final = 4096


def one_line(text: str) -> str:
    """Return foreign text on one line, truncated, and with nothing that a terminal would act upon."""
    words = " ".join(text[:_MOST_OF_A_TEXT].split())
    return truncate("".join(word if word.isprintable() else "?" for word in words), 512)
