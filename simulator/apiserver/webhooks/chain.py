"""Admission webhooks: the stored configurations, called over HTTPS as the API server calls them.

Mutating webhooks run one after the other, in the order of configuration names and then of the list;
`IfNeeded` ones run again after a later one changed the object. Validating webhooks run together.
"""

import asyncio
import base64
import binascii
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final

import msgspec

from api.meta import LabelSelector
from simulator.apiserver import cel_evaluator
from simulator.apiserver import patch as patching
from simulator.apiserver.errors import StatusError, forbidden, internal
from simulator.apiserver.resource_types import (
    MUTATING_CONFIGURATIONS,
    NAMESPACES,
    VALIDATING_CONFIGURATIONS,
)
from simulator.apiserver.webhooks.caller import WebhookCaller, WebhookCallError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from simulator.apiserver.resource_types import ResourceType
    from simulator.apiserver.store.objects import ObjectStore

Json = dict[str, Any]

_UNGUARDED: Final = frozenset({MUTATING_CONFIGURATIONS.plural, VALIDATING_CONFIGURATIONS.plural})
"""No webhook is called for these, so that a broken one can be removed."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """The user of a request."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""

    @property
    def info(self) -> Json:
        groups = [*self.groups]
        if "system:authenticated" not in groups:
            groups.append("system:authenticated")
        info: Json = {"username": self.name, "groups": groups}
        if self.uid:
            info["uid"] = self.uid
        return info


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionAttributes:
    """All parts of an admission request except the object."""

    resource: "ResourceType"
    operation: str
    namespace: str
    name: str
    subresource: str = ""
    user: User
    dry_run: bool = False
    old: Json | None = None
    kind: "tuple[str, str, str] | None" = None
    """Group, version and kind of the body where it is not the resource's: a Binding, say."""
    warnings: list[str] = field(default_factory=list)
    """Grows as webhooks answer."""

    def request(self, body: Json | None) -> Json:
        """Return the AdmissionReview's `request`, with a new uid."""
        resource = self.resource
        group, version, kind = self.kind or (resource.group, resource.version, resource.kind)
        named_kind = {"group": group, "version": version, "kind": kind}
        named_resource = {
            "group": resource.group,
            "version": resource.version,
            "resource": resource.plural,
        }
        request: Json = {
            "uid": str(uuid.uuid4()),
            "kind": named_kind,
            "resource": named_resource,
            "requestKind": named_kind,
            "requestResource": named_resource,
            "operation": self.operation,
            "userInfo": self.user.info,
            "object": body,
            "oldObject": self.old,
            "dryRun": self.dry_run,
        }
        if self.subresource:
            request["subResource"] = request["requestSubResource"] = self.subresource
        if self.namespace:
            request["namespace"] = self.namespace
        if name := self.name or ((body or {}).get("metadata") or {}).get("name", ""):
            request["name"] = name
        return request


@final
class AdmissionChain:
    """Calls webhooks for a write. `open` before the first call, `close` after the last one."""

    def __init__(
        self,
        store: "ObjectStore",
        services: "Mapping[str, str]",
    ) -> None:
        self._store = store
        self._caller = WebhookCaller(services)

    def open(self) -> None:
        self._caller.open()

    async def close(self) -> None:
        await self._caller.close()

    async def mutate(self, attributes: AdmissionAttributes, body: Json) -> Json:
        """Return the object after all mutating webhooks; the given one is not changed.

        Raises:
            StatusError: a webhook denied it, or failed and its failure policy is Fail.
        """
        webhooks = list(self._webhooks(MUTATING_CONFIGURATIONS, attributes))
        invoked: set[int] = set()
        again: set[int] = set()
        for is_second_pass in (False, True):
            for index, webhook in enumerate(webhooks):
                if is_second_pass and index not in again:
                    continue
                if not self._is_for(webhook, attributes, body):
                    continue
                changed = await self._mutate_by(webhook, attributes, body)
                if changed != body:
                    again |= invoked
                    invoked = set()
                    body = changed
                if webhook.get("reinvocationPolicy") == "IfNeeded":
                    invoked.add(index)
        return body

    async def validate(self, attributes: AdmissionAttributes, body: Json | None) -> None:
        """Call all validating webhooks.

        Raises:
            StatusError: one of them denied it, or failed and its failure policy is Fail.
        """
        webhooks = [
            webhook
            for webhook in self._webhooks(VALIDATING_CONFIGURATIONS, attributes)
            if self._is_for(webhook, attributes, body)
        ]
        if not webhooks:
            return
        faults: list[StatusError] = []

        async def ask(webhook: Json) -> None:
            try:
                await self._ask(webhook, attributes, body)
            except StatusError as fault:
                faults.append(fault)

        async with asyncio.TaskGroup() as group:
            for webhook in webhooks:
                group.create_task(ask(webhook))
        if faults:
            raise faults[0]

    def _webhooks(
        self, configurations: "ResourceType", attributes: AdmissionAttributes
    ) -> "Iterator[Json]":
        if attributes.resource.plural in _UNGUARDED:
            return
        stored = sorted(self._store.collection(configurations).all(), key=lambda item: item.key)
        for configuration in stored:
            for webhook in configuration.body.get("webhooks") or ():
                if _matches_rules(
                    webhook,
                    attributes.resource,
                    subresource=attributes.subresource,
                    operation=attributes.operation,
                ):
                    yield webhook

    def _is_for(self, webhook: Json, attributes: AdmissionAttributes, body: Json | None) -> bool:
        """Return whether selectors and match conditions select the request for the webhook."""
        if not _selects(webhook.get("namespaceSelector"), self._namespace_labels(attributes, body)):
            return False
        selector = webhook.get("objectSelector")
        bodies = [item for item in (body, attributes.old) if item is not None]
        if not any(_selects(selector, _labels(item)) for item in bodies):
            return False
        conditions = [item["expression"] for item in webhook.get("matchConditions") or ()]
        return not conditions or _meets_all(conditions, webhook, attributes, body=body)

    def _namespace_labels(
        self, attributes: AdmissionAttributes, body: Json | None
    ) -> "Mapping[str, str]":
        if attributes.resource is NAMESPACES:
            return _labels(body if body is not None else attributes.old or {})
        if not attributes.namespace:
            return {}
        namespace = self._store.collection(NAMESPACES).get("", attributes.namespace)
        return _labels(namespace.body) if namespace else {}

    async def _mutate_by(self, webhook: Json, attributes: AdmissionAttributes, body: Json) -> Json:
        response = await self._ask(webhook, attributes, body)
        patch = response.get("patch")
        if not patch:
            return body
        if response.get("patchType") != "JSONPatch":
            raise internal(
                f'webhook returned response.patch but not response.patchType "JSONPatch": '
                f"{response.get('patchType', '')!r}"
            )
        try:
            operations = msgspec.json.decode(base64.b64decode(patch, validate=True))
            patched = patching.apply_operations(body, operations)
        except (
            binascii.Error,
            msgspec.DecodeError,
            patching.PatchError,
        ) as error:
            raise internal(str(error)) from error
        if not isinstance(patched, dict):
            raise internal("the patch left no object")
        return patched

    async def _ask(self, webhook: Json, attributes: AdmissionAttributes, body: Json | None) -> Json:
        """Return the webhook's response; empty if a failure is ignored.

        Raises:
            StatusError: denied, or failed with failure policy Fail.
        """
        request = attributes.request(body)
        try:
            response = await self._caller.call(webhook, request)
        except WebhookCallError as error:
            if webhook.get("failurePolicy") == "Ignore":
                return {}
            raise internal(f'failed calling webhook "{webhook["name"]}": {error}') from error
        attributes.warnings.extend(response.get("warnings") or ())
        if not response["allowed"]:
            raise _denial(webhook["name"], response.get("status") or {})
        return response


def _meets_all(
    expressions: list[str], webhook: Json, attributes: AdmissionAttributes, *, body: Json | None
) -> bool:
    """Return whether all match conditions hold; a false one outweighs failing ones.

    Raises:
        StatusError: one fails, none is false, and the failure policy is Fail.
    """
    request = attributes.request(body)
    variables = {"object": body, "oldObject": attributes.old, "request": request}
    failures: list[str] = []
    for expression in expressions:
        try:
            if not cel_evaluator.holds(expression, variables):
                return False
        except cel_evaluator.CelError as error:
            failures.append(str(error))
    if not failures:
        return True
    if webhook.get("failurePolicy") == "Ignore":
        return False
    name = attributes.name or _name(body)
    raise forbidden(attributes.resource, name, ", ".join(failures))


def _labels(body: "Mapping[str, Any]") -> "Mapping[str, str]":
    return (body.get("metadata") or {}).get("labels") or {}


def _name(body: Json | None) -> str:
    name: str = ((body or {}).get("metadata") or {}).get("name", "")
    return name


def _denial(webhook_name: str, status: Json) -> StatusError:
    code = status.get("code") or 0
    message = status.get("message") or status.get("reason")
    text = f'admission webhook "{webhook_name}" denied the request'
    return StatusError(
        max(code, 400),
        status.get("reason") or "",
        f"{text}: {message}" if message else f"{text} without explanation",
        details=status.get("details"),
    )


def _matches_rules(
    webhook: Json, resource: "ResourceType", *, subresource: str, operation: str
) -> bool:
    """Return whether a rule of the webhook names this kind and operation."""
    path = f"{resource.plural}/{subresource}" if subresource else resource.plural
    scope = "Namespaced" if resource.namespaced else "Cluster"
    return any(
        _has(rule.get("operations"), operation)
        and _has(rule.get("apiGroups"), resource.group)
        and _has(rule.get("apiVersions"), resource.version)
        and rule.get("scope", "*") in {"*", scope}
        and any(_is_path(item, path) for item in rule.get("resources") or ())
        for rule in webhook.get("rules") or ()
    )


def _has(values: list[str] | None, requested: str) -> bool:
    return values is not None and not {requested, "*"}.isdisjoint(values)


def _is_path(pattern: str, path: str) -> bool:
    """Compare as Kubernetes does: `*` is every main resource, `*/*` everything."""
    plural, _, subresource = path.partition("/")
    plural_pattern, slash, subresource_pattern = pattern.partition("/")
    if plural_pattern not in {"*", plural}:
        return False
    if not slash:
        return not subresource
    # `pods/*` is pods and all their subresources.
    return subresource_pattern in {"*", subresource}


def _selects(selector: "Mapping[str, Any] | None", labels: "Mapping[str, str]") -> bool:
    """Return whether a label selector selects these labels; without one, all match."""
    return not selector or msgspec.convert(selector, LabelSelector).matches(labels)
