"""`kubectl proxy` on a unix socket: any login that kubectl has works, and one process serves all requests.

Requests are HTTP/1.0, so that an answer ends where the connection does, and no HTTP library is imported.
"""

import datetime as dt
import socket
from typing import TYPE_CHECKING, Final, Self, final
from urllib.parse import urlencode

from kubectl_gpu.api_answers import change_error, status_error
from kubectl_gpu.errors import ListExpiredError, UnreadableError
from kubectl_gpu.proxy_process import ProxyProcess, run_kubectl

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kube.resources import Resource
    from kubectl_gpu.cluster_source import ListQuery

PAGE_SIZE: Final = 500
_ANSWER_WITHIN_S: Final = 60.0
"""The API server's own limit of a request."""
_CHUNK: Final = 1 << 18
_CUT: Final = "the connection ended before the answer of the API server did: run the command again"


@final
class KubectlProxy:
    """A `ReadableSource`: the API server, by the login of a kubectl context."""

    origin: Final = "API server"

    def __init__(self, flags: "Sequence[str]" = (), *, namespace: str | None = None) -> None:
        """Prepare; nothing runs before the first request.

        Args:
            flags: of kubectl, such as `--context` with its value.
            namespace: in place of that of the context.
        """
        self._flags = tuple(flags)
        self._namespace = namespace
        self.process: Final = ProxyProcess(flags)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def now(self) -> dt.datetime:
        return dt.datetime.now(dt.UTC)  # noqa: TID251  # this is the Clock of the plugin

    def namespace(self) -> str:
        """Return the namespace of the context, as kubectl would take it."""
        if self._namespace is None:
            self._namespace = self._configured("{..namespace}") or "default"
        return self._namespace

    def context(self) -> str:
        """Return the name of the context; empty where there is none, as beside --server alone."""
        return self._configured("{.current-context}")

    def object(self, resource: "Resource", name: str, *, namespace: str | None = None) -> bytes:
        return self._get(resource.path(namespace, name), resource, name=name)

    def probe(self, resource: "Resource") -> None:
        """Ask for one object of a kind; raises where no more could be listed."""
        self._get(f"{resource.path()}?limit=1", resource)

    def get(self, path: str) -> bytes:
        """Return what the API server answers at a path that is no kind's."""
        return self._get(path, None)

    def pages(self, query: "ListQuery") -> "Iterator[bytes]":
        parameters = _parameters(query) | {"limit": str(PAGE_SIZE)}
        path = query.resource.path(query.namespace)
        while True:
            body = self._get(f"{path}?{urlencode(parameters)}", query.resource)
            yield body
            following = continue_token(body)
            if not following:
                return
            parameters["continue"] = following

    def watch(self, query: "ListQuery", version: str) -> "Watch":
        """Return the changes of a list since this version of it."""
        parameters = _parameters(query) | {
            "watch": "1",
            "allowWatchBookmarks": "1",
            "resourceVersion": version,
        }
        connection = self._send(f"{query.resource.path(query.namespace)}?{urlencode(parameters)}")
        return Watch(connection, query.resource)

    def patch(self, resource: "Resource", name: str, body: bytes, *, is_dry: bool) -> None:
        """Merge into an object of the cluster scope, as the user.

        Raises:
            ChangeRefusedError: the API server does not allow it.
        """
        parameters = {"fieldManager": "kubectl-gpu"} | ({"dryRun": "All"} if is_dry else {})
        status, answer = self._answer(
            f"{resource.path(None, name)}?{urlencode(parameters)}", resource, body=body
        )
        if status != 200:
            raise change_error(status, answer, resource, name=name)

    def close(self) -> None:
        """End the proxy and remove its socket."""
        self.process.close()

    def _get(self, target: str, resource: "Resource | None", *, name: str = "") -> bytes:
        status, body = self._answer(target, resource)
        if status != 200:
            raise status_error(status, body, resource, name=name)
        return body

    def _answer(
        self, target: str, resource: "Resource | None", *, body: bytes = b""
    ) -> tuple[int, bytes]:
        with self._send(target, body) as connection:
            try:
                answer = b"".join(iter(lambda: connection.recv(_CHUNK), b""))
            except OSError as error:
                raise _connection_error(resource, error) from error
        return split_answer(answer)

    def _send(self, target: str, body: bytes = b"") -> socket.socket:
        """Send a GET, or a merge PATCH where there is a body."""
        head = f"{'PATCH' if body else 'GET'} {target} HTTP/1.0\r\nHost: localhost\r\nAccept: application/json\r\n"
        if body:
            head += f"Content-Type: application/merge-patch+json\r\nContent-Length: {len(body)}\r\n"
        path = self.process.start()
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(_ANSWER_WITHIN_S)
        try:
            connection.connect(path)
            connection.sendall(f"{head}\r\n".encode() + body)
        except OSError as error:
            connection.close()
            raise UnreadableError(
                f"kubectl proxy ended: {self.process.last_error_line() or error}"
            ) from error
        return connection

    def _configured(self, path: str) -> str:
        """Return a value of the kubeconfig's present context."""
        command = ("config", "view", "--minify", f"--output=jsonpath={path}")
        done = run_kubectl(*command, *self._flags_of_config())
        return done.stdout.decode(errors="replace").strip() if not done.returncode else ""

    def _flags_of_config(self) -> "Iterator[str]":
        """Yield the flags that name a context; `kubectl config` has no use for a login."""
        kept = ("--context=", "--kubeconfig=", "--cluster=", "--user=")
        return (flag for flag in self._flags if flag.startswith(kept))


@final
class Watch:
    """An open watch; each line is an event as JSON."""

    def __init__(self, connection: socket.socket, resource: "Resource") -> None:
        self._connection = connection
        self._resource = resource
        self._received = b""
        self._has_header = False

    def fileno(self) -> int:
        return self._connection.fileno()

    def close(self) -> None:
        self._connection.close()

    def events(self) -> "list[bytes]":
        """Return the events that arrived; to be called when there is something to read.

        Raises:
            ListExpiredError: the watch ended, as watches do; the list is to be read again.
        """
        try:
            arrived = self._connection.recv(_CHUNK)
        except OSError as error:
            raise _connection_error(self._resource, error) from error
        self._received += arrived
        if not self._has_header:
            self._read_header(is_whole=not arrived)
        *lines, self._received = self._received.split(b"\n")
        if not arrived and not lines:
            raise ListExpiredError(f"the watch of {self._resource.plural} ended")
        return [line for line in lines if line.strip()]

    def _read_header(self, *, is_whole: bool) -> None:
        head, separator, remaining = self._received.partition(b"\r\n\r\n")
        if not separator and not is_whole:
            return
        status = _status_of(head)
        if status != 200:
            raise status_error(status, remaining, self._resource)
        self._has_header, self._received = True, remaining


def split_answer(answer: bytes) -> tuple[int, bytes]:
    """Return status and body of an HTTP/1.0 answer.

    Raises:
        UnreadableError: it is cut, or no HTTP at all.
    """
    head, separator, body = answer.partition(b"\r\n\r\n")
    if not separator:
        raise UnreadableError(_CUT)
    for line in head.lower().split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name == b"content-length" and value.strip() != str(len(body)).encode():
            raise UnreadableError(_CUT)
    return _status_of(head), body


def continue_token(body: bytes) -> str:
    """Return the token of the next page; empty on the last one, and for what is no list."""
    from kubectl_gpu.api_answers import list_meta  # noqa: PLC0415  # msgspec is imported with it

    return list_meta(body).continue_


def _status_of(head: bytes) -> int:
    try:
        return int(head.split(b" ", 2)[1])
    except (IndexError, ValueError) as error:
        raise UnreadableError("kubectl proxy answered something that is no HTTP") from error


def _parameters(query: "ListQuery") -> dict[str, str]:
    given = {"labelSelector": query.labels, "fieldSelector": query.fields}
    return {name: value for name, value in given.items() if value}


def _connection_error(resource: "Resource | None", error: OSError) -> UnreadableError:
    if isinstance(error, TimeoutError):
        return UnreadableError(
            f"the API server does not answer within {_ANSWER_WITHIN_S:g} s when asked for"
            f" {resource.plural if resource is not None else 'a path'}"
        )
    return UnreadableError(f"the connection to kubectl proxy broke: {error}")
