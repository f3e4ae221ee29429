"""List types: a keyed list of objects, a set, or one value that is replaced as a whole.

A shape is a structural schema, or the part of one that defines list types. Built-in kinds have the
table below; custom resources have the schema of their CRD. A field without a shape is free-form:
maps merge, lists are one value.
"""

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

Json = dict[str, Any]

FREE: Final[Json] = {}


def _keyed(*keys: str, items: "Mapping[str, Any] | None" = None) -> Json:
    return {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": list(keys),
        "items": dict(items or {}),
    }


_SET: Final[Json] = {"type": "array", "x-kubernetes-list-type": "set"}
_ATOMIC_MAP: Final[Json] = {"x-kubernetes-map-type": "atomic"}


def _object(**properties: "Mapping[str, Any]") -> Json:
    return {"properties": properties}


METADATA: Final[Json] = _object(
    finalizers=_SET,
    ownerReferences=_keyed("uid"),
)
_CONDITIONS: Final = _keyed("type")
_CONTAINER: Final = _object(
    env=_keyed("name"),
    ports=_keyed("containerPort", "protocol"),
    volumeMounts=_keyed("mountPath"),
    volumeDevices=_keyed("devicePath"),
    resources=_object(claims=_keyed("name")),
)
_POD_SPEC: Final = _object(
    containers=_keyed("name", items=_CONTAINER),
    initContainers=_keyed("name", items=_CONTAINER),
    ephemeralContainers=_keyed("name", items=_CONTAINER),
    volumes=_keyed("name"),
    imagePullSecrets=_keyed("name"),
    hostAliases=_keyed("ip"),
    schedulingGates=_keyed("name"),
    nodeSelector=_ATOMIC_MAP,
    topologySpreadConstraints=_keyed("topologyKey", "whenUnsatisfiable"),
    tolerations={"type": "array"},
)
_BY_KIND: Final[dict[str, Json]] = {
    "Pod": _object(
        spec=_POD_SPEC,
        status=_object(conditions=_CONDITIONS, podIPs=_keyed("ip"), hostIPs={"type": "array"}),
    ),
    "Node": _object(
        spec=_object(taints={"type": "array"}),
        status=_object(conditions=_CONDITIONS, addresses=_keyed("type")),
    ),
    "PodDisruptionBudget": _object(status=_object(conditions=_CONDITIONS)),
    "DaemonSet": _object(
        spec=_object(template=_object(spec=_POD_SPEC)), status=_object(conditions=_CONDITIONS)
    ),
    "Deployment": _object(
        spec=_object(template=_object(spec=_POD_SPEC)), status=_object(conditions=_CONDITIONS)
    ),
    "MutatingWebhookConfiguration": _object(
        webhooks=_keyed("name", items=_object(matchConditions=_keyed("name")))
    ),
    "ValidatingWebhookConfiguration": _object(
        webhooks=_keyed("name", items=_object(matchConditions=_keyed("name")))
    ),
    "CustomResourceDefinition": _object(status=_object(conditions=_CONDITIONS)),
}


def of_kind(kind: str) -> Json:
    shape: Json = {"properties": dict(_BY_KIND.get(kind, {}).get("properties", {}))}
    shape["properties"]["metadata"] = METADATA
    return shape


def child(shape: "Mapping[str, Any]", key: str) -> "Mapping[str, Any]":
    found: Mapping[str, Any] | None = shape.get("properties", FREE).get(key)
    if found is None:
        more = shape.get("additionalProperties")
        return more if isinstance(more, dict) else FREE
    return found


def item(shape: "Mapping[str, Any]") -> "Mapping[str, Any]":
    found: Mapping[str, Any] = shape.get("items", FREE)
    return found


def list_keys(shape: "Mapping[str, Any]") -> tuple[str, ...]:
    """Return the key fields of a list of keyed objects; empty for other lists."""
    if shape.get("x-kubernetes-list-type") == "map":
        return tuple(shape["x-kubernetes-list-map-keys"])
    return ()


def is_set(shape: "Mapping[str, Any]") -> bool:
    return shape.get("x-kubernetes-list-type") == "set"


def is_granular_map(shape: "Mapping[str, Any]") -> bool:
    """Return whether entries of a map have owners of their own."""
    return shape.get("x-kubernetes-map-type") != "atomic"
