"""A ValidatingAdmissionPolicy that refuses bindings of a replica which no longer leads.

A replica asks its clock whether it leads, and then sends a Binding. Between the two it may be stopped
for any time: by SIGSTOP, by a hypervisor, by a network that keeps the bytes back. When the Binding
arrives, another replica may have given the same card away. So every Binding with devices says under
which term it was decided, and the API server compares that with our GPUControlPlaneTerm as it knows it.

Why not with the Lease itself: its API server keeps the last Lease for ever once a policy that refers to
Leases was deleted and applied again (measured on 1.36), and no Binding would pass until that API server
is restarted. Objects of a CustomResourceDefinition are followed anew.

What is not fenced: a Binding without the annotation, as a server without leader election sends it.
Nobody but the server may write devices into a Binding at all (`manifests.policy`).
Which time this leaves open, and how it is bridged: docs/design/0004-high-availability.md.
"""

from typing import Any, Final

from api.gpucontrolplaneterm import GPUControlPlaneTerm
from api.names import API_VERSION, LEADER_ANNOTATION
from manifests import constants

_LEADER: Final = f"object.metadata.annotations['{LEADER_ANNOTATION}']"
_HOLDER: Final = "params.spec.holder + '/' + string(params.spec.number)"
_IS_OURS: Final = f"{_LEADER} == {_HOLDER}"
"""Stands in the condition too, so that a binding that passes is converted once: `manifests.policy`."""


def leadership_token(holder: str, number: int) -> str:
    """Return what the annotation says for a term; the policy puts the same together from the object."""
    return f"{holder}/{number}"


def build_fencing_policy(*, term: str = constants.LEASE_NAME) -> list[dict[str, Any]]:
    """Return the policy and its binding to our term. Without that object nothing fenced may pass."""
    metadata = {"name": constants.FENCING_POLICY, "labels": dict(constants.LABELS)}
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": metadata,
        "spec": {
            "failurePolicy": "Fail",
            "paramKind": {"apiVersion": API_VERSION, "kind": GPUControlPlaneTerm.__name__},
            "matchConstraints": {
                "matchPolicy": "Equivalent",
                "resourceRules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "scope": "Namespaced",
                        # `bindings` is a resource of its own, which `pods/*` does not cover.
                        "resources": ["pods/binding", "bindings"],
                    }
                ],
            },
            "matchConditions": [
                {
                    "name": "says-that-another-leads",
                    "expression": (
                        f"'{LEADER_ANNOTATION}' in object.metadata.?annotations.orValue({{}})"
                        f" && !({_IS_OURS})"
                    ),
                }
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
        },
    }
    binding = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": metadata,
        "spec": {
            "policyName": constants.FENCING_POLICY,
            "paramRef": {"name": term, "parameterNotFoundAction": "Deny"},
            "validationActions": ["Deny"],
        },
    }
    return [policy, binding]
