"""How registries are reached, and the limits of one operation."""

import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from pathlib import Path

MAX_SMALL_BLOB_BYTES: Final = 4 * 1024 * 1024
"""Most bytes of a blob that is read as a whole: a configuration, a signature's payload."""
MAX_LAYERS: Final = 128
"""Most layers of one image; container runtimes stop at about as many."""
MAX_INDEX_ENTRIES: Final = 512
MAX_REFERRERS: Final = 256
"""Most referrers of one image: signatures, attestations, bills of materials."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrySettings:
    """The same for every registry that a client talks to."""

    user_agent: str
    ca_file: "Path | None" = None
    """Authorities to trust instead of the system's."""
    plain_http_hosts: frozenset[str] = frozenset()
    """`host:port` of registries, token servers and blob stores that are asked without TLS; all others never."""
    private_hosts: frozenset[str] | None = None
    """`host:port` (or a host, on port 443) of registries, token servers and blob stores that may have addresses that
    are not public; None is every host."""
    connect_timeout_s: float = 10.0
    read_timeout_s: float = 30.0
    """Seconds between two reads of an answer."""
    operation_timeout_s: float = 60.0
    """Time limit, in seconds, of everything but the content of blobs, with redirects, tokens and retries."""
    transfer_timeout_s: float = 3600.0
    """Time limit, in seconds, of the transfer of one blob, down or up."""
    attempts: int = 5
    """Attempts of one request, and of one blob without a byte more in between."""

    def tls(self) -> ssl.SSLContext:
        """Return the context of all connections; reads the file of authorities.

        Raises:
            OSError: the file is missing or unusable.
        """
        return ssl.create_default_context(cafile=self.ca_file)
