"""Pod templates in an object: where they are, what is read of them, and what of them a change concerns.

Of the object nothing is decoded but the way to its templates, so that kinds of others need no model. A template is
compared as it is written: one API server writes the same twice, and another order of fields is a change at worst.
"""

from typing import TYPE_CHECKING, Final

import msgspec

from admission.decision import Denied
from admission.object_decoder import ObjectDecoder
from admission.pods.request import POD_BOUNDS, AdmittedPod, AdmittedSpec, PodRequest
from admission.review import GroupVersionKind
from admission.workload_access import WorkloadIdentity
from api.field_errors import UNDECODABLE
from api.meta import Model, ObjectMeta
from api.names import ACCESS_ANNOTATION
from api.text import pointer_token
from telemetry.reasons import RefusalReason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from admission.review import AdmissionRequest
    from api.workload_kinds import WorkloadKind

MAX_TEMPLATES: Final = 64
"""Templates of an object; a RayCluster has one for each group of workers."""
_EMPTY: Final = frozenset({b"null", b"{}", b"[]", b'""'})
_EVERY: Final = "*"
_ROOT: Final = ""
_ABSENT: Final = msgspec.Raw(b"null")


class _TooManyError(Exception):
    """The object has more than is read."""


class _Template(Model, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: AdmittedSpec = AdmittedSpec()


class _Object(Model, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


_KIND: Final = GroupVersionKind(kind="pod template")
_template_decoder: "Final[ObjectDecoder[_Template]]" = ObjectDecoder(
    _Template, _KIND, bounds=POD_BOUNDS
)
_object_decoder: "Final[ObjectDecoder[_Object]]" = ObjectDecoder(
    _Object, GroupVersionKind(kind="workload"), bounds=POD_BOUNDS
)
_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw] | list[msgspec.Raw])


class TemplatePlace(msgspec.Struct, frozen=True):
    """An object with metadata that pods copy, and the templates of these pods: a template itself, or a whole object."""

    pointer: str
    """JSON pointer of the object."""
    metadata: ObjectMeta
    has_metadata: bool
    pods: tuple[PodRequest, ...]
    content: tuple[object, ...]
    """All of the templates but the annotation of access."""

    @property
    def note(self) -> str | None:
        return self.metadata.annotation(ACCESS_ANNOTATION)


class Workload(msgspec.Struct, frozen=True):
    """An object with pod templates."""

    identity: WorkloadIdentity
    metadata: ObjectMeta
    places: tuple[TemplatePlace, ...]


def read_workload(
    raw: msgspec.Raw, request: "AdmissionRequest", kind: "WorkloadKind"
) -> Workload | Denied:
    """Return the object with its templates, or why it cannot be read. Never raises."""
    found = _object_decoder.decode(raw)
    if isinstance(found, Denied):
        return found
    try:
        templates = [
            template for path in kind.templates for template in _templates(raw, path.split("."))
        ]
        _bound(len(templates), "the object", "pod templates")
        places = [_place(pointer, template, request) for pointer, template in templates]
    except _TooManyError as error:
        return Denied(RefusalReason.TOO_LARGE, str(error))
    except UNDECODABLE as error:
        text = f"the object cannot be read as {request.kind}: {error}"
        return Denied(RefusalReason.MALFORMED_REQUEST, text)
    read = [place for place in places if isinstance(place, TemplatePlace)]
    for place in places:
        if isinstance(place, Denied):
            return place
    meta = found.metadata
    return Workload(
        identity=WorkloadIdentity(
            group=kind.group,
            kind=kind.kind,
            name=meta.name or request.name or f"{meta.generate_name}*",
            uid=meta.uid,
        ),
        metadata=meta,
        places=(_whole(meta, read),) if kind.is_annotated else tuple(read),
    )


def _bound(count: int, what: str, parts: str) -> None:
    if count > MAX_TEMPLATES:
        raise _TooManyError(f"{what} has {count} {parts}, at most {MAX_TEMPLATES} are read")


def _templates(
    raw: msgspec.Raw, path: list[str], pointer: str = _ROOT
) -> "Iterator[tuple[str, msgspec.Raw]]":
    """Yield pointer and text of what the path leads to; nothing where a part of it is absent."""
    if not path:
        yield pointer, raw
        return
    part, *beyond = path
    members = _members.decode(raw)
    if part == _EVERY:
        _bound(len(members), pointer, "members")
    if isinstance(members, list):
        members = {str(number): member for number, member in enumerate(members)}
    named = members.items() if part == _EVERY else [(part, members.get(part, _ABSENT))]
    for name, member in named:
        if member != _ABSENT:
            yield from _templates(member, beyond, f"{pointer}/{pointer_token(name)}")


def _place(pointer: str, raw: msgspec.Raw, request: "AdmissionRequest") -> TemplatePlace | Denied:
    template = _template_decoder.decode(raw)
    if isinstance(template, Denied):
        return template
    fields = _fields.decode(raw)
    metadata = fields.pop("metadata", _ABSENT)
    return TemplatePlace(
        pointer=pointer,
        metadata=template.metadata,
        has_metadata=metadata != _ABSENT,
        pods=(PodRequest(request, AdmittedPod(metadata=template.metadata, spec=template.spec)),),
        content=(pointer, fields, _without_note(metadata)),
    )


def _whole(metadata: ObjectMeta, templates: list[TemplatePlace]) -> TemplatePlace:
    return TemplatePlace(
        pointer=_ROOT,
        metadata=metadata,
        has_metadata=True,
        pods=tuple(pod for template in templates for pod in template.pods),
        content=tuple(template.content for template in templates),
    )


def _without_note(metadata: msgspec.Raw) -> dict[str, object]:
    """Return the fields of a template's metadata as bytes; those without a value, which some versions write, are none."""
    fields = _valued(metadata)
    annotations = _valued(fields.pop("annotations", _ABSENT))
    annotations.pop(ACCESS_ANNOTATION, None)
    return {**fields, "annotations": annotations}


def _valued(raw: msgspec.Raw) -> dict[str, msgspec.Raw]:
    if raw == _ABSENT:
        return {}
    return {key: value for key, value in _fields.decode(raw).items() if bytes(value) not in _EMPTY}
