"""Conditions of the webhooks for kinds with pod templates: of all writes, those of templates that name a pool, or named one.

Templates with the annotation of access are sent too, though they name none: a LimitRange or another webhook may have
their pods ask for a pool, and then a copied annotation would count.

A write that leaves the templates as they are is not sent, whatever it names, but for a server-side apply: the same
manifest applied again renews what pods inherit. Every field may be absent in kinds of others, so none is read without a
default: an expression that fails refuses the write.
"""

from typing import TYPE_CHECKING, Final

from api import names

if TYPE_CHECKING:
    from api.workload_kinds import WorkloadKind

PLACE: Final = "PLACE"
_HAS_ACCESS: Final = f"{{0}}.?metadata.?annotations[?'{names.ACCESS_ANNOTATION}'].hasValue()"
NAMES_POOL: Final = (
    f"({PLACE}.?spec.?containers.orValue([]) + {PLACE}.?spec.?initContainers.orValue([])).exists(c,"
    f" c.?resources.?limits.orValue({{}}).exists(k, k.startsWith('{names.RESOURCE_PREFIX}'))"
    f" || c.?resources.?requests.orValue({{}}).exists(k, k.startsWith('{names.RESOURCE_PREFIX}')))"
    f" || {_HAS_ACCESS.format(PLACE)}"
)
IN_MEMBER: Final = (
    f"[{PLACE}.orValue([])].exists(l, (type(l) == list ? l : l.map(k, l[k])).exists(m, "
)
"""Begin of an expression about the members `m` of a list or a map."""
IN_MEMBER_END: Final = "))"
EITHER_NAMES: Final = (
    f"[object, oldObject].exists(o, o != null && ({_HAS_ACCESS.format('o')} || {{0}}))"
)
_UNLESS_STORED: Final = (
    # The API server takes `force` with a server-side apply alone, and clients always say it there.
    "oldObject == null || request.?options.?force.hasValue() || object.?{0} != oldObject.?{0}"
)
SPEC_CHANGED: Final = (
    f"{_UNLESS_STORED.format('spec')} || object.metadata.?annotations[?'{names.ACCESS_ANNOTATION}']"
    f" != oldObject.metadata.?annotations[?'{names.ACCESS_ANNOTATION}']"
)
"""What may concern a template of a kind of others, and what its pods inherit."""


def names_pool_expression(kind: "WorkloadKind") -> str:
    """Return an expression: a template of the object, or of the stored one, names a pool, or has an annotation of access."""
    return EITHER_NAMES.format(" || ".join(map(_in_template, kind.templates)))


def template_changed_expression(kind: "WorkloadKind") -> str:
    """Return an expression: the only template changes, or a client applies it."""
    (path,) = kind.templates
    return _UNLESS_STORED.format(path.replace(".", ".?"))


def _in_template(path: str) -> str:
    place, *members = f"o.{path}".replace(".", ".?").split(".?*")
    text = ""
    for beyond in members:
        text += IN_MEMBER.replace(PLACE, place)
        place = f"m{beyond}"
    return text + NAMES_POOL.replace(PLACE, place) + IN_MEMBER_END * len(members)
