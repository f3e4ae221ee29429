"""Pods: defaults, priority, first status, and allowed updates.

Fields that scheduling and admission need. Probes, volumes, security and the rest are accepted
unchecked.
"""

from typing import TYPE_CHECKING, Any, Final

from api.quantity import parse_count
from simulator.apiserver import errors
from simulator.apiserver.resource_types import PODS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

Json = dict[str, Any]

DEFAULT_GRACE_S: Final = 30
_MAX_RESOURCE_NAME: Final = 63
_CONTAINER_LISTS: Final = ("initContainers", "containers")
_IMMUTABLE_TEXT: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions "
    "to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it "
    "was previously negative)"
)


def default(body: Json) -> None:
    """Fill in the API server's defaults, in place; idempotent."""
    spec = body.setdefault("spec", {})
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", DEFAULT_GRACE_S)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("enableServiceLinks", True)
    spec.setdefault("serviceAccountName", "default")
    for name in _CONTAINER_LISTS:
        for container in spec.get(name) or ():
            _default_container(container)


def _default_container(container: Json) -> None:
    image = container.get("image", "")
    tag = image.rpartition("/")[2].partition(":")[2]
    floats = tag in {"", "latest"} and "@" not in image
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    container.setdefault("imagePullPolicy", "Always" if floats else "IfNotPresent")
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
    resources = container.setdefault("resources", {})
    for kind in ("limits", "requests"):
        if amounts := resources.get(kind):
            resources[kind] = {key: str(amount) for key, amount in amounts.items()}
    if limits := resources.get("limits"):
        requests = resources.setdefault("requests", {})
        for key, value in limits.items():
            requests.setdefault(key, value)


def assign_priority(body: Json, find_class: "Callable[[str], Mapping[str, Any] | None]") -> None:
    """Set the priority of a new pod from its class, in place.

    Raises:
        StatusError: 403, no such class, or a priority that is not the class's.
    """
    spec = body["spec"]
    class_name = spec.get("priorityClassName", "")
    found = find_class(class_name)
    name = body["metadata"].get("name", "")
    if found is None and class_name:
        raise errors.forbidden(PODS, name, f"no PriorityClass with name {class_name} was found")
    value = found["value"] if found else 0
    if found and not class_name:
        spec["priorityClassName"] = found["metadata"]["name"]
    if spec.get("priority", value) != value:
        raise errors.forbidden(
            PODS,
            name,
            f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; "
            f"priority admission controller computed {value} from the given PriorityClass name",
        )
    spec["priority"] = value
    policy = found.get("preemptionPolicy") if found else None
    spec.setdefault("preemptionPolicy", policy or "PreemptLowerPriority")


def begin(body: Json, now: str) -> None:
    """Set the first status of a new pod, in place, and ignore any given one."""
    status: Json = {"phase": "Pending", "qosClass": _quality(body["spec"])}
    if body["spec"].get("schedulingGates"):
        status["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "lastProbeTime": None,
                "lastTransitionTime": now,
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }
        ]
    body["status"] = status


def _quality(spec: Json) -> str:
    """Return the class of service; only cpu and memory count."""
    guaranteed, any_set = True, False
    for container in (item for name in _CONTAINER_LISTS for item in spec.get(name) or ()):
        resources = container.get("resources") or {}
        limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
        for name in ("cpu", "memory"):
            any_set = any_set or name in limits or name in requests
            guaranteed = guaranteed and name in limits and limits[name] == requests.get(name)
    if not any_set:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def validate(body: Json, old: Json | None) -> "Iterator[errors.InvalidField]":
    """Yield the errors of a pod, or of the change from `old`."""
    spec = body["spec"]
    if not spec.get("containers"):
        yield errors.required("spec.containers")
    for name in _CONTAINER_LISTS:
        seen: set[str] = set()
        for index, container in enumerate(spec.get(name) or ()):
            at = f"spec.{name}[{index}]"
            yield from _validate_container(container, at)
            if container.get("name") in seen:
                text = f'Duplicate value: "{container["name"]}"'
                yield errors.InvalidField(f"{at}.name", "FieldValueDuplicate", text)
            seen.add(container.get("name", ""))
    if old is not None:
        yield from _validate_change(spec, old["spec"])


def _validate_container(container: Json, at: str) -> "Iterator[errors.InvalidField]":
    for field in ("name", "image"):
        if not container.get(field):
            yield errors.required(f"{at}.{field}")
    resources = container.get("resources") or {}
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for kind, amounts in (("limits", limits), ("requests", requests)):
        for key, amount in amounts.items():
            if is_extended(key):
                yield from _validate_amount(key, amount, f"{at}.resources.{kind}")
    for key, amount in requests.items():
        if not is_extended(key):
            continue
        if key not in limits:
            yield errors.required(
                f"{at}.resources.limits", "Limit must be set for non overcommitable resources"
            )
        elif limits[key] != amount:
            yield errors.invalid_value(
                f"{at}.resources.requests",
                str(amount),
                f"must be equal to {key} limit of {limits[key]}",
            )


def is_extended(resource_name: str) -> bool:
    """Return whether a resource is extended: counted in whole units and never overcommitted."""
    domain, slash, _ = resource_name.rpartition("/")
    return bool(slash) and domain != "kubernetes.io" and not domain.endswith(".kubernetes.io")


def _validate_amount(key: str, amount: str, at: str) -> "Iterator[errors.InvalidField]":
    name = key.rpartition("/")[2]
    if len(name) > _MAX_RESOURCE_NAME:
        yield errors.invalid_value(at, key, "name part must be no more than 63 bytes")
    try:
        parse_count(amount)
    except ValueError:
        yield errors.invalid_value(f"{at}[{key}]", amount, "must be an integer")


def _validate_change(spec: Json, before: Json) -> "Iterator[errors.InvalidField]":
    gates = [gate["name"] for gate in before.get("schedulingGates") or ()]
    added = False
    for index, gate in enumerate(spec.get("schedulingGates") or ()):
        if gate["name"] not in gates:
            added = True
            yield errors.forbidden_field(
                f"spec.schedulingGates[{index}].name",
                f"only deletion is allowed, but found new scheduling gate '{gate['name']}'",
            )
    if not added and _fixed_part(spec, before, is_gated=bool(gates)) != before:
        yield errors.forbidden_field("spec", _IMMUTABLE_TEXT)


def _fixed_part(spec: Json, before: Json, *, is_gated: bool) -> Json:
    """Return the new spec with all mutable fields as in the old one."""
    part = dict(spec)
    movable = ["activeDeadlineSeconds", "schedulingGates"]
    if is_gated:
        movable += ["nodeSelector", "affinity"]
    if _extends(spec.get("tolerations") or [], before.get("tolerations") or []):
        movable.append("tolerations")
    if before.get("terminationGracePeriodSeconds", 0) < 0:
        movable.append("terminationGracePeriodSeconds")
    for key in movable:
        part.pop(key, None)
        if key in before:
            part[key] = before[key]
    for name in _CONTAINER_LISTS:
        containers, previous = spec.get(name) or [], before.get(name) or []
        if len(containers) == len(previous):
            pairs = zip(containers, previous, strict=True)
            images = [{**new, "image": old.get("image")} for new, old in pairs]
            if images:
                part[name] = images
    return part


def _extends(tolerations: list[Json], before: list[Json]) -> bool:
    return all(item in tolerations for item in before)


def deletion_grace_s(body: Json, requested_s: int | None) -> int:
    """Return the grace period of a deletion in seconds; 0 deletes at once."""
    if not body["spec"].get("nodeName") or body.get("status", {}).get("phase") in {
        "Succeeded",
        "Failed",
    }:
        return 0
    if requested_s is not None:
        return requested_s
    found: int = body["spec"].get("terminationGracePeriodSeconds", DEFAULT_GRACE_S)
    return found
