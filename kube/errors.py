"""What can go wrong between us and the API server: one tree.

    KubeError
    ├── Unreachable              no answer, or a broken one
    │   └── TimedOut             none within the time allowed
    ├── Undecodable              an answer that is not what was asked for
    └── ApiError                 an answer that says no
        ├── BadRequest           400
        ├── Unauthorized         401
        ├── Forbidden            403
        ├── NotFound             404
        ├── MethodNotAllowed     405
        ├── NotAcceptable        406
        ├── RequestTimeout       408
        ├── Conflict             409
        │   └── AlreadyExists    409, reason AlreadyExists
        ├── Gone                 410, or reason Expired
        ├── UnsupportedMediaType 415
        ├── Invalid              422
        ├── TooManyRequests      429
        ├── ServerError          500 to 599
        └── UnexpectedStatus     everything else

Two questions matter after a failed write. `is_definite`: did the server certainly not do it?
`is_transient`: is it worth trying again?
Texts from outside are cut, so that a proxy's error page does not fill the log.
"""

# ruff: noqa: N818  # the names are the API server's own reasons

import msgspec

from api.field_errors import UNDECODABLE

MAX_FOREIGN_TEXT = 256
"""Characters of foreign text that reach our logs and Events."""


class KubeError(Exception):
    """Base of everything that talking to the API server can raise."""

    @property
    def is_definite(self) -> bool:
        """Say whether the server certainly did not carry out the write."""
        return False

    @property
    def is_transient(self) -> bool:
        """Say whether the same request may succeed if it is made again later."""
        return True


class Unreachable(KubeError):
    """No answer came, or it broke off: refused, reset, timed out, TLS failed, not HTTP."""

    def __init__(self, message: str, *, request_sent: bool) -> None:
        """Take a text and whether the request may have left.

        `request_sent` is False only where we know that it did not, as when the connection was refused.
        """
        super().__init__(one_line(message))
        self.request_sent = request_sent

    @property
    def is_definite(self) -> bool:
        """Say whether the server certainly did not carry out the write."""
        return not self.request_sent


class TimedOut(Unreachable):
    """The time for an answer, or for the next byte of one, was over."""


class Undecodable(KubeError):
    """The server answered, but with a body that cannot be read as what was asked for."""

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


class Cause(msgspec.Struct, frozen=True, rename="camel"):
    """One of `status.details.causes`."""

    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(msgspec.Struct, frozen=True, rename="camel"):
    """`status.details`; texts as long as the server sent them."""

    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""
    causes: list[Cause] | None = None
    retry_after_seconds: int = 0


class Status(msgspec.Struct, frozen=True, rename="camel"):
    """`metav1.Status`, as errors and ERROR events of a watch carry it."""

    kind: str = ""
    code: int = 0
    reason: str = ""
    message: str = ""
    details: StatusDetails | None = None


class ApiError(KubeError):
    """The server answered with a status that is not a success."""

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        *,
        details: StatusDetails | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        self.status = status
        self.reason = one_line(reason)
        self.message = one_line(message)
        self.details = details
        self.retry_after_s = retry_after_s
        super().__init__(f"{status} {self.reason or type(self).__name__}: {self.message}")

    @property
    def is_definite(self) -> bool:
        """Say whether the server certainly did not carry out the write.

        Every 4xx is a refusal but 408, which some proxy may send while the server still works.
        """
        return 400 <= self.status <= 499 and self.status != 408

    @property
    def is_transient(self) -> bool:
        """Say whether the same request may succeed if it is made again later.

        A refusal stands, but for "too many" and "too slow"; 5xx passes, as a rule.
        """
        return self.status in {408, 429} or not 400 <= self.status <= 499


class BadRequest(ApiError):
    """400."""


class Unauthorized(ApiError):
    """401."""


class Forbidden(ApiError):
    """403: also quota and admission."""


class NotFound(ApiError):
    """404."""

    @property
    def names_object(self) -> bool:
        """Say whether the API server names an object that does not exist; a proxy's 404 and that of a path name none."""
        return self.details is not None and bool(self.details.name)


class MethodNotAllowed(ApiError):
    """405."""


class NotAcceptable(ApiError):
    """406."""


class RequestTimeout(ApiError):
    """408."""


class Conflict(ApiError):
    """409: stale resourceVersion, failed precondition, another field manager, already bound."""


class AlreadyExists(Conflict):
    """409 of a create."""


class Gone(ApiError):
    """410: the resourceVersion or the continue token is too old; list again."""


class UnsupportedMediaType(ApiError):
    """415."""


class Invalid(ApiError):
    """422: validation refused the object."""


class TooManyRequests(ApiError):
    """429: priority and fairness, or a disruption budget; nothing was done."""


class ServerError(ApiError):
    """5xx: the write may or may not have been carried out."""


class UnexpectedStatus(ApiError):
    """A status that the API server has no business to send: a proxy's, a redirect, a 404 about an object that names none."""


_BY_STATUS: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    405: MethodNotAllowed,
    406: NotAcceptable,
    408: RequestTimeout,
    409: Conflict,
    410: Gone,
    415: UnsupportedMediaType,
    422: Invalid,
    429: TooManyRequests,
}
_DECODER = msgspec.json.Decoder(Status)


def from_status(status: int, body: bytes, retry_after: str | None = None) -> ApiError:
    """Return the error for an answer.

    Args:
        status: the HTTP status, or `code` of the Status in an ERROR event.
        body: a `metav1.Status`; any other text becomes the message.
        retry_after: the header of that name; `details.retryAfterSeconds` comes first.
    """
    decoded = _decode(body)
    return _class_of(status, decoded.reason)(
        status,
        decoded.reason,
        decoded.message,
        details=decoded.details,
        retry_after_s=_retry_after(decoded, retry_after),
    )


def one_line(text: str) -> str:
    """Return foreign text on one line and no longer than `MAX_FOREIGN_TEXT`."""
    # Splitting megabytes only to throw them away is work that a broken proxy should not cause.
    line = " ".join(text[: 4 * MAX_FOREIGN_TEXT].split())
    return line if len(line) <= MAX_FOREIGN_TEXT else line[: MAX_FOREIGN_TEXT - 1] + "…"


def _class_of(status: int, reason: str) -> type[ApiError]:
    if reason == "Expired":
        return Gone
    if status == 409 and reason == "AlreadyExists":
        return AlreadyExists
    if 500 <= status <= 599:
        return ServerError
    return _BY_STATUS.get(status, UnexpectedStatus)


def _decode(body: bytes) -> Status:
    try:
        status = _DECODER.decode(body)
    except UNDECODABLE:
        status = Status()
    if status.kind == "Status":
        return status
    return Status(message=body[: 4 * MAX_FOREIGN_TEXT].decode("utf-8", "replace"))


def _retry_after(decoded: Status, header: str | None) -> float | None:
    if decoded.details is not None and decoded.details.retry_after_seconds > 0:
        return float(decoded.details.retry_after_seconds)
    # The header may also be a date; the API server never sends one.
    return float(header) if header is not None and header.isdecimal() else None
