"""Warnings about pods of GKM's later generation, which mount a PersistentVolumeClaim that is named like its cache.

Nothing here makes such a claim, so that the pod would wait without a word. The API server compares claims with caches by
itself: no webhook sees pods without a pool, and none of them depends on the control plane.
"""

from typing import Any, Final

from api.csi.names import CACHE_ATTRIBUTE, DRIVER_NAME, NAMESPACE_ATTRIBUTE
from api.kinds.gkmcache import ClusterGKMCache, GKMCache
from api.names import GKM_GROUP, VERSION
from manifests import constants

Json = dict[str, Any]

_VOLUMES: Final = "dyn(object).spec.?template.?spec.orValue(dyn(object).spec).?volumes.orValue([])"
_CLAIM: Final = "v.?persistentVolumeClaim.?claimName.orValue('')"
_OF_A_NAMESPACE: Final = f", {NAMESPACE_ATTRIBUTE}: ' + params.metadata.namespace + '"


def build_claim_policies() -> list[Json]:
    """Return a policy and its binding for each kind of caches; they refuse nothing."""
    return [
        *_warning(constants.CACHE_CLAIMS_POLICY, GKMCache.__name__, _OF_A_NAMESPACE),
        *_warning(constants.CLUSTER_CACHE_CLAIMS_POLICY, ClusterGKMCache.__name__, ""),
    ]


def _warning(name: str, kind: str, attribute: str) -> list[Json]:
    metadata = {"name": name, "labels": dict(constants.LABELS)}
    api_version = "admissionregistration.k8s.io/v1"
    return [
        {
            "apiVersion": api_version,
            "kind": "ValidatingAdmissionPolicy",
            "metadata": metadata,
            "spec": {
                "failurePolicy": "Ignore",
                "paramKind": {"apiVersion": f"{GKM_GROUP}/{VERSION}", "kind": kind},
                "matchConstraints": {
                    "resourceRules": [
                        _rule("", "pods"),
                        _rule("apps", "daemonsets", "deployments", "statefulsets"),
                        _rule("batch", "jobs"),
                    ]
                },
                "matchConditions": [
                    {
                        "name": "mounts-a-claim",
                        "expression": f"{_VOLUMES}.exists(v, {_CLAIM} != '')",
                    }
                ],
                "variables": [
                    {
                        "name": "volumes",
                        "expression": f"{_VOLUMES}.filter(v, {_CLAIM} == params.metadata.name)",
                    }
                ],
                "validations": [
                    {
                        "expression": "variables.volumes.size() == 0",
                        "messageExpression": (
                            f"'PersistentVolumeClaim ' + params.metadata.name + ' is named like a {kind}, for which there are no"
                            " claims: a pod that is to have the kernel cache mounts it by the volume {name: '"
                            " + variables.volumes[0].name +"
                            f" ', csi: {{driver: {DRIVER_NAME}, volumeAttributes: {{{CACHE_ATTRIBUTE}: '"
                            f" + params.metadata.name + '{attribute}}}}}}}'"
                        ),
                    }
                ],
            },
        },
        {
            "apiVersion": api_version,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": metadata,
            "spec": {
                "policyName": name,
                "paramRef": {"selector": {}, "parameterNotFoundAction": "Allow"},
                "validationActions": ["Warn"],
            },
        },
    ]


def _rule(group: str, *resources: str) -> Json:
    return {
        "apiGroups": [group],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": list(resources),
        "scope": "Namespaced",
    }
