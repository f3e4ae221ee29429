"""The connection of a pod to the API server: its service account, read without a library.

Kubernetes' own contract: the address is in KUBERNETES_SERVICE_HOST and _PORT, the files are in a projected
volume. kubelet writes a new token at four fifths of its life and swaps the volume's link, so that a reading of
the file before each request finds it with the very next one; such a look takes two microseconds.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, final

import structlog

from kube.config.connection import BadConfigurationError, proxy_for
from kube.errors import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping

DIRECTORY: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
HOST_VARIABLE: Final = "KUBERNETES_SERVICE_HOST"
PORT_VARIABLE: Final = "KUBERNETES_SERVICE_PORT"
_CURE: Final = "does the pod have a service account, and automountServiceAccountToken not false?"
_log = structlog.get_logger()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAccountFiles:
    """Where a pod finds its service account; the defaults are Kubernetes' own paths."""

    token: Path = DIRECTORY / "token"
    ca_file: Path = DIRECTORY / "ca.crt"


def is_in_pod(environ: "Mapping[str, str]" = os.environ) -> bool:
    return bool(environ.get(HOST_VARIABLE))


def load_service_account(
    environ: "Mapping[str, str]" = os.environ, files: ServiceAccountFiles | None = None
) -> "ServiceAccount":
    """Return the connection of the pod that this is.

    Raises:
        BadConfigurationError: a variable or a file is missing or empty; the text names it.
    """
    files = files or ServiceAccountFiles()
    host, port = (environ.get(name, "") for name in (HOST_VARIABLE, PORT_VARIABLE))
    for name, value in ((HOST_VARIABLE, host), (PORT_VARIABLE, port)):
        if not value:
            raise BadConfigurationError(
                f"{name} is not set: this process runs in no pod; name a kubeconfig"
            )
    _content(files.ca_file)
    account = ServiceAccount(_url(host, port), files)
    account.read_token()
    return account


@final
class ServiceAccount:
    """A `kube.config.connection.Connection` whose token is read again when its file changes."""

    cert_file: None = None
    key_file: None = None
    verify_ssl = True
    disable_strict_ssl_verification = False
    tls_server_name: None = None
    proxy_headers: None = None

    def __init__(self, host: str, files: ServiceAccountFiles) -> None:
        """Take the base URL and where the files are; nothing is read yet."""
        self.host = host
        self.ssl_ca_cert = str(files.ca_file)
        self.proxy = proxy_for(host)
        self._file = files.token
        self._token = ""
        self._read: _Version | None = None
        self._is_reported = False

    async def get_api_key_with_prefix(
        self, identifier: str, alias: str | None = None
    ) -> str | None:
        """Return the header with the token as its file has it now; one that cannot be read keeps the last.

        The last one expires within the hour, and shows as 401 then.
        """
        try:
            self.read_token()
        except BadConfigurationError as error:
            if not self._is_reported:
                self._is_reported = True
                _log.warning("service account's token not renewed", error=one_line(str(error)))
        else:
            self._is_reported = False
        return f"Bearer {self._token}"

    def read_token(self) -> None:
        """Read the token if its file is another one than before.

        Raises:
            BadConfigurationError: it cannot be read, or is empty.
        """
        try:
            found = self._file.stat()
        except OSError as error:
            raise _unreadable(self._file, error) from error
        version = _Version(found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size)
        if version != self._read:
            self._token = _content(self._file)
            self._read = version


class _Version(NamedTuple):
    """The identity of a file's content."""

    device: int
    inode: int
    mtime_ns: int
    size: int


def _url(host: str, port: str) -> str:
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def _content(file: Path) -> str:
    try:
        content = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(file, error) from error
    if not content:
        raise BadConfigurationError(f"{file} is empty: {_CURE}")
    return content


def _unreadable(file: Path, error: Exception) -> BadConfigurationError:
    why = error.strerror if isinstance(error, OSError) else "it is no text"
    return BadConfigurationError(f"{file} cannot be read ({why}): {_CURE}")
