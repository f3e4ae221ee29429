"""Create, update and apply: a write through defaults, admission, validation and the store.

A write decides on a copy, awaits admission, and then commits in one synchronous step that fails if
the object has changed meanwhile; a writer that named no version is then run again on the newer
object.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

import msgspec

from simulator.apiserver import metadata
from simulator.apiserver.apply import application as applying
from simulator.apiserver.apply import ownership
from simulator.apiserver.apply.ownership import Manager, Ownership
from simulator.apiserver.errors import (
    already_exists,
    bad_request,
    conflict,
    failed_without_reason,
    forbidden,
    invalid_object,
    not_found,
    stale,
)
from simulator.apiserver.resource_types import NAMESPACES, PODS, PRIORITY_CLASSES
from simulator.apiserver.schema.fields import Difference, ownable
from simulator.apiserver.store.objects import encode
from simulator.apiserver.strategies import pod
from simulator.apiserver.strategies.table import strategy_of
from simulator.apiserver.webhooks.chain import AdmissionAttributes
from simulator.apiserver.write import transitions
from simulator.apiserver.write.request_body import adopt, check_uid, drop_unknown_fields

if TYPE_CHECKING:
    from collections.abc import Callable

    from api.clock import Clock
    from simulator.apiserver.resource_types import ResourceType
    from simulator.apiserver.store.objects import ObjectStore, Stored
    from simulator.apiserver.webhooks.chain import AdmissionChain
    from simulator.apiserver.write.effects import Effects
    from simulator.apiserver.write.request_body import Caller, RequestTarget

Json = dict[str, Any]

_ATTEMPTS: Final = 5
"""Attempts: as many as the real server makes for a patch that names no version."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class WriteResult:
    status: int
    encoded: bytes


class _OvertakenError(Exception):
    """Another write changed the object during admission."""


@final
class Writer:
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

    def now(self) -> str:
        return metadata.timestamp(self._clock.utc_now())

    async def create(
        self, target: "RequestTarget", caller: "Caller", body: Json, *, config: Json | None = None
    ) -> WriteResult:
        """Store a new object.

        Args:
            target: the collection.
            caller: who writes.
            body: the object; the store takes ownership.
            config: the configuration, where the object comes from an apply.

        Raises:
            StatusError: it is refused.
        """
        resource = target.resource
        if body["metadata"].get("resourceVersion"):
            raise bad_request("resourceVersion should not be set on objects to be created")
        self._check_namespace(target, body)
        for key in ("uid", "creationTimestamp"):
            body["metadata"].pop(key, None)
        self._conform(body, target, caller, old=None, is_applied=config is not None)
        attributes = AdmissionAttributes(
            resource=resource,
            operation="CREATE",
            namespace=target.namespace,
            name=body["metadata"].get("name", ""),
            user=caller.user,
            dry_run=caller.dry_run,
            warnings=caller.warnings,
        )
        mutated = await self._admission.mutate(attributes, body)
        if mutated is not body:
            body = adopt(mutated, target)
            self._conform(body, target, caller, old=None)
        now = self.now()
        metadata.fill_new(body, resource, now)
        strategy_of(resource).begin(body, now)
        self._check_rules(body, resource, None)
        await self._admission.validate(attributes, body)
        owners = self._first_owners(target, caller, body, config=config, now=now)
        return self._add(resource, caller, body, owners=owners)

    def _first_owners(
        self,
        target: "RequestTarget",
        caller: "Caller",
        body: Json,
        *,
        config: Json | None,
        now: str,
    ) -> Ownership:
        resource = target.resource
        if config is None:
            manager = _updating(target, caller)
            return ownership.of_new(
                manager, body, resource.shape, now=now, has_status=not resource.has_status
            )
        application = self._application(target, caller, config, forced=True)
        return applying.apply(application, {}, Ownership())[1]

    def _add(
        self, resource: "ResourceType", caller: "Caller", body: Json, *, owners: Ownership
    ) -> WriteResult:
        collection = self._store.collection(resource)
        name = body["metadata"]["name"]
        if caller.dry_run:
            if collection.get(body["metadata"].get("namespace", ""), name) is not None:
                raise already_exists(resource, name)
            return WriteResult(status=201, encoded=encode(body, owners))
        stored = collection.add(resource, body, owners)
        self._effects.stored(resource, stored)
        return WriteResult(status=201, encoded=stored.encoded)

    async def replace(self, target: "RequestTarget", caller: "Caller", body: Json) -> WriteResult:
        """Replace an object by the one of a PUT.

        Raises:
            StatusError: it is refused.
        """

        def change(stored: "Stored") -> tuple[Json, Ownership | None]:
            metadata.check_preconditions(body, stored, target.resource)
            return {**body, "metadata": dict(body["metadata"])}, None

        return await self._update(target, caller, change)

    async def patch(
        self, target: "RequestTarget", caller: "Caller", transform: "Callable[[Json], Json]"
    ) -> WriteResult:
        """Change an object by a function of its present state.

        Raises:
            StatusError: it is refused.
        """
        resource = target.resource

        def change(stored: "Stored") -> tuple[Json, Ownership | None]:
            body = adopt(transform(stored.copy()), target)
            metadata.check_version(body, stored, resource)
            return body, None

        return await self._update(target, caller, change)

    async def apply(
        self, target: "RequestTarget", caller: "Caller", config: Json, *, forced: bool
    ) -> WriteResult:
        """Apply a configuration (server-side apply); a missing object is created.

        Raises:
            StatusError: it is refused, or conflicts with other managers.
        """
        resource = target.resource
        fault = resource.schema.typed_fault(config) if resource.schema else None
        if fault:
            at = f"{target.namespace}/{target.name}"
            raise failed_without_reason(
                f"failed to create typed patch object ({at}; {resource.api_version}, "
                f"Kind={resource.kind}): {fault}"
            )
        config = adopt(config, target)
        if self._store.collection(resource).get(target.namespace, target.name) is None:
            if target.subresource:
                raise not_found(resource, target.name)
            if uid := config["metadata"].get("uid"):
                raise conflict(
                    resource.plural,
                    target.name,
                    f"uid mismatch: the provided object specified uid {uid}, and no existing object "
                    "was found",
                    group=resource.group,
                )
            body = msgspec.json.decode(msgspec.json.encode(config))
            return await self.create(target, caller, body, config=config)
        application = self._application(target, caller, config, forced=forced)

        def change(stored: "Stored") -> tuple[Json, Ownership | None]:
            metadata.check_version(config, stored, resource)
            body, owners = applying.apply(application, stored.copy(), stored.ownership)
            if not resource.is_custom:
                body = applying.without_nulls(body)
            if uid := config["metadata"].get("uid"):
                body["metadata"] = {**body["metadata"], "uid": uid}
            return body, owners

        return await self._update(target, caller, change)

    def _application(
        self, target: "RequestTarget", caller: "Caller", config: Json, *, forced: bool
    ) -> applying.Application:
        resource = target.resource
        part = dict(config)
        if target.subresource == "status":
            part = {key: part[key] for key in ("status",) if key in part}
        elif resource.has_status:
            part.pop("status", None)
        manager = Manager(
            name=caller.manager,
            operation="Apply",
            api_version=resource.api_version,
            subresource=target.subresource,
        )
        return applying.Application(
            config=part, manager=manager, forced=forced, shape=resource.shape, now=self.now()
        )

    async def _update(
        self,
        target: "RequestTarget",
        caller: "Caller",
        change: "Callable[[Stored], tuple[Json, Ownership | None]]",
    ) -> WriteResult:
        for _ in range(_ATTEMPTS):
            stored = self._store.collection(target.resource).get(target.namespace, target.name)
            if stored is None:
                raise not_found(target.resource, target.name)
            body, owners = change(stored)
            try:
                return await self._update_once(target, caller, stored, body=body, owners=owners)
            except _OvertakenError:
                continue
        raise stale(target.resource, target.name)

    async def _update_once(
        self,
        target: "RequestTarget",
        caller: "Caller",
        stored: "Stored",
        *,
        body: Json,
        owners: Ownership | None,
    ) -> WriteResult:
        resource = target.resource
        # A copy, because parts of it become parts of the new object.
        old = stored.copy()
        body = transitions.isolate(body, old, target)
        check_uid(body, old, resource)
        self._conform(body, target, caller, old=old, is_applied=owners is not None)
        attributes = AdmissionAttributes(
            resource=resource,
            operation="UPDATE",
            namespace=target.namespace,
            name=target.name,
            subresource=target.subresource,
            user=caller.user,
            dry_run=caller.dry_run,
            old=old,
            warnings=caller.warnings,
        )
        mutated = await self._admission.mutate(attributes, body)
        if mutated is not body:
            body = transitions.isolate(adopt(mutated, target), old, target)
            self._conform(body, target, caller, old=old)
        transitions.move_generation(body, old, resource)
        self._check_rules(body, resource, old)
        await self._admission.validate(attributes, body)
        now = self.now()
        if owners is None:
            difference = Difference(ownable(old), ownable(body), resource.shape)
            owners = stored.ownership.after_update(_updating(target, caller), difference, now)
        return self._commit(target, caller, stored, body=body, owners=owners)

    def _commit(
        self,
        target: "RequestTarget",
        caller: "Caller",
        stored: "Stored",
        *,
        body: Json,
        owners: Ownership,
    ) -> WriteResult:
        resource = target.resource
        collection = self._store.collection(resource)
        if collection.get(*stored.key) is not stored:
            raise _OvertakenError
        body["metadata"]["resourceVersion"] = stored.body["metadata"]["resourceVersion"]
        if body == stored.body and owners == stored.ownership:
            return WriteResult(status=200, encoded=stored.encoded)
        if caller.dry_run:
            return WriteResult(status=200, encoded=encode(body, owners))
        if transitions.is_finished(body):
            removed = collection.remove(stored, body)
            self._effects.removed(resource, removed)
            return WriteResult(status=200, encoded=removed.encoded)
        replaced = collection.replace(resource, stored, body, ownership=owners)
        self._effects.stored(resource, replaced)
        return WriteResult(status=200, encoded=replaced.encoded)

    def _check_namespace(self, target: "RequestTarget", body: Json) -> None:
        """Refuse a new object in a missing or terminating namespace."""
        if not target.resource.namespaced:
            return
        namespace = self._store.collection(NAMESPACES).get("", target.namespace)
        if namespace is None:
            raise not_found(NAMESPACES, target.namespace)
        if namespace.body["metadata"].get("deletionTimestamp"):
            raise forbidden(
                target.resource,
                body["metadata"].get("name", ""),
                f"unable to create new content in namespace {target.namespace} because it is being "
                "terminated",
                causes=[
                    {
                        "reason": "NamespaceTerminating",
                        "message": f"namespace {target.namespace} is being terminated",
                        "field": "metadata.namespace",
                    }
                ],
            )

    def _conform(
        self,
        body: Json,
        target: "RequestTarget",
        caller: "Caller",
        *,
        old: Json | None,
        is_applied: bool = False,
    ) -> None:
        """Prune and default in place; the second time for changes of webhooks."""
        resource = target.resource
        drop_unknown_fields(body, resource, caller)
        strategy = strategy_of(resource)
        strategy.check(body)
        if is_applied and resource.schema is not None:
            resource.schema.default(body, is_applied=True)
        else:
            strategy.default(body)
        if resource is PODS and old is None:
            pod.assign_priority(body, self._priority_class)
        if old is not None:
            metadata.keep_system_fields(body, old)

    def _priority_class(self, name: str) -> Json | None:
        classes = self._store.collection(PRIORITY_CLASSES)
        if name:
            found = classes.get("", name)
            return found.body if found else None
        return next(
            (class_.body for class_ in classes.all() if class_.body.get("globalDefault")), None
        )

    def _check_rules(self, body: Json, resource: "ResourceType", old: Json | None) -> None:
        errors = [
            *metadata.validate(body, resource, old),
            *strategy_of(resource).validate(body, old),
        ]
        if errors:
            raise invalid_object(resource, body["metadata"].get("name", ""), errors)


def _updating(target: "RequestTarget", caller: "Caller") -> Manager:
    return Manager(
        name=caller.manager,
        operation="Update",
        api_version=target.resource.api_version,
        subresource=target.subresource,
    )
