"""Two ValidatingAdmissionPolicies that refuse Bindings of a replica which no longer leads.

A replica checks its clock for leadership, and then sends a Binding. Between the two it may be
stopped for any time: by SIGSTOP, by a hypervisor, by a network that delays the bytes. When the
Binding arrives, another replica may have allocated the same device. Every Binding with devices
therefore names the term under which it was decided, and the API server compares it with its
GPUControlPlaneTerm.

The Lease itself does not serve: its API server keeps the last Lease for ever once a policy that
refers to Leases was deleted and applied again (measured on 1.36), and no Binding would pass until
that API server restarts. Objects of a CustomResourceDefinition are watched again.

The API server resolves the parameter before it evaluates a condition, and refuses the request if
there is none. Without a term, or without the kind, it would so refuse every Binding in the cluster,
including that of the control plane's own pod, which alone can write the term. Only
`matchConstraints` are evaluated earlier. Our Bindings therefore carry a label, by which the policy
with the parameter selects; a second policy without a parameter ensures that no Binding names a term
without the label.

Not covered: a Binding without the annotation, as a server without leader election sends it. Only
the server may write devices into a Binding at all (`manifests.install.annotation_policy`). The
remaining window, and how it is bridged: docs/design/0004-high-availability.md.
"""

from typing import Any, Final

from api.kinds.leadershipterm import GPUControlPlaneTerm
from api.names import API_VERSION, FENCED, FENCED_LABEL, LEADER_ANNOTATION
from manifests import constants

_RESOURCE_RULES: Final = (
    {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "scope": "Namespaced",
        # `bindings` is a resource of its own, which `pods/*` does not cover.
        "resources": ["pods/binding", "bindings"],
    },
)
_NAMES_TERM: Final = f"'{LEADER_ANNOTATION}' in object.metadata.?annotations.orValue({{}})"
_LEADER: Final = f"object.metadata.annotations['{LEADER_ANNOTATION}']"
_HOLDER: Final = "params.spec.holder + '/' + string(params.spec.number)"
_IS_OURS: Final = f"{_LEADER} == {_HOLDER}"
"""Repeated in the condition, so that a Binding that passes is converted once: `manifests.install.annotation_policy`."""


def leadership_token(holder: str, number: int) -> str:
    """Return the annotation's value for a term; the policy builds the same from the object."""
    return f"{holder}/{number}"


def build_fencing_policies(*, term: str = constants.LEASE_NAME) -> list[dict[str, Any]]:
    """Return the policies and their bindings. Without the term, no Binding that names one passes."""
    compared = {
        # A failure, above all a missing term, may stop our own Bindings only.
        "failurePolicy": "Fail",
        "paramKind": {"apiVersion": API_VERSION, "kind": GPUControlPlaneTerm.__name__},
        "matchConstraints": {
            "matchPolicy": "Equivalent",
            "objectSelector": {"matchLabels": {FENCED_LABEL: FENCED}},
            "resourceRules": [dict(rule) for rule in _RESOURCE_RULES],
        },
        "matchConditions": [
            {"name": "says-that-another-leads", "expression": f"{_NAMES_TERM} && !({_IS_OURS})"}
        ],
        "validations": [
            {
                "expression": _IS_OURS,
                "messageExpression": (
                    f"'decided by ' + {_LEADER} + ', but the GPU control plane is led by ' + {_HOLDER}"
                ),
                "reason": "Forbidden",
            }
        ],
    }
    labelled = {
        # None of its expressions can fail, so it stops no other Binding. Without it, a server that
        # leaves the label out would not be restricted at all.
        "failurePolicy": "Fail",
        "matchConstraints": {
            "matchPolicy": "Equivalent",
            # A Binding with the label breaks no rule here. Selected, each of ours was converted four times.
            "objectSelector": {
                "matchExpressions": [{"key": FENCED_LABEL, "operator": "NotIn", "values": [FENCED]}]
            },
            "resourceRules": [dict(rule) for rule in _RESOURCE_RULES],
        },
        "matchConditions": [{"name": "names-a-term", "expression": _NAMES_TERM}],
        "validations": [
            {
                "expression": f"object.metadata.?labels[?'{FENCED_LABEL}'].orValue('') == '{FENCED}'",
                "message": (
                    f"a Binding with the annotation {LEADER_ANNOTATION} needs the label"
                    f" {FENCED_LABEL}={FENCED}: is the GPU control plane older than its policies?"
                ),
                "reason": "Forbidden",
            }
        ],
    }
    return [
        _policy(constants.FENCING_POLICY, compared),
        _binding(
            constants.FENCING_POLICY,
            {"paramRef": {"name": term, "parameterNotFoundAction": "Deny"}},
        ),
        _policy(constants.FENCED_POLICY, labelled),
        _binding(constants.FENCED_POLICY, {}),
    ]


def _policy(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name, "labels": dict(constants.LABELS)},
        "spec": spec,
    }


def _binding(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name, "labels": dict(constants.LABELS)},
        "spec": {"policyName": name, **spec, "validationActions": ["Deny"]},
    }
