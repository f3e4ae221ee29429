"""How large each subject is: in full, and as a smoke test that runs every line in seconds."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSize:
    """A cluster of nodes with eight devices each."""

    nodes: int
    pods: int
    """Bound ones."""
    pool_count: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """All of them."""

    extender_cluster: ClusterSize
    candidates: tuple[int, ...]
    """Names in one request."""
    pairs_of_calls: int
    """Calls to each of two servers in turn, for a request of 1,000 names; fewer for more names."""
    connections: int
    admission_nodes: int
    """Each pod holds a slice for five seconds: half of the nodes have 128 of them."""
    admissions: int
    waiting_pods: int
    bindings: int
    startups: tuple[ClusterSize, ...]
    stall_cluster: ClusterSize
    stall_s: float
    events_per_s: int
    agent_devices: int
    agent_slices: int
    agent_starts: int
    agent_pods: int
    agent_calls: int
    agent_idle_s: float
    agent_restarts: int
    agent_changes: int
    agent_container_pairs: int
    """Pods on a real kubelet, where there can be one; none leaves it alone."""
    placement_questions: int
    """Sets of devices asked for, for each kind of machine."""
    placement_seeds: int
    """Of the ten published ones."""
    placement_reads_trace: bool
    console_clusters: tuple[ClusterSize, ...]
    console_snapshots: int
    console_ticks: int
    """An even number: what is changed in one is undone in the next."""
    console_answers: int
    trace: Path | None = None
    """A folder with `openb_pod_list_default.csv`; without one, a day is made up by seed."""


FULL = Sizes(
    extender_cluster=ClusterSize(nodes=10_000, pods=4_000),
    candidates=(100, 1_000, 5_000),
    pairs_of_calls=600,
    connections=64,
    admission_nodes=8_000,
    admissions=20_000,
    waiting_pods=1_000,
    bindings=1_000,
    startups=(
        ClusterSize(nodes=50, pods=200),
        ClusterSize(nodes=500, pods=2_000),
        ClusterSize(nodes=5_000, pods=20_000),
    ),
    stall_cluster=ClusterSize(nodes=5_000, pods=20_000),
    stall_s=12.0,
    events_per_s=1_000,
    agent_devices=16,
    agent_slices=64,
    agent_starts=5,
    agent_pods=200,
    agent_calls=2_000,
    agent_idle_s=30.0,
    agent_restarts=20,
    agent_changes=2_000,
    agent_container_pairs=20,
    placement_questions=20_000,
    placement_seeds=10,
    placement_reads_trace=True,
    console_clusters=(
        ClusterSize(nodes=50, pods=200),
        ClusterSize(nodes=500, pods=2_000),
        ClusterSize(nodes=5_000, pods=20_000),
    ),
    console_snapshots=5,
    console_ticks=200,
    console_answers=10,
)


QUICK = Sizes(
    extender_cluster=ClusterSize(nodes=20, pods=10),
    candidates=(10,),
    pairs_of_calls=5,
    connections=4,
    admission_nodes=20,
    admissions=20,
    waiting_pods=8,
    bindings=5,
    startups=(ClusterSize(nodes=4, pods=8),),
    stall_cluster=ClusterSize(nodes=10, pods=40),
    stall_s=1.0,
    events_per_s=100,
    agent_devices=8,
    agent_slices=4,
    agent_starts=1,
    agent_pods=4,
    agent_calls=5,
    agent_idle_s=1.0,
    agent_restarts=1,
    agent_changes=4,
    agent_container_pairs=0,
    placement_questions=50,
    placement_seeds=1,
    placement_reads_trace=False,
    console_clusters=(ClusterSize(nodes=10, pods=40),),
    console_snapshots=1,
    console_ticks=4,
    console_answers=1,
)
