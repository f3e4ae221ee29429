"""Webhook configurations: which requests are sent to admission.

All webhooks fail closed, so the conditions are narrow: a pod that names no pool never depends on
the server, and neither does a write of a pool or device without a new decision. No label that a
user can set bypasses the webhooks.

A condition is expensive: kube-apiserver (1.36) converts the whole object for it, whatever the
expression reads. A selector costs nothing. At validation a pod of a pool has the label that
mutation set. So pods with the label have a webhook without a condition, and all others have the one
with conditions: together they see every pod that the conditions select.
"""

import base64
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final

from api import names
from api.workload_kinds import BUILT_IN_KINDS
from manifests import constants
from manifests.workload_webhooks import (
    SPEC_CHANGED,
    names_pool_expression,
    template_changed_expression,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from api.workload_kinds import WorkloadKind

TIMEOUT_S: Final = 3
"""Responses come from memory in milliseconds; those for caches ask a registry for at most
two of them. All webhooks of a request share the API server's 30 s,
and a server that hangs should delay a pod's creation no longer than this."""

NAMES_POOL_EXPRESSION: Final = (
    "(object.spec.containers + object.spec.?initContainers.orValue([])).exists(c,"
    f" (c.?resources.?limits.orValue({{}})).exists(k, k.startsWith('{names.RESOURCE_PREFIX}'))"
    f" || (c.?resources.?requests.orValue({{}})).exists(k, k.startsWith('{names.RESOURCE_PREFIX}')))"
)
"""Pods that request a pool: no other key of a container's resources has the prefix."""
_HAS_ANNOTATION: Final = (
    f"object.metadata.?annotations.orValue({{}}).exists(k, k.startsWith('{names.RESOURCE_PREFIX}'))"
)
POOL_POD_EXPRESSION: Final = f"{_HAS_ANNOTATION} || {NAMES_POOL_EXPRESSION}"
"""Pods with an annotation of ours, which may be forged, and pods that request a pool."""

MIRRORED_EXPRESSION: Final = (
    f"('{names.MIRROR_ANNOTATION}' in object.metadata.?annotations.orValue({{}})"
    f" && '{names.NODES_GROUP}' in request.userInfo.?groups.orValue([]))"
)
"""A static pod already runs when kubelet mirrors it; from other users the annotation has no effect."""

_ASSIGNMENT: Final = "{0}.metadata.?annotations[?'" + names.ASSIGNMENT_ANNOTATION + "'].orValue('')"
NEW_ASSIGNMENT_EXPRESSION: Final = (
    f"{_ASSIGNMENT.format('object')} != '' && (oldObject == null"
    f" || {_ASSIGNMENT.format('object')} != {_ASSIGNMENT.format('oldObject')})"
)
_DECISION: Final = (
    "[{0}.metadata.?annotations[?'" + names.ASSIGNMENT_ANNOTATION + "'].orValue(''),"
    " {0}.metadata.?annotations[?'" + names.DECIDED_BY_ANNOTATION + "'].orValue(''),"
    " {0}.metadata.?labels[?'" + names.IGNORE_LABEL + "'].orValue('')]"
)
DECISION_EXPRESSION: Final = (
    f"oldObject == null ? {_DECISION.format('object')}.exists(v, v != '')"
    f" : {_DECISION.format('object')} != {_DECISION.format('oldObject')}"
)
"""Devices of which a user decides, or edits the record of who did."""
SPEC_CHANGED_EXPRESSION: Final = (
    "oldObject == null || object.?spec.orValue({}) != oldObject.?spec.orValue({})"
)

_ANNOTATION: Final = "{0}.metadata.?annotations[?k].orValue('')"
_TAINTS: Final = "{0}.?spec.?taints.orValue([])"
EVICTING_TAINT_EXPRESSION: Final = f"{_TAINTS.format('object')}.exists(t, t.effect == 'NoExecute' && !(t in {_TAINTS.format('oldObject')}))"

CACHE_CHANGED_EXPRESSION: Final = (
    f"{SPEC_CHANGED_EXPRESSION}"
    f" || [{', '.join(repr(item) for item in names.GKM_ANNOTATIONS)}].exists(k,"
    f" {_ANNOTATION.format('object')} != {_ANNOTATION.format('oldObject')})"
    f" || !('{names.MUTATION_SIGNATURE_ANNOTATION}' in object.metadata.?annotations.orValue({{}}))"
)
"""Caches whose image, proof or policy may change. Other writes, as of a finalizer, do not depend on the server."""

_CacheWebhooks = tuple[tuple[str, str, str, str], ...]
"""Name, path, plural and scope of each."""
_MUTATING_CACHES: Final[_CacheWebhooks] = (
    (constants.MUTATE_CACHES_WEBHOOK, constants.MUTATE_CACHES_PATH, "gkmcaches", "Namespaced"),
    (
        constants.MUTATE_CLUSTER_CACHES_WEBHOOK,
        constants.MUTATE_CLUSTER_CACHES_PATH,
        "clustergkmcaches",
        "Cluster",
    ),
)
_VALIDATING_CACHES: Final[_CacheWebhooks] = (
    (constants.VALIDATE_CACHES_WEBHOOK, constants.VALIDATE_CACHES_PATH, "gkmcaches", "Namespaced"),
    (
        constants.VALIDATE_CLUSTER_CACHES_WEBHOOK,
        constants.VALIDATE_CLUSTER_CACHES_PATH,
        "clustergkmcaches",
        "Cluster",
    ),
)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceClient:
    """The API server reaches the webhooks through a Service."""

    namespace: str = constants.DEFAULT_NAMESPACE
    name: str = constants.SERVICE_NAME
    port: int = constants.SERVICE_PORT


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class UrlClient:
    """The API server reaches the webhooks under `https://host:port`: development outside a cluster."""

    base_url: str


Client = ServiceClient | UrlClient


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSettings:
    """Settings that differ between installations."""

    client: Client
    ca_bundle: bytes = b""
    """PEM; empty if it is injected later. Until then, every request that matches is refused."""
    excluded_namespaces: tuple[str, ...] = constants.DEFAULT_EXCLUDED_NAMESPACES
    """No webhook is called for pods there, since our own must start before a server is ready. The policy
    of `manifests.install.annotation_policy` keeps pool pods out of them."""
    annotations: "Mapping[str, str]" = field(default_factory=dict)
    """Annotations of both configurations."""
    server: str = constants.service_account_username(constants.DEFAULT_NAMESPACE)
    """User name of the server, whose own taints that evict pods are judged."""
    serves_caches: bool = True
    """The server's setting kernel_caches.enabled."""
    workloads: "Sequence[WorkloadKind]" = ()
    """Kinds with pod templates beside Kubernetes' own: the server's setting workloads.kinds."""
    further_webhooks: "Sequence[dict[str, Any]]" = ()
    """Webhooks of such kinds, where another program makes them."""


def build_mutating_configuration(settings: WebhookSettings) -> dict[str, Any]:
    webhook = _pods_webhook(settings, constants.MUTATE_PODS_PATH)
    devices = _webhook(
        settings,
        name=constants.DEVICES_WEBHOOK,
        path=constants.MUTATE_DEVICES_PATH,
        rule=_rule(names.GROUP, names.VERSION, "gpudevices", scope="Cluster"),
        conditions={"is-a-decision": DECISION_EXPRESSION},
    ) | {"sideEffects": "None"}
    caches = _caches_webhooks(settings, _MUTATING_CACHES)
    workloads = _workload_webhooks(settings)
    # Caches again after Kyverno has written the digest into the image.
    for item in (webhook, *caches):
        item["reinvocationPolicy"] = "IfNeeded"
    return _configuration(
        settings,
        "MutatingWebhookConfiguration",
        constants.MUTATING_CONFIGURATION,
        webhooks=[webhook, devices, *workloads, *caches],
    )


def build_validating_configuration(settings: WebhookSettings) -> dict[str, Any]:
    others = _pods_webhook(settings, constants.VALIDATE_PODS_PATH)
    labelled = _pods_webhook(settings, constants.VALIDATE_PODS_PATH) | {
        "name": constants.LABELLED_PODS_WEBHOOK,
        "matchConditions": [],  # the server leaves mirror pods alone
    }
    for webhook, operator in ((labelled, "Exists"), (others, "DoesNotExist")):
        webhook["objectSelector"] = {
            "matchExpressions": [{"key": names.POOL_LABEL, "operator": operator}]
        }
    pools = _webhook(
        settings,
        name=constants.POOLS_WEBHOOK,
        path=constants.VALIDATE_POOLS_PATH,
        rule=_rule(names.GROUP, names.VERSION, "gpupools", scope="Cluster"),
        conditions={"spec-changed": SPEC_CHANGED_EXPRESSION},
    )
    devices = _webhook(
        settings,
        name=constants.DEVICES_WEBHOOK,
        path=constants.VALIDATE_DEVICES_PATH,
        rule=_rule(names.GROUP, names.VERSION, "gpudevices", scope="Cluster"),
        conditions={"newly-assigned": NEW_ASSIGNMENT_EXPRESSION},
    )
    nodes = _webhook(
        settings,
        name=constants.NODES_WEBHOOK,
        path=constants.VALIDATE_NODES_PATH,
        rule=_rule("", "v1", "nodes", scope="Cluster") | {"operations": ["UPDATE"]},
        conditions={
            "is-the-server": f"request.userInfo.username == '{settings.server}'",
            "evicts-pods": EVICTING_TAINT_EXPRESSION,
        },
    )
    return _configuration(
        settings,
        "ValidatingWebhookConfiguration",
        constants.VALIDATING_CONFIGURATION,
        webhooks=[
            labelled,
            others,
            pools,
            devices,
            nodes,
            *_caches_webhooks(settings, _VALIDATING_CACHES),
        ],
    )


def _caches_webhooks(settings: WebhookSettings, kinds: _CacheWebhooks) -> list[dict[str, Any]]:
    if not settings.serves_caches:
        return []
    return [
        _webhook(
            settings,
            name=name,
            path=path,
            # The subresource status is none of these.
            rule=_rule(names.GKM_GROUP, names.VERSION, plural, scope=scope),
            conditions={"image-or-proof-changed": CACHE_CHANGED_EXPRESSION},
        )
        | {"sideEffects": "None"}
        for name, path, plural, scope in kinds
    ]


def _pods_webhook(settings: WebhookSettings, path: str) -> dict[str, Any]:
    # CREATE only: the API server forbids adding a resource to a pod later.
    webhook = _webhook(
        settings,
        name=constants.PODS_WEBHOOK,
        path=path,
        rule=_rule("", "v1", "pods", scope="Namespaced") | {"operations": ["CREATE"]},
        conditions={
            "concerns-a-pool": POOL_POD_EXPRESSION,
            "not-a-mirror-pod": f"!{MIRRORED_EXPRESSION}",
        },
    )
    return webhook | _other_namespaces(settings.excluded_namespaces)


def _workload_webhooks(settings: WebhookSettings) -> list[dict[str, Any]]:
    """Return a webhook for each way to the templates of Kubernetes' kinds, and for each other kind."""
    built_in: dict[tuple[str, ...], list[WorkloadKind]] = {}
    for kind in BUILT_IN_KINDS:
        built_in.setdefault(kind.templates, []).append(kind)
    return [
        *(
            workload_webhook(
                settings,
                kinds,
                names_pool=names_pool_expression(kinds[0]),
                changed=template_changed_expression(kinds[0]),
            )
            for kinds in built_in.values()
        ),
        *(
            workload_webhook(
                settings, [kind], names_pool=names_pool_expression(kind), changed=SPEC_CHANGED
            )
            for kind in settings.workloads
        ),
        *settings.further_webhooks,
    ]


def workload_webhook(
    settings: WebhookSettings, kinds: "Sequence[WorkloadKind]", *, names_pool: str, changed: str
) -> dict[str, Any]:
    """Return the webhook of kinds that have the same expressions."""
    own = f"{kinds[0].resource}.{kinds[0].group}." if len(kinds) == 1 else ""
    first, *others = (_rule(kind.group, "*", kind.resource, scope="Namespaced") for kind in kinds)
    webhook = _webhook(
        settings,
        name=f"{own}{constants.WORKLOADS_WEBHOOK}",
        path=constants.MUTATE_WORKLOADS_PATH,
        rule=first,
        conditions={"names-a-pool": names_pool, "templates-changed": changed},
    )
    webhook["rules"] += others
    webhook |= {"sideEffects": "None", "reinvocationPolicy": "IfNeeded"}
    return webhook | _other_namespaces(settings.excluded_namespaces)


def _other_namespaces(namespaces: "Sequence[str]") -> dict[str, Any]:
    """Return the selector of all other namespaces."""
    expression = {
        "key": "kubernetes.io/metadata.name",
        "operator": "NotIn",
        "values": list(dict.fromkeys(namespaces)),
    }
    return {"namespaceSelector": {"matchExpressions": [expression]}}


def _webhook(
    settings: WebhookSettings,
    *,
    name: str,
    path: str,
    rule: dict[str, Any],
    conditions: dict[str, str],
) -> dict[str, Any]:
    return {
        "name": name,
        "clientConfig": _client_config(settings, path),
        "rules": [rule],
        "matchConditions": [
            {"name": condition, "expression": expression}
            for condition, expression in conditions.items()
        ],
        "matchPolicy": "Equivalent",
        "failurePolicy": "Fail",
        "sideEffects": "NoneOnDryRun",
        "timeoutSeconds": TIMEOUT_S,
        "admissionReviewVersions": ["v1"],
    }


def _rule(group: str, version: str, resource: str, *, scope: str) -> dict[str, Any]:
    return {
        "apiGroups": [group],
        "apiVersions": [version],
        "operations": ["CREATE", "UPDATE"],
        "resources": [resource],
        "scope": scope,
    }


def _client_config(settings: WebhookSettings, path: str) -> dict[str, Any]:
    config = _address(settings.client, path)
    if settings.ca_bundle:
        config["caBundle"] = base64.b64encode(settings.ca_bundle).decode()
    return config


def _address(client: Client, path: str) -> dict[str, Any]:
    match client:
        case ServiceClient(namespace=namespace, name=name, port=port):
            service = {"namespace": namespace, "name": name, "path": path, "port": port}
            return {"service": service}
        case UrlClient(base_url=base_url):
            return {"url": base_url.rstrip("/") + path}


def _configuration(
    settings: WebhookSettings, kind: str, name: str, *, webhooks: list[dict[str, Any]]
) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "labels": dict(constants.LABELS)}
    if settings.annotations:
        metadata["annotations"] = dict(settings.annotations)
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": metadata,
        "webhooks": webhooks,
    }
