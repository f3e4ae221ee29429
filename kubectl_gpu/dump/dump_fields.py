"""The fields of objects that a dump keeps; every other one stays in the cluster.

Lists name what is kept, so that a field that is new in Kubernetes is left out until it is named here. Environment,
arguments, commands, the content of volumes and annotations of others are in no list.
"""

from typing import TYPE_CHECKING, Any, Final, cast

from api.annotations import decode_devices, decode_reservation, encode_devices
from api.csi.names import CACHE_ATTRIBUTE, DRIVER_NAME, NAMESPACE_ATTRIBUTE
from api.foreign.karpenter import DO_NOT_DISRUPT_ANNOTATION
from api.names import DEVICES_ANNOTATION, GROUP, RESERVATION_ANNOTATION, RESOURCE_PREFIX
from kube import resources

if TYPE_CHECKING:
    from collections.abc import Callable


Json = dict[str, Any]
Fields = dict[str, Any]
"""Field -> WHOLE, the fields of an object, or the fields of each object of a list."""

WHOLE: Final = True
_CONDITION: Final = ("type", "status", "reason", "message", "lastTransitionTime")
_MARK: Final = "removed"
"""Mark in place of a value of which only the presence matters."""


def _fields(*names: str, **nested: Any) -> Fields:  # noqa: ANN401  # Fields
    return dict.fromkeys(names, WHOLE) | nested


_META: Final = _fields(
    "name",
    "generateName",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "labels",
    "annotations",  # those of others are removed
    "finalizers",
    ownerReferences=_fields("apiVersion", "kind", "name", "uid", "controller"),
)
_REQUIREMENTS: Final = _fields("limits", "requests")
_CONTAINER: Final = _fields(
    "name", "restartPolicy", ports=_fields("containerPort", "hostPort"), resources=_REQUIREMENTS
)
_RULES: Final = _fields("requiredDuringSchedulingIgnoredDuringExecution")
_STATE: Final = _fields(
    "name",
    "ready",
    "restartCount",
    "allocatedResources",
    resources=_fields("requests"),
    state={"running": {}},
)
_WORKLOAD: Final = _fields(
    "replicas",
    template={
        "metadata": _fields("labels"),
        "spec": _fields("nodeSelector", "tolerations", containers=_fields("name", "image")),
    },
)
_WEBHOOKS: Final = _fields(
    "name", "failurePolicy", clientConfig=_fields("caBundle", service=_fields("name", "namespace"))
)
_OURS: Final = _fields("spec", "status")

_KEPT: Final[dict[str, Fields]] = {
    resources.PODS.plural: {
        "spec": _fields(
            "nodeName",
            "schedulerName",
            "serviceAccountName",
            "priority",
            "preemptionPolicy",
            "nodeSelector",
            "tolerations",
            "topologySpreadConstraints",
            "schedulingGates",
            "overhead",
            "hostNetwork",
            affinity=_fields("nodeAffinity", podAffinity=_RULES, podAntiAffinity=_RULES),
            resourceClaims=_fields("name"),
            resources=_REQUIREMENTS,
            containers=_CONTAINER,
            initContainers=_CONTAINER,
            volumes=_fields(
                "name",
                persistentVolumeClaim=_fields("claimName"),
                ephemeral={},
                csi=_fields(
                    "driver", volumeAttributes=_fields(CACHE_ATTRIBUTE, NAMESPACE_ATTRIBUTE)
                ),
            ),
        ),
        "status": _fields(
            "phase",
            "reason",
            "startTime",
            "nominatedNodeName",
            "allocatedResources",
            conditions=_fields(*_CONDITION),
            resources=_fields("requests"),
            containerStatuses=_STATE,
            initContainerStatuses=_STATE,
        ),
    },
    resources.NODES.plural: {
        "spec": _fields("unschedulable", taints=_fields("key", "value", "effect", "timeAdded")),
        "status": _fields(
            "allocatable",
            "capacity",
            conditions=_fields(*_CONDITION),
            nodeInfo=_fields(
                "architecture",
                "containerRuntimeVersion",
                "kernelVersion",
                "kubeletVersion",
                "osImage",
            ),
        ),
    },
    resources.NAMESPACES.plural: {},
    resources.RESOURCE_QUOTAS.plural: {},
    resources.LIMIT_RANGES.plural: {},
    resources.GPU_POOLS.plural: _OURS,
    resources.GPU_DEVICES.plural: _OURS,
    resources.GPU_NODE_INVENTORIES.plural: _OURS,
    resources.GPU_CONTROL_PLANE_TERMS.plural: _OURS,
    resources.GPU_CONTROL_PLANE_CONFIGS.plural: _OURS,
    resources.GKM_CACHES.plural: _fields("status", spec=_fields("image", "warm")),
    resources.CLUSTER_GKM_CACHES.plural: _fields("status", spec=_fields("image", "warm")),
    resources.GKM_CACHE_NODES.plural: _fields("status"),
    resources.CLUSTER_GKM_CACHE_NODES.plural: _fields("status"),
    resources.LEASES.plural: _fields("spec"),
    resources.EVENTS.plural: _fields(
        "reportingController",
        "reportingInstance",
        "reason",
        "note",
        "type",
        "action",
        "eventTime",
        "series",
        "deprecatedFirstTimestamp",
        "deprecatedLastTimestamp",
        "deprecatedCount",
        regarding=_fields("apiVersion", "kind", "namespace", "name", "uid"),
        related=_fields("apiVersion", "kind", "namespace", "name", "uid"),
    ),
    resources.CUSTOM_RESOURCE_DEFINITIONS.plural: {
        "spec": _fields("group", versions=_fields("name", "served", "storage", "schema")),
        "status": _fields("storedVersions", conditions=_fields(*_CONDITION)),
    },
    resources.DEPLOYMENTS.plural: {
        "spec": _WORKLOAD,
        "status": _fields(
            "replicas", "readyReplicas", "updatedReplicas", conditions=_fields(*_CONDITION)
        ),
    },
    resources.DAEMON_SETS.plural: {
        "spec": _WORKLOAD,
        "status": _fields("desiredNumberScheduled", "numberReady", "updatedNumberScheduled"),
    },
    resources.MUTATING_WEBHOOK_CONFIGURATIONS.plural: {"webhooks": _WEBHOOKS},
    resources.VALIDATING_WEBHOOK_CONFIGURATIONS.plural: {"webhooks": _WEBHOOKS},
}


def reduced(resource: "resources.Resource", item: Json) -> Json:
    """Return the part of an object that a dump keeps.

    Raises:
        KeyError: a dump has no objects of the resource.
    """
    found: Json = {"apiVersion": resource.api_version, "kind": resource.kind}
    found |= _kept(item, {"metadata": _META, **_KEPT[resource.plural]})
    metadata = found.setdefault("metadata", {})
    if "annotations" in metadata:
        metadata["annotations"] = _annotations(metadata["annotations"])
    finish = _FINISH.get(resource.plural)
    if finish is not None:
        finish(found)
    return found


def _kept(value: Any, fields: Fields) -> Any:  # noqa: ANN401  # JSON
    """Return a copy of an object, or of a list of objects, with these fields alone."""
    if isinstance(value, list):
        return [_kept(item, fields) for item in value]
    if not isinstance(value, dict):
        # An object is expected: what stands in its place could be anything.
        return None
    return {
        name: value[name] if kept is WHOLE else _kept(value[name], kept)
        for name, kept in fields.items()
        if name in value and value[name] is not None
    }


def is_kept_annotation(key: str) -> bool:
    """Return whether an annotation is one of ours, or decides about nodes."""
    domain, slash, _ = key.partition("/")
    is_ours = domain == GROUP or domain.endswith(f".{GROUP}")
    return bool(slash) and (is_ours or key == DO_NOT_DISRUPT_ANNOTATION)


def _annotations(found: object) -> dict[str, str]:
    if not isinstance(found, dict):
        return {}
    kept = {
        key: value
        for key, value in found.items()
        if is_kept_annotation(key) and isinstance(value, str)
    }
    for key, clean in _CLEAN.items():
        if key in kept:
            kept[key] = clean(kept[key])
    return kept


def _clean_reservation(text: str) -> str:
    """Return the note without its signature; text that is no note becomes another one that is none."""
    note = decode_reservation(text)
    if note is None:
        return _MARK
    return type(note)(
        id=note.id,
        pool=note.pool,
        node=note.node,
        devices=note.devices,
        expires_at=note.expires_at,
    ).encode()


def _clean_devices(text: str) -> str:
    devices = decode_devices(text)
    return _MARK if devices is None else encode_devices(devices)


_CLEAN: Final[dict[str, "Callable[[str], str]"]] = {
    RESERVATION_ANNOTATION: _clean_reservation,
    DEVICES_ANNOTATION: _clean_devices,
}


def _finish_pod(pod: Json) -> None:
    """Remove what foreign CSI drivers and controllers wrote, and the numbers of resources that no node counts."""
    for volume in _objects(pod.get("spec"), "volumes"):
        if _object(volume.get("csi")).get("driver") != DRIVER_NAME:
            volume.pop("csi", None)
    for condition in _objects(pod.get("status"), "conditions"):
        kind = str(condition.get("type"))
        if kind != "PodScheduled" and not kind.startswith(RESOURCE_PREFIX):
            condition.pop("message", None)


def _finish_webhooks(configuration: Json) -> None:
    """Keep of a caBundle that there is one."""
    for webhook in _objects(configuration, "webhooks"):
        client = _object(webhook.get("clientConfig"))
        if client.get("caBundle"):
            client["caBundle"] = _MARK


_FINISH: Final[dict[str, "Callable[[Json], None]"]] = {
    resources.PODS.plural: _finish_pod,
    resources.MUTATING_WEBHOOK_CONFIGURATIONS.plural: _finish_webhooks,
    resources.VALIDATING_WEBHOOK_CONFIGURATIONS.plural: _finish_webhooks,
}


def _object(value: object) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}


def _objects(value: object, name: str) -> "list[Json]":
    found = _object(value).get(name)
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []
