"""What was written to the API server, by whom: the server's own audit log.

Level Metadata, one record per finished request that is not a read. Refused requests and dry runs
are records too (`status`, `dry_run`). Reviews (TokenReview, SubjectAccessReview and their like) are
POSTs that write nothing and are left out.
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

POLICY = f"""\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- {{level: Metadata, users: ["{credentials.AUDIT_MARKER}"]}}
- {{level: None, verbs: [get, list, watch]}}
- level: None
  resources: [{{group: authentication.k8s.io}}, {{group: authorization.k8s.io}}]
- {{level: Metadata}}
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


@final
class AuditLog:
    """Reads the log file of one API server, over its restarts."""

    def __init__(self, path: "Path", kubeconfig: "Callable[[str], Path]") -> None:
        self._path = path
        self._kubeconfig = kubeconfig

    async def mark(self) -> int:
        """Return the present moment, for `since`."""
        return (await self._settled())[1]

    async def writes(
        self, since: int = 0, *, user: str | None = None, resource: str | None = None
    ) -> list[Write]:
        """Return the writes that were answered after `since`, in the order of the log.

        `user` and `resource` (`pods/binding`) select; None selects everything.
        """
        end, _ = await self._settled()
        return [
            write
            for write in self._read(since, end)
            if user in (None, write.user) and resource in (None, write.resource)
        ]

    async def _settled(self) -> tuple[int, int]:
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

    def _read(self, start: int, end: int) -> "Iterator[Write]":
        with self._path.open("rb") as log:
            log.seek(start)
            text = log.read(end - start)
        for line in text.splitlines():
            event = json.loads(line)
            if event["user"]["username"] != credentials.AUDIT_MARKER:
                yield _write(event)


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
        status=event.get("responseStatus", {}).get("code", 0),
        dry_run="dryRun" in query,
        user_agent=event.get("userAgent", ""),
    )
