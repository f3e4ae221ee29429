"""Node validation: taints of the control plane that evict pods.

A taint NoExecute evicts every pod that does not tolerate it, past PodDisruptionBudgets and in every namespace. No
ValidatingAdmissionPolicy can compare a Node with the pools on it, so the API server asks here, about such taints of the
server's own account only (`manifests.install.webhooks`): a stolen token of it adds none that no pool asks for.
"""

from typing import TYPE_CHECKING, Final

from admission.decision import NOT_READY, Admitted, Decision, Denied
from admission.object_decoder import ObjectDecoder
from admission.review import GroupVersionKind
from api.foreign.core import Node
from api.names import NodeName
from api.text import truncate
from telemetry.reasons import RefusalReason

if TYPE_CHECKING:
    from collections.abc import Iterable

    from admission.context import AdmissionContext
    from admission.review import AdmissionRequest
    from api.foreign.core import Taint

KIND: Final = GroupVersionKind(group="", version="v1", kind="Node")
EVICTING: Final = "NoExecute"

_decoder: "Final[ObjectDecoder[Node]]" = ObjectDecoder(Node, KIND)


def validate(request: "AdmissionRequest", context: "AdmissionContext") -> Decision:
    """Admit the Node where a pool with a device on it has each of its new taints that evict pods."""
    node, before = _decoder.decode(request.object_), _decoder.decode(request.old_object)
    if isinstance(node, Denied):
        return node
    if isinstance(before, Denied):
        return before
    if not context.is_ready():
        return NOT_READY
    name = NodeName(node.metadata.name)
    pools = (context.catalog.pools.get(pool) for pool in context.index.pools_on(name))
    allowed = _evicting(taint for pool in pools if pool is not None for taint in pool.taints)
    added = _evicting(node.spec.taints or ()) - _evicting(before.spec.taints or ())
    if foreign := sorted(added - allowed):
        text = (
            f"{truncate(name)}: no pool with a device on the node has in spec.scheduling.taints a taint {EVICTING}"
            f" with key {truncate(', '.join(foreign))}"
        )
        return Denied(RefusalReason.INVALID_TAINT, text, {})
    return Admitted()


def _evicting(taints: "Iterable[Taint]") -> set[str]:
    """Return the keys of the taints that evict pods."""
    return {taint.key for taint in taints if taint.effect == EVICTING}
