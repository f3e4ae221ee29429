"""What was written to the API server, by whom: the server's own audit log.

Level Metadata, one record per finished request that is not a read. Refused requests and dry runs
are records too (`status`, `dry_run`). Reviews (TokenReview, SubjectAccessReview and their like) are
POSTs that write nothing and are left out. Of our own server the reads are recorded as well, a watch
when it begins, for `AuditLog.rights_used`.
"""

import json
import secrets
import urllib.parse
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from tests.cluster.environment import client, credentials, polling

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_OURS = "system:serviceaccount:gpu-control-plane:gpu-control-plane"
_READS = frozenset({"get", "list", "watch"})

POLICY = f"""\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {{level: Metadata, users: ["{credentials.AUDIT_MARKER}"], omitStages: [ResponseStarted]}}
- {{level: Metadata, users: ["{_OURS}"], verbs: [watch], omitStages: [ResponseComplete]}}
- {{level: Metadata, users: ["{_OURS}"], verbs: [get, list]}}
- {{level: None, verbs: [get, list, watch]}}
- level: None
  resources: [{{group: authentication.k8s.io}}, {{group: authorization.k8s.io}}]
- {{level: Metadata, omitStages: [ResponseStarted]}}
"""

_REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One request that was meant to change something."""

    user: str
    verb: str
    """create, update, patch, delete or deletecollection"""
    resource: str
    """Plural name, with the subresource where there is one: `pods`, `pods/binding`."""
    namespace: str
    name: str
    """Empty for a create: the server does not record the names that it gives out."""
    status: int
    dry_run: bool
    user_agent: str

    @property
    def succeeded(self) -> bool:
        return self.status < 300


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """What a request takes: a verb on a resource, in one namespace or, as `*`, anywhere."""

    namespace: str
    group: str
    resource: str
    """With the subresource, where there is one."""
    verb: str

    def __str__(self) -> str:
        where = "" if self.namespace == "*" else f" in {self.namespace}"
        return f"{self.verb} {self.resource}{f'.{self.group}' if self.group else ''}{where}"


@final
class AuditLog:
    """Reads the log file of one API server, over its restarts."""

    def __init__(self, path: "Path", kubeconfig: "Callable[[str], Path]") -> None:
        self._path = path
        self._kubeconfig = kubeconfig

    async def mark(self) -> int:
        """Return the present moment, for `since`."""
        return (await self._until_stable())[1]

    async def writes(
        self, since: int = 0, *, user: str | None = None, resource: str | None = None
    ) -> list[Write]:
        """Return the writes that were answered after `since`, in the order of the log.

        `user` and `resource` (`pods/binding`) select; None selects everything.
        """
        end, _ = await self._until_stable()
        return [
            write
            for write in map(_write, self._read(since, end))
            if write.verb not in _READS
            and user in (None, write.user)
            and resource in (None, write.resource)
        ]

    async def rights_used(self, user: str) -> set[Right]:
        """Return what all requests of the user took that were not forbidden; reads of our own only."""
        end, _ = await self._until_stable()
        return {
            right
            for event in self._read(0, end)
            if event["user"]["username"] == user and _status(event) != 403
            for right in _rights(event)
        }

    async def _until_stable(self) -> tuple[int, int]:
        """Write a marker; return where it begins and ends in the file.

        The server logs a request at its end, a moment after the client has the answer. The marker
        is one more whole request, so what was answered before it is in the log by then.
        """
        marker = f"marker-{secrets.token_hex(8)}"
        start = self._path.stat().st_size if self._path.exists() else 0
        async with client.open_client(self._kubeconfig(credentials.AUDIT_MARKER)) as api:
            body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
            await api.create(_REVIEWS, body, fieldManager=marker)
        return await polling.eventually(
            lambda: self._find(marker.encode(), start), what="marker in the audit log", every=0.01
        )

    def _find(self, marker: bytes, start: int) -> tuple[int, int] | None:
        with self._path.open("rb") as log:
            log.seek(start)
            text = log.read()
        position = text.find(marker)
        line_end = text.find(b"\n", position)
        if position < 0 or line_end < 0:
            return None
        return start + text.rfind(b"\n", 0, position) + 1, start + line_end + 1

    def _read(self, start: int, end: int) -> "Iterator[dict[str, Any]]":
        with self._path.open("rb") as log:
            log.seek(start)
            text = log.read(end - start)
        for line in text.splitlines():
            event = json.loads(line)
            if event["user"]["username"] != credentials.AUDIT_MARKER:
                yield event


def _rights(event: dict[str, Any]) -> "Iterator[Right]":
    reference = event.get("objectRef", {})
    resource = "/".join(filter(None, (reference.get("resource"), reference.get("subresource"))))
    for namespace in {"*", reference.get("namespace", "*")}:
        yield Right(namespace, reference.get("apiGroup", ""), resource, event["verb"])
        if event["verb"] == "patch" and _status(event) == 201:
            # An apply that makes the object is asked for both rights, and logged as what it came as.
            yield Right(namespace, reference.get("apiGroup", ""), resource, "create")


def _status(event: dict[str, Any]) -> int:
    status: int = event.get("responseStatus", {}).get("code", 0)
    return status


def _write(event: dict[str, Any]) -> Write:
    reference = event.get("objectRef", {})
    subresource = reference.get("subresource")
    resource = reference.get("resource", "")
    query = urllib.parse.parse_qs(urllib.parse.urlsplit(event["requestURI"]).query)
    return Write(
        user=event["user"]["username"],
        verb=event["verb"],
        resource=f"{resource}/{subresource}" if subresource else resource,
        namespace=reference.get("namespace", ""),
        name=reference.get("name", ""),
        status=_status(event),
        dry_run="dryRun" in query,
        user_agent=event.get("userAgent", ""),
    )
