"""Hosts and origins of requests: browsers send them, and no page can make its browser send others."""

from http import HTTPStatus
from typing import TYPE_CHECKING

from console.edge.console_answers import RefusedError

if TYPE_CHECKING:
    from aiohttp import web


def host_of(request: "web.BaseRequest") -> str:
    """Return the header Host in lower case.

    Raises:
        RefusedError: there is none, or more than one.
    """
    hosts = request.headers.getall("Host", [])
    if len(hosts) != 1 or not hosts[0]:
        raise RefusedError(HTTPStatus.BAD_REQUEST, "the request names no host, or several")
    return hosts[0].lower()


def refuse_other_sites(request: "web.BaseRequest", host: str) -> None:
    """Refuse what a browser asks for a page of another site, or of another port of this host.

    Raises:
        RefusedError: the request is such a one.
    """
    origins = request.headers.getall("Origin", [])
    sites = request.headers.getall("Sec-Fetch-Site", [])
    if any(_authority(origin) != host for origin in origins) or not {"same-origin", "none"} >= set(
        sites
    ):
        raise RefusedError(
            HTTPStatus.FORBIDDEN, "the request comes from a page of another site, and is refused"
        )


def _authority(origin: str) -> str:
    """Return host and port of an origin; its scheme is not compared, since TLS may end before us."""
    scheme, separator, authority = origin.lower().partition("://")
    return authority if separator and scheme in {"http", "https"} else ""
