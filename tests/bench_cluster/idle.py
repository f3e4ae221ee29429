"""Two webhooks that decide nothing: what asking two webhooks about a pod costs by itself.

The mutating one answers with a patch as long as ours, the validating one allows. `configurations` are
ours, with the same conditions and the same TLS, so that kube-apiserver does the same for each pod.
"""

import base64
from typing import TYPE_CHECKING, Any, Final

import msgspec
from aiohttp import web

from api.names import POOL_LABEL
from manifests import constants
from manifests.install.webhooks import (
    UrlClient,
    WebhookSettings,
    build_mutating_configuration,
    build_validating_configuration,
)
from manifests.yaml import render

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.cluster.environment.client import JsonObject

_ANNOTATION: Final = "example.com/reservation"
_NOTE: Final = "x" * 230
"""As long as a reservation of one device."""
_IN_POOL: Final = {
    "matchExpressions": [
        {"key": "pool.example.com/of-some-nodes", "operator": "NotIn", "values": ["nobody"]}
    ]
}
_PATCH: Final = (
    # The label of ours, by which the validating one is selected.
    {"op": "add", "path": "/metadata/labels", "value": {POOL_LABEL: "bench"}},
    {"op": "add", "path": "/metadata/annotations", "value": {_ANNOTATION: _NOTE}},
    {
        "op": "add",
        "path": "/spec/tolerations/-",
        "value": {"key": "example.com/bench", "operator": "Exists", "effect": "NoSchedule"},
    },
    {
        "op": "add",
        "path": "/spec/affinity",
        "value": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_IN_POOL]}
            }
        },
    },
)
_ENCODED_PATCH: Final = base64.b64encode(msgspec.json.encode(_PATCH)).decode()


class _Request(msgspec.Struct):
    uid: str


class _Review(msgspec.Struct):
    request: _Request


_review = msgspec.json.Decoder(_Review)


def configurations(base_url: str, ca_bundle: bytes) -> str:
    """Return the manifests that have pods of a pool sent to the webhooks of this module."""
    settings = WebhookSettings(client=UrlClient(base_url=base_url), ca_bundle=ca_bundle)
    built = [build_mutating_configuration(settings), build_validating_configuration(settings)]
    for item in built:
        item["webhooks"] = [
            webhook for webhook in item["webhooks"] if "pods" in webhook["rules"][0]["resources"]
        ]
    return render(built)


def has_mutated(pod: "JsonObject") -> bool:
    """Say whether the mutating one was asked about this pod."""
    return _ANNOTATION in pod["metadata"].get("annotations", {})


def routes() -> "Sequence[web.RouteDef]":
    """Return the two webhooks."""
    return [
        web.post(constants.MUTATE_PODS_PATH, _mutate),
        web.post(constants.VALIDATE_PODS_PATH, _validate),
    ]


async def _mutate(request: web.Request) -> web.Response:
    return await _allow(request, patchType="JSONPatch", patch=_ENCODED_PATCH)


async def _validate(request: web.Request) -> web.Response:
    return await _allow(request)


async def _allow(request: web.Request, **patch: str) -> web.Response:
    uid = _review.decode(await request.read()).request.uid
    answer: dict[str, Any] = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": uid, "allowed": True, **patch},
    }
    return web.Response(body=msgspec.json.encode(answer), content_type="application/json")
