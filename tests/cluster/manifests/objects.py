"""Objects that the tests of this folder give to the API server."""

from typing import Any

from manifests import constants
from manifests.install import rbac

ENGINE = constants.service_account_username(constants.DEFAULT_NAMESPACE)


def namespace_and_roles(namespace: str) -> list[dict[str, Any]]:
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
        *rbac.build_rbac(
            [rbac.PolicyRule(resources=("pods", "pods/binding"), verbs=("create", "get", "patch"))],
            namespaced_rules=[rbac.PolicyRule(resources=("secrets",), verbs=("create",))],
            namespace=namespace,
        ),
        *rbac.build_user_roles(),
        *rbac.build_scheduler_rbac(namespace),
    ]


def a_pod(
    namespace: str,
    *,
    name: str = "pod",
    pool: str = "",
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
) -> dict[str, Any]:
    limits = {f"gpu.deckhouse.io/{pool}": "1"} if pool else {"cpu": "1"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "annotations": annotations or {},
            "labels": labels or {},
        },
        "spec": {
            "containers": [{"name": "main", "image": "main:1", "resources": {"limits": limits}}]
        },
    }


def a_pool(name: str = "train", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "gpu.deckhouse.io/v1alpha1",
        "kind": "GPUPool",
        "metadata": {"name": name},
        "spec": spec,
    }
