"""ControllerRevisions of a DaemonSet: a revision for each template that it has had, the newest with the highest number."""

import hashlib
from typing import TYPE_CHECKING, Any, Final

import msgspec

from api.well_known_labels import REVISION_LABEL
from kube.resources import CONTROLLER_REVISIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

Json = dict[str, Any]

_DIGITS: Final = 10


def revision_hash(template: "Mapping[str, Any]") -> str:
    """Return the hash of a pod template."""
    content = msgspec.json.encode(template, order="deterministic")
    return hashlib.sha256(content).hexdigest()[:_DIGITS]


def revision_body(owner: "Mapping[str, Any]", labels: "Mapping[str, str]", *, hash_: str) -> Json:
    """Return a revision, without its number.

    Args:
        owner: metadata of the DaemonSet: name, namespace and uid.
        labels: of its template.
        hash_: of its template.
    """
    reference = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "name": owner["name"],
        "uid": owner["uid"],
        "controller": True,
    }
    return {
        "apiVersion": CONTROLLER_REVISIONS.api_version,
        "kind": CONTROLLER_REVISIONS.kind,
        "metadata": {
            "name": f"{owner['name']}-{hash_}",
            "namespace": owner["namespace"],
            "labels": {**labels, REVISION_LABEL: hash_},
            "ownerReferences": [reference],
        },
    }
