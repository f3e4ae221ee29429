"""DELETE: preconditions, finalizers, and the grace period of bound pods.

An object with finalizers is marked, and removed with its last finalizer. A bound pod is marked, and
removed when its node deletes it with a grace period of 0. Owned objects are not deleted: that is
the garbage collector's work.
"""

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import msgspec

from simulator.apiserver import metadata
from simulator.apiserver.errors import bad_request, conflict, forbidden, not_found
from simulator.apiserver.resource_types import NAMESPACES, PODS
from simulator.apiserver.strategies import pod
from simulator.apiserver.webhooks.chain import AdmissionAttributes
from simulator.apiserver.write.object_writer import WriteResult
from simulator.apiserver.write.request_body import decode_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from api.clock import Clock
    from simulator.apiserver.resource_types import ResourceType
    from simulator.apiserver.store.objects import ObjectStore, Stored
    from simulator.apiserver.webhooks.chain import AdmissionChain
    from simulator.apiserver.write.effects import Effects
    from simulator.apiserver.write.request_body import Caller, RequestTarget

Json = dict[str, Any]

_PERMANENT = frozenset({"default", "kube-system"})


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOptions:
    """Options of a deletion; propagation policies are accepted and have no effect here."""

    grace_s: int | None = None
    uid: str | None = None
    version: str | None = None


def decode_delete_options(raw: bytes, query: "Mapping[str, str]") -> DeleteOptions:
    """Return the options of a request; its body overrides the query.

    Raises:
        StatusError: 400.
    """
    body = decode_json(raw, "DeleteOptions") if raw.strip() else {}
    grace = body.get("gracePeriodSeconds")
    if grace is None and query.get("gracePeriodSeconds"):
        text = query["gracePeriodSeconds"]
        if not text.isdecimal():
            raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
        grace = int(text)
    preconditions = body.get("preconditions") or {}
    return DeleteOptions(
        grace_s=grace,
        uid=preconditions.get("uid"),
        version=preconditions.get("resourceVersion"),
    )


@final
class Deleter:
    def __init__(
        self,
        store: "ObjectStore",
        admission: "AdmissionChain",
        *,
        effects: "Effects",
        clock: "Clock",
    ) -> None:
        self._store = store
        self._admission = admission
        self._effects = effects
        self._clock = clock

    async def delete(
        self, target: "RequestTarget", caller: "Caller", options: DeleteOptions
    ) -> WriteResult:
        """Delete one object, or start its deletion.

        Raises:
            StatusError: it is refused.
        """
        resource = target.resource
        stored = self._find(target)
        if resource is NAMESPACES and target.name in _PERMANENT:
            raise forbidden(resource, target.name, "this namespace may not be deleted")
        attributes = AdmissionAttributes(
            resource=resource,
            operation="DELETE",
            namespace=target.namespace,
            name=target.name,
            user=caller.user,
            dry_run=caller.dry_run,
            old=stored.body,
            warnings=caller.warnings,
        )
        await self._admission.validate(attributes, None)
        stored = self._find(target)
        _check_preconditions(stored, resource, options)
        if caller.dry_run:
            return WriteResult(status=200, encoded=_answer(resource, stored, is_gone=True))
        last, is_gone = self._delete_now(resource, stored, options.grace_s)
        return WriteResult(status=200, encoded=_answer(resource, last, is_gone=is_gone))

    def delete_without_admission(
        self, resource: "ResourceType", stored: "Stored", options: DeleteOptions
    ) -> None:
        """Delete one object, or start its deletion, without calling admission.

        Raises:
            StatusError: 409, another object than the options name.
        """
        _check_preconditions(stored, resource, options)
        self._delete_now(resource, stored, options.grace_s)

    def _find(self, target: "RequestTarget") -> "Stored":
        stored = self._store.collection(target.resource).get(target.namespace, target.name)
        if stored is None:
            raise not_found(target.resource, target.name)
        return stored

    def _delete_now(
        self, resource: "ResourceType", stored: "Stored", grace_s: int | None
    ) -> "tuple[Stored, bool]":
        """Return the object's last state and whether it is gone."""
        if resource is NAMESPACES:
            return self._end_namespace(stored)
        grace_period_s = pod.deletion_grace_s(stored.body, grace_s) if resource is PODS else 0
        found = stored.body["metadata"]
        if "deletionTimestamp" in found:
            # A grace can only be shortened.
            grace_period_s = min(grace_period_s, found.get("deletionGracePeriodSeconds", 0))
            if grace_period_s == found.get("deletionGracePeriodSeconds") and (
                grace_period_s or found.get("finalizers")
            ):
                return stored, False
        body = self._mark(stored, resource, grace_period_s)
        collection = self._store.collection(resource)
        if grace_period_s or found.get("finalizers"):
            marked = collection.replace(resource, stored, body, ownership=stored.ownership)
            self._effects.stored(resource, marked)
            return marked, False
        removed = collection.remove(stored, body if resource is PODS else None)
        self._effects.removed(resource, removed)
        return removed, True

    def _mark(self, stored: "Stored", resource: "ResourceType", grace_s: int) -> Json:
        """Return the object with a deletion timestamp."""
        body = stored.copy()
        marked = body["metadata"]
        now = self._clock.utc_now()
        if "deletionTimestamp" not in marked and resource.has_generation:
            marked["generation"] = marked["generation"] + 1
        marked["deletionTimestamp"] = metadata.timestamp(now + dt.timedelta(seconds=grace_s))
        marked["deletionGracePeriodSeconds"] = grace_s
        return body

    def _end_namespace(self, stored: "Stored") -> "tuple[Stored, bool]":
        body = stored.copy()
        body["metadata"]["deletionTimestamp"] = metadata.timestamp(self._clock.utc_now())
        body["status"] = {**body.get("status", {}), "phase": "Terminating"}
        collection = self._store.collection(NAMESPACES)
        marked = collection.replace(NAMESPACES, stored, body, ownership=stored.ownership)

        def delete(resource: "ResourceType", child: "Stored") -> None:
            # A namespace's end waits for no kubelet here; only finalizers hold an object.
            self._delete_now(resource, child, 0)

        self._effects.empty_namespace(stored.key[1], delete)
        return marked, False


def _check_preconditions(
    stored: "Stored", resource: "ResourceType", options: DeleteOptions
) -> None:
    name, uid = stored.key[1], stored.body["metadata"]["uid"]
    if options.uid is not None and options.uid != uid:
        raise conflict(
            resource.kind,
            name,
            f"the UID in the precondition ({options.uid}) does not match the UID in record ({uid}). "
            "The object might have been deleted and then recreated",
            group=resource.group,
        )
    if options.version is not None and options.version != str(stored.version):
        raise conflict(
            resource.kind,
            name,
            f"the ResourceVersion in the precondition ({options.version}) does not match the "
            f"ResourceVersion in record ({stored.version}). The object might have been modified",
            group=resource.group,
        )


def _answer(resource: "ResourceType", stored: "Stored", *, is_gone: bool) -> bytes:
    if resource.returns_deleted or not is_gone:
        return stored.encoded
    details: Json = {"name": stored.key[1]}
    if resource.group:
        details["group"] = resource.group
    details |= {"kind": resource.plural, "uid": stored.body["metadata"]["uid"]}
    return msgspec.json.encode(
        {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "details": details,
        }
    )
