"""The version of the API server."""

import re
from typing import Final

import msgspec

from api.field_errors import UNDECODABLE
from api.meta import Model
from kube.errors import Undecodable

_LEADING_DIGITS: Final = re.compile(r"[0-9]{1,4}", re.ASCII)


class ServerVersion(Model, frozen=True):
    """The answer of `/version`; vendors add suffixes, as `v1.34.2-eks-1` and `34+`."""

    major: str = ""
    minor: str = ""
    git_version: str = ""

    @property
    def number(self) -> tuple[int, int] | None:
        """Return major and minor version; None if one is no number."""
        major, minor = _LEADING_DIGITS.match(self.major), _LEADING_DIGITS.match(self.minor)
        return None if major is None or minor is None else (int(major[0]), int(minor[0]))


def decode_server_version(body: bytes) -> ServerVersion:
    """Raises Undecodable."""
    try:
        return msgspec.json.decode(body, type=ServerVersion)
    except UNDECODABLE as error:
        raise Undecodable(f"/version: {error}") from error
