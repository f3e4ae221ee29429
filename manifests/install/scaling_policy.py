"""Rules for the server's writes of autoscaling: signal pods of its namespace, and NodeClaims without devices.

RBAC cannot limit the creation of pods by their content. A token that may create pods in a namespace can run anything
there, with the rights of any of its accounts; these rules leave it a pod that no scheduler binds.
"""

from typing import Final

from api import names
from api.foreign.karpenter import INITIALIZED
from manifests.install.policy_expressions import unchanged_except
from manifests.install.webhooks import NAMES_POOL_EXPRESSION

_IS_SIGNAL: Final = (
    "{0}.metadata.?labels[?'" + names.COMPONENT_LABEL + f"'].orValue('') == '{names.SCALE_SIGNAL}'"
)
IS_OWN_SIGNAL: Final = (
    _IS_SIGNAL.format("object")
    + " && request.userInfo.username.startsWith('system:serviceaccount:' + request.namespace + ':')"
)
"""A signal in the namespace of the account that writes it."""

_GATES: Final = "dyn({0}).spec.?schedulingGates.orValue([])"
LEAVES_POD_SPEC: Final = (
    "(dyn(object).spec == dyn(oldObject).spec"
    f" || {unchanged_except('spec', ('schedulingGates',))}"
    f" && {_GATES.format('object')}"
    f" == {_GATES.format('oldObject')}.filter(g, g.name != '{names.CAPACITY_GATE}'))"
)
"""An update leaves the spec of a pod, or removes our gate."""

_SPEC: Final = "dyn(object).spec"
_HARMLESS_CONTAINERS: Final = (
    f"{_SPEC}.containers.all(c, c.?securityContext.?allowPrivilegeEscalation.orValue(true) == false"
    " && !c.?securityContext.?privileged.orValue(false)"
    " && 'ALL' in c.?securityContext.?capabilities.?drop.orValue([])"
    " && c.?securityContext.?capabilities.?add.orValue([]).size() == 0"
    " && c.?ports.orValue([]).size() == 0)"
)
_HARMLESS_POD: Final = " && ".join(
    (
        f"({_SPEC}.?schedulerName.orValue('') == '{names.SIGNAL_SCHEDULER}' || {_SPEC}.?priority.orValue(0) < 0)",
        f"{_SPEC}.?nodeName.orValue('') == ''",
        f"!{_SPEC}.?automountServiceAccountToken.orValue(true)",
        *(f"!{_SPEC}.?{field}.orValue(false)" for field in ("hostNetwork", "hostPID", "hostIPC")),
        f"{_SPEC}.?volumes.orValue([]).size() == 0",
        f"{_SPEC}.?initContainers.orValue([]).size() == 0",
        _HARMLESS_CONTAINERS,
    )
)


def signal_rules(exception: str = "") -> list[dict[str, str]]:
    """Return the rules for pods that the server creates and deletes in its namespace.

    `exception` is an expression under which it deletes another pod.
    """
    excepted = f" || {exception}" if exception else ""
    is_labelled = _IS_SIGNAL.format("one")
    names_pool = NAMES_POOL_EXPRESSION.replace("object.", "dyn(object).")
    return [
        {
            "expression": (
                f"request.resource.resource != 'pods'{excepted}"
                f" || [object, oldObject].filter(one, one != null).all(one, {is_labelled})"
            ),
            "message": (
                "the GPU control plane creates and deletes no pod of its namespace but those with the label"
                f" {names.COMPONENT_LABEL}: {names.SCALE_SIGNAL}"
                + (", and those of DaemonSets of a ClusterPolicy" if exception else "")
            ),
            "reason": "Forbidden",
        },
        {
            "expression": f"request.resource.resource != 'pods' || object == null || {_HARMLESS_POD}",
            "message": (
                f"a pod that asks for a node has the scheduler {names.SIGNAL_SCHEDULER} or a priority below 0, no token,"
                " volume, host namespace, port or init container, and no privilege"
            ),
            "reason": "Forbidden",
        },
        {
            "expression": f"request.resource.resource != 'pods' || object == null || !({names_pool})",
            "message": f"a pod that asks for a node requests no {names.RESOURCE_PREFIX}<pool>",
            "reason": "Forbidden",
        },
    ]


def node_claim_rule() -> dict[str, str]:
    """Return the rule for NodeClaims: a node that was asked for, and that no pod can use yet, may be given up."""
    conditions = "dyn(oldObject).?status.?conditions.orValue([])"
    return {
        "expression": (
            "request.resource.resource != 'nodeclaims'"
            f" || oldObject.metadata.?labels[?'{names.SCALE_REQUEST_LABEL}'].hasValue()"
            f" && !{conditions}.exists(c, c.type == '{INITIALIZED}' && c.status == 'True')"
        ),
        "message": (
            f"the GPU control plane deletes no NodeClaim but those with the label {names.SCALE_REQUEST_LABEL} whose node is"
            " not initialized"
        ),
        "reason": "Forbidden",
    }
