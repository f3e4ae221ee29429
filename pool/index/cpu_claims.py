"""CPU that pods with units request on their nodes; other pods of the nodes are not known here."""

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from api.names import NodeName, PodUid


@final
class CpuClaims:
    """CPU by pod and by node."""

    def __init__(self) -> None:
        self._by_pod: dict[PodUid, tuple[NodeName, int]] = {}
        self._by_node: dict[NodeName, dict[PodUid, int]] = {}

    def replace(self, pod: "PodUid", node: "NodeName | None", cpu_milli: int) -> "set[NodeName]":
        """Set the node and CPU of a pod, None to end its claim; return the nodes whose CPU changed."""
        before = self._by_pod.get(pod)
        after = (node, cpu_milli) if node is not None and cpu_milli else None
        if before == after:
            return set()
        changed: set[NodeName] = set()
        if before is not None:
            changed.add(before[0])
            del self._by_pod[pod]
            del self._by_node[before[0]][pod]
            if not self._by_node[before[0]]:
                del self._by_node[before[0]]
        if after is not None:
            changed.add(after[0])
            self._by_pod[pod] = after
            self._by_node.setdefault(after[0], {})[pod] = cpu_milli
        return changed

    def on(self, node: "NodeName", *, without: "PodUid | None" = None) -> int:
        """Return the CPU that the pods of a node request, one pod left out."""
        pods = self._by_node.get(node, {})
        own = 0 if without is None else pods.get(without, 0)
        return sum(pods.values()) - own
