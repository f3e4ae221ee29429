"""What a registry holds, and how it answers by the distribution specification: pull, push and referrers.

GET, HEAD /v2/<repository>/manifests/<tag or digest>
PUT       /v2/<repository>/manifests/<tag or digest>
GET, HEAD /v2/<repository>/blobs/<digest>                    in parts by Range
POST, PUT /v2/<repository>/blobs/uploads/…                   a blob in one piece
GET       /v2/<repository>/referrers/<digest>                in pages
"""

import hashlib
import json
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final

from aiohttp import web

from api.image_reference import Digest
from kernelcache.image_format import OCI_INDEX, OCI_MANIFEST, BlobDescriptor

if TYPE_CHECKING:
    from collections.abc import Mapping

A_REPOSITORY: Final = "team/cache"
FIRST_TAG: Final = "1"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedRequest:
    """A request as it arrived."""

    method: str
    path: str
    query: "Mapping[str, str]"
    headers: "Mapping[str, str]"
    body: bytes


def sha256(content: bytes) -> Digest:
    return Digest(f"sha256:{hashlib.sha256(content).hexdigest()}")


@final
@dataclass(slots=True, kw_only=True)
class RegistryContent:
    """Blobs of all repositories together, and the manifests of each."""

    blobs: dict[str, bytes] = field(default_factory=dict)
    manifests: dict[tuple[str, str], tuple[str, bytes]] = field(default_factory=dict)
    """(repository, tag or digest) -> media type and content."""
    has_referrers: bool = True
    """Whether it has the referrers API."""
    can_mount: bool = False
    """Whether a blob is found by its digest alone (201 to the POST)."""
    upload_location: str = "/v2/{repository}/blobs/uploads/{id}?state=x"
    page_size: int = 100
    """Page size of referrers."""

    def add_blob(
        self, content: bytes, media_type: str = "application/octet-stream"
    ) -> BlobDescriptor:
        digest = sha256(content)
        self.blobs[digest] = content
        return BlobDescriptor(media_type=media_type, digest=digest, size=len(content))

    def add_manifest(
        self,
        manifest: object,
        *,
        repository: str = A_REPOSITORY,
        tag: str | None = FIRST_TAG,
        media_type: str = OCI_MANIFEST,
    ) -> BlobDescriptor:
        """Store a manifest under its digest, and under a tag."""
        content = manifest if isinstance(manifest, bytes) else json.dumps(manifest).encode()
        digest = sha256(content)
        self.manifests[repository, digest] = (media_type, content)
        if tag is not None:
            self.manifests[repository, tag] = (media_type, content)
        return BlobDescriptor(media_type=media_type, digest=digest, size=len(content))

    def answer(self, request: ReceivedRequest, *, in_full: bool = False) -> web.Response:
        """Answer a request; `in_full` leaves its Range out of account."""
        repository, kind, remaining = split_path(request.path)
        match request.method, kind:
            case (("GET" | "HEAD"), "manifests"):
                return self._manifest(repository, remaining)
            case "PUT", "manifests":
                stored = self.add_manifest(
                    request.body,
                    repository=repository,
                    tag=remaining,
                    media_type=request.headers["Content-Type"],
                )
                return web.Response(status=201, headers={"Docker-Content-Digest": stored.digest})
            case _, "blobs" if remaining.startswith("uploads/"):
                return self._upload(request, repository)
            case (("GET" | "HEAD"), "blobs"):
                return self._blob(request, remaining, in_full=in_full)
            case "GET", "referrers" if self.has_referrers:
                return self._referrers(request, repository, remaining)
            case _:
                return _not_found()

    def _manifest(self, repository: str, remaining: str) -> web.Response:
        if (repository, remaining) not in self.manifests:
            return _not_found()
        media_type, content = self.manifests[repository, remaining]
        return _content(content, {"Content-Type": media_type}, sha256(content))

    def _blob(self, request: ReceivedRequest, digest: str, *, in_full: bool) -> web.Response:
        content = self.blobs.get(digest)
        if content is None:
            return _not_found()
        last = len(content) - 1
        asked = request.headers.get("Range", f"bytes=0-{last}").removeprefix("bytes=")
        start, end = map(int, asked.split("-"))
        if end != last:
            return web.Response(status=416)
        if not start or in_full:
            return _content(content, {}, digest)
        headers = {"Content-Range": f"bytes {start}-{last}/{len(content)}"}
        response = _content(content[start:], headers, digest)
        response.set_status(206)
        return response

    def _upload(self, request: ReceivedRequest, repository: str) -> web.Response:
        if request.method == "POST":
            if self.can_mount and request.query.get("mount", "") in self.blobs:
                return web.Response(status=201)
            location = self.upload_location.format(repository=repository, id=secrets.token_hex(4))
            return web.Response(status=202, headers={"Location": location})
        digest = request.query["digest"]
        if sha256(request.body) != digest:
            return web.Response(status=400, text='{"errors":[{"code":"DIGEST_INVALID"}]}')
        self.blobs[digest] = request.body
        return web.Response(status=201, headers={"Docker-Content-Digest": digest})

    def _referrers(self, request: ReceivedRequest, repository: str, digest: str) -> web.Response:
        found = [
            _described(media_type, content)
            for (where, key), (media_type, content) in sorted(self.manifests.items())
            if where == repository and key.startswith("sha256:") and _subject(content) == digest
        ]
        start = int(request.query.get("from", "0"))
        page = found[start : start + self.page_size]
        index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": page}
        following = start + self.page_size
        headers = (
            {"Link": f'<{request.path}?from={following}>; rel="next"'}
            if following < len(found)
            else {}
        )
        return web.json_response(index, content_type=OCI_INDEX, headers=headers)


def split_path(path: str) -> tuple[str, str, str]:
    """Return repository, kind and the rest of `/v2/<repository>/<kind>/<rest>`."""
    for kind in ("manifests", "blobs", "referrers"):
        repository, found, remaining = path.removeprefix("/v2/").partition(f"/{kind}/")
        if found:
            return repository, kind, remaining
    return "", "", ""


def _subject(content: bytes) -> object:
    """Return what a manifest refers to; None where it is none, or says nothing."""
    try:
        return json.loads(content)["subject"]["digest"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _described(media_type: str, content: bytes) -> dict[str, Any]:
    manifest = json.loads(content)
    return {
        "mediaType": media_type,
        "digest": sha256(content),
        "size": len(content),
        "artifactType": manifest.get("artifactType", ""),
        "annotations": manifest.get("annotations", {}),
    }


def _content(content: bytes, headers: "Mapping[str, str]", digest: str) -> web.Response:
    # To HEAD aiohttp sends the head alone.
    return web.Response(body=content, headers={**headers, "Docker-Content-Digest": digest})


def _not_found() -> web.Response:
    return web.json_response({"errors": [{"code": "UNKNOWN", "message": "not here"}]}, status=404)
