"""RBAC rules of the console's own service account, apart from its code, so that rendering them loads no aiohttp.

It reads what the page shows, and asks the API server what each viewer may see; it has no right to write.
"""

from typing import Final

from api.names import GROUP
from http_edge.reviews import kube_reviews
from manifests.install.rbac import PolicyRule

_READ: Final = ("list", "watch")

CONSOLE_RBAC: Final = (
    PolicyRule(
        group=GROUP, resources=("gpudevices", "gpunodeinventories", "gpupools"), verbs=_READ
    ),
    PolicyRule(resources=("nodes", "pods"), verbs=_READ),
    *kube_reviews.RBAC,
)
"""Cluster-wide rules of the console."""
CONSOLE_NAMESPACED_RBAC: Final = (
    # Those of the control plane and of its kube-scheduler say who leads.
    PolicyRule(group="coordination.k8s.io", resources=("leases",), verbs=_READ),
)
"""Rules of the console in the namespace of the control plane."""
