"""Launches that fail for lack of capacity, with an unmodified Karpenter.

Its kwok provider reports insufficient capacity for a NodeClaim whose node class does not exist, so a
MutatingAdmissionPolicy gives the new NodeClaims of a NodePool such a node class.
"""

from typing import TYPE_CHECKING, Final

from tests.cluster.environment import client, karpenter, polling

if TYPE_CHECKING:
    from tests.cluster.environment.client import JsonObject

_API: Final = "/apis/admissionregistration.k8s.io/v1"
_POLICIES: Final = f"{_API}/mutatingadmissionpolicies"
_BINDINGS: Final = f"{_API}/mutatingadmissionpolicybindings"
_ABSENT: Final = "without-capacity"
"""Name of a node class that does not exist."""


async def take_capacity(api: client.ApiClient, node_pool: str) -> None:
    """Let all launches for a NodePool fail; returns when they do."""
    name = _name(node_pool)
    await api.create(_POLICIES, _policy(node_pool))
    await api.create(
        _BINDINGS,
        {"metadata": {"name": name}, "spec": {"policyName": name}},
    )
    await _until(api, node_pool, _ABSENT)


async def give_capacity(api: client.ApiClient, node_pool: str) -> None:
    """Let launches succeed again; returns when they do."""
    name = _name(node_pool)
    if not await api.find(f"{_POLICIES}/{name}"):
        return
    await api.delete(f"{_BINDINGS}/{name}")
    await api.delete(f"{_POLICIES}/{name}")
    await _until(api, node_pool, "any")


async def _until(api: client.ApiClient, node_pool: str, node_class: str) -> None:
    """Wait until the API server gives new NodeClaims that node class: it reads policies at intervals."""
    claim = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"generateName": "probe-", "labels": {karpenter.NODE_POOL_LABEL: node_pool}},
        "spec": {
            "nodeClassRef": {**karpenter.NODE_CLASS_KIND, "name": "any"},
            "requirements": [karpenter.a_requirement("kubernetes.io/os", "linux")],
        },
    }

    async def is_given() -> bool:
        try:
            made = await api.create(karpenter.CLAIMS, claim, dryRun="All")
        except client.ApiRefusedError as refused:
            if refused.status != 503:  # its admission does not know a new kind at once
                raise
            return False
        found = made["spec"]["nodeClassRef"]["name"]
        assert found == node_class, f"{found}"
        return True

    await polling.eventually(is_given, what=f"NodeClaims of {node_pool} with class {node_class}")


def _policy(node_pool: str) -> "JsonObject":
    is_theirs = (
        f"object.metadata.?labels['{karpenter.NODE_POOL_LABEL}'].orValue('') == '{node_pool}'"
    )
    replacement = f"Object{{spec: Object.spec{{nodeClassRef: Object.spec.nodeClassRef{{name: '{_ABSENT}'}}}}}}"
    return {
        "metadata": {"name": _name(node_pool)},
        "spec": {
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": ["karpenter.sh"],
                        "apiVersions": ["v1"],
                        "resources": ["nodeclaims"],
                        "operations": ["CREATE"],
                    }
                ]
            },
            "matchConditions": [{"name": "theirs", "expression": is_theirs}],
            "mutations": [
                {
                    "patchType": "ApplyConfiguration",
                    "applyConfiguration": {"expression": replacement},
                }
            ],
            "failurePolicy": "Fail",
            "reinvocationPolicy": "Never",
        },
    }


def _name(node_pool: str) -> str:
    return f"{_ABSENT}-{node_pool}"
