"""kubelet 1.36's TopologyManager and devicemanager, as their Go source has them, for one resource.

    pkg/kubelet/cm/topologymanager/{policy,policy_*,scope_*}.go, bitmask/bitmask.go
    pkg/kubelet/cm/devicemanager/{topology_hints,manager}.go
    pkg/kubelet/cm/cpumanager/policy_static.go, generateCPUTopologyHints

Without `cpus` the CPU manager is off; the memory manager always is. The containers of a pod that has CPUs of its own
ask for `cpus_each`.
"""

from collections import Counter
from dataclasses import dataclass, field
from itertools import combinations, product
from typing import TYPE_CHECKING, Final

from pool.demand import distinct_units
from pool.model import ContainerRole

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pool.model import ContainerDemand

    Preferred = Callable[[str, set[str], set[str], int], Sequence[str]]
    """Container, available, must include, size -> answer of GetPreferredAllocation."""

NONE: Final = "none"
BEST_EFFORT: Final = "best-effort"
RESTRICTED: Final = "restricted"
SINGLE: Final = "single-numa-node"

Mask = frozenset[int]


@dataclass(frozen=True)
class Hint:
    nodes: Mask | None
    preferred: bool


class RejectedError(Exception):
    """kubelet rejects the pod."""


@dataclass
class Kubelet:
    """One pod's admission at a time; what earlier pods have is not in `free`."""

    policy: str
    scope: str
    numa: "Mapping[str, int | None]"
    """Device -> the NUMA node of its TopologyInfo."""
    free: set[str]
    """Healthy devices that no pod has, as kubelet sees it."""
    preferred: "Preferred" = lambda _container, _available, _must, _size: ()
    machine: Mask = frozenset({0, 1})
    cpus: "Mapping[int, int] | None" = None
    """NUMA node -> its CPUs that no pod has, with the static CPU manager and a Guaranteed pod."""
    cpus_of_node: int = 8
    """CPUs of each NUMA node, free or not."""
    cpus_each: int = 1
    affinity: dict[str, Mask | None] = field(default_factory=dict)
    """Container -> the NUMA nodes that were chosen."""
    calls: int = 0
    """Of GetPreferredAllocation."""

    def admit(self, containers: "Sequence[ContainerDemand]") -> dict[str, set[str]]:
        """Return the devices of each container.

        Raises:
            RejectedError: as kubelet's pod admission.
        """
        reusable: set[str] = set()
        cpus, reusable_cpus = Counter(self.cpus or {}), Counter[int]()
        given: dict[str, set[str]] = {}
        for_the_pod = None
        if self.policy != NONE and self.scope == "pod":
            mains = sum(container.role is not ContainerRole.INIT for container in containers)
            hints = self._cpu_hints(cpus, Counter(), mains * self.cpus_each)
            for_the_pod = self._merge(self._hints(set(), distinct_units(containers)), hints)
        for container in containers:
            hint = for_the_pod
            if self.policy != NONE and self.scope == "container":
                hints = self._cpu_hints(cpus, reusable_cpus, self.cpus_each)
                hint = self._merge(self._hints(reusable, container.units), hints)
            nodes = None if hint is None else hint.nodes
            self.affinity[container.name] = nodes
            self._take_cpus(container, nodes, cpus, reusable_cpus)
            devices = self._allocate(container, nodes, reusable)
            given[container.name] = devices
            if container.role is ContainerRole.INIT:
                reusable |= devices
            else:
                reusable -= devices
        return given

    def _hints(self, reusable: set[str], request: int) -> list[Hint] | None:
        if all(node is None for node in self.numa.values()):
            return None
        if len(self.free | reusable) < request:
            return []
        nodes = sorted({node for node in self.numa.values() if node is not None} & self.machine)
        smallest = len(nodes)
        masks: list[Mask] = []
        for size in range(1, len(nodes) + 1):
            for combination in combinations(nodes, size):
                mask = frozenset(combination)
                if sum(node in mask for node in self.numa.values()) >= request:
                    smallest = min(smallest, size)
                if any(
                    self.numa[item] is not None and self.numa[item] not in mask for item in reusable
                ):
                    continue
                matching = sum(self.numa[item] is not None for item in reusable)
                matching += sum(self.numa[item] in mask for item in self.free)
                if matching >= request:
                    masks.append(mask)
        return [Hint(mask, len(mask) == smallest) for mask in masks]

    def _cpu_hints(
        self, free: "Counter[int]", reusable: "Counter[int]", request: int
    ) -> list[Hint] | None:
        if self.cpus is None:
            return None
        smallest = len(self.machine)
        masks: list[Mask] = []
        for size in range(1, len(self.machine) + 1):
            for combination in combinations(sorted(self.machine), size):
                mask = frozenset(combination)
                if self.cpus_of_node * size >= request:
                    smallest = min(smallest, size)
                is_whole = all(node in mask for node, count in reusable.items() if count)
                if is_whole and sum(free[node] + reusable[node] for node in mask) >= request:
                    masks.append(mask)
        return [Hint(mask, len(mask) == smallest) for mask in masks]

    def _take_cpus(
        self,
        container: "ContainerDemand",
        nodes: Mask | None,
        free: "Counter[int]",
        reusable: "Counter[int]",
    ) -> None:
        """As kubelet packs them: those of the chosen NUMA nodes first, lower numbers first."""
        if self.cpus is None:
            return
        first = sorted(
            self.machine, key=lambda node: (nodes is not None and node not in nodes, node)
        )
        cpus = self.cpus_each
        for source in (reusable, free):
            for node in first:
                taken = min(cpus, source[node])
                cpus -= taken
                source[node] -= taken
                if container.role is ContainerRole.INIT:
                    reusable[node] += taken
        if cpus:
            raise RejectedError("not enough cpus available to satisfy request")

    def _merge(self, *providers: list[Hint] | None) -> Hint:
        found = [
            [Hint(None, True)] if hints is None else hints or [Hint(None, False)]
            for hints in providers
        ]
        if self.policy == SINGLE:
            found = [
                [
                    hint
                    for hint in hints
                    if hint.preferred and (hint.nodes is None or len(hint.nodes) == 1)
                ]
                for hints in found
            ]
        fewest = max(
            min((len(hint.nodes) for hint in hints if hint.nodes is not None), default=0)
            for hints in found
        )
        best: Hint | None = None
        for entry in product(*found):
            named = [item.nodes for item in entry if item.nodes is not None]
            candidate = Hint(
                self.machine.intersection(*named),
                all(item.preferred for item in entry) and len(set(named)) <= 1,
            )
            if candidate.nodes:
                best = candidate if best is None else _better(best, candidate, fewest)
        best = best or Hint(self.machine, False)
        if self.policy == SINGLE and best.nodes == self.machine:
            best = Hint(None, best.preferred)
        if self.policy in {RESTRICTED, SINGLE} and not best.preferred:
            raise RejectedError("TopologyAffinityError")
        return best

    def _allocate(
        self, container: "ContainerDemand", nodes: Mask | None, reusable: set[str]
    ) -> set[str]:
        taken = set(sorted(reusable)[: container.units])
        needed = container.units - len(taken)
        if needed == 0:
            return taken
        if len(self.free) < needed:
            raise RejectedError("requested number of devices unavailable")
        has_topology = any(node is not None for node in self.numa.values())
        aligned = (
            {item for item in self.free if self.numa[item] in nodes}
            if nodes is not None and has_topology
            else set[str]()
        )
        if needed < len(aligned):
            pools = [self._prefer(container, aligned | taken, taken) & aligned, aligned]
        else:
            taken |= aligned
            self.free -= aligned
            if len(taken) == container.units:
                return taken
            available = set(self.free)
            pools = [self._prefer(container, available | taken, taken) & available, available]
        for pool in pools:
            for item in sorted(pool - taken)[: container.units - len(taken)]:
                taken.add(item)
        self.free -= taken
        return taken

    def _prefer(
        self, container: "ContainerDemand", available: set[str], must: set[str]
    ) -> set[str]:
        self.calls += 1
        return set(self.preferred(container.name, available, must, container.units))


def _better(current: Hint, candidate: Hint, fewest: int) -> Hint:
    """`HintMerger.compare`, case by case."""
    assert current.nodes is not None
    assert candidate.nodes is not None
    if current.preferred is not candidate.preferred:
        return current if current.preferred else candidate
    fitter = _narrower(current, candidate)
    here, there = len(current.nodes), len(candidate.nodes)
    if current.preferred or here > fewest:
        return fitter
    if here == fewest:
        return fitter if there == fewest else current
    if there > fewest:
        return current
    if there == fewest or there > here:
        return candidate
    return current if there < here else fitter


def _narrower(current: Hint, candidate: Hint) -> Hint:
    def rank(hint: Hint) -> tuple[int, int]:
        nodes = hint.nodes or frozenset()
        return len(nodes), sum(1 << node for node in nodes)

    return candidate if rank(candidate) < rank(current) else current
