"""TopologyManager settings of a node's kubelet, as its labels override them."""

import contextlib
from typing import TYPE_CHECKING

from api.kinds.gpunodeinventory import TopologyManagerPolicy, TopologyManagerScope
from api.names import TOPOLOGY_MANAGER_POLICY_LABEL, TOPOLOGY_MANAGER_SCOPE_LABEL
from pool.model import KubeletTopology

if TYPE_CHECKING:
    from collections.abc import Mapping


def kubelet_topology(
    labels: "Mapping[str, str]", reported: KubeletTopology | None
) -> KubeletTopology | None:
    """Return the settings that count: a label's where it has a known value, else the reported ones."""
    policy, scope = (
        labels.get(TOPOLOGY_MANAGER_POLICY_LABEL),
        labels.get(TOPOLOGY_MANAGER_SCOPE_LABEL),
    )
    if policy is None and scope is None:
        return reported
    found = reported
    with contextlib.suppress(ValueError):
        if policy is not None:
            known = reported.scope if reported is not None else TopologyManagerScope.CONTAINER
            found = KubeletTopology(TopologyManagerPolicy(policy), known)
    with contextlib.suppress(ValueError):
        if scope is not None and found is not None:
            found = KubeletTopology(found.policy, TopologyManagerScope(scope))
    return found
