"""Pure steps of a write, from the old object and the client's body to the new object."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simulator.apiserver.resource_types import ResourceType
    from simulator.apiserver.write.request_body import RequestTarget

Json = dict[str, Any]


def isolate(body: Json, old: Json, target: "RequestTarget") -> Json:
    """Return the object with the old values of all parts that this path cannot write."""
    resource = target.resource
    if target.subresource != "status":
        if not resource.has_status:
            return body
        isolated = {key: value for key, value in body.items() if key != "status"}
        if "status" in old:
            isolated["status"] = old["status"]
        return isolated
    isolated = {key: value for key, value in old.items() if key != "status"}
    if "status" in body:
        isolated["status"] = body["status"]
    # Built-in kinds let labels and annotations through their status path, custom resources do not.
    isolated["metadata"] = dict(old["metadata"] if resource.is_custom else body["metadata"])
    return isolated


def move_generation(body: Json, old: Json, resource: "ResourceType") -> None:
    """Increment the generation if the desired state changed, in place."""
    if not resource.has_generation:
        return
    ignored = {"metadata", "status"} if resource.has_status else {"metadata"}
    before = {key: value for key, value in old.items() if key not in ignored}
    after = {key: value for key, value in body.items() if key not in ignored}
    if before != after:
        body["metadata"]["generation"] = old["metadata"]["generation"] + 1


def is_finished(body: Json) -> bool:
    """Return whether the object is being deleted and no finalizer or grace period holds it."""
    found = body["metadata"]
    return (
        "deletionTimestamp" in found
        and not found.get("finalizers")
        and not found.get("deletionGracePeriodSeconds")
        and body["kind"] != "Namespace"
    )
