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
class Pair:
    """Two clusters that differ in one thing."""

    name: str
    small: ClusterSize
    large: ClusterSize
    candidates: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """All of them."""

    extender_cluster: ClusterSize
    candidates: tuple[int, ...]
    """Names in one request."""
    pairs_of_calls: int
    """Calls to each of two servers in turn, for a request of 1,000 names; fewer for more names."""
    scaling: tuple[Pair, ...]
    connections: int
    admission_nodes: int
    """Each pod holds a slice for five seconds: half of the nodes have 128 of them."""
    admissions: int
    waiting_pods: int
    why_nodes: tuple[int, ...]
    """Of the pools in which one pod is asked about."""
    why_questions: int
    why_cluster: ClusterSize
    """In which the leader explains `waiting_pods`."""
    why_changes_per_s: int
    why_s: float
    worst_mixtures: int
    """Pods with every field filled, beside those with one."""
    bindings: int
    startups: tuple[ClusterSize, ...]
    stall_cluster: ClusterSize
    stall_s: float
    events_per_s: int
    churn_nodes: int
    churn_pods: int
    inventory_nodes: tuple[int, int]
    """A small cluster and a large one."""
    label_changes: int
    pool_counts: tuple[int, ...]
    pool_nodes: int
    """Twice as many as pools, so that each has a node."""
    device_changes: int
    operand_nodes: int
    operand_renderings: int
    operand_switches: int
    pages: int
    page_devices: int
    page_slices: int
    hangs: int
    """Of a call of the driver; each takes a second."""
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
    what_if_nodes: int
    """Of the cluster of which one pod is asked about."""
    what_if_questions: int
    workload_nodes: int
    """Of the cluster on which a workload is simulated."""
    scaling_pods: tuple[int, ...]
    """Waiting pods, for one plan."""
    scaling_nodes: int
    scaling_days: int
    placement_reads_trace: bool
    cache_files: int
    cache_file_bytes: int
    cache_extractions: int
    node_caches: int
    node_restarts: int
    console_clusters: tuple[ClusterSize, ...]
    console_snapshots: int
    console_ticks: int
    """An even number: what is changed in one is undone in the next."""
    console_answers: int
    software_nodes: int
    """With every state of containers."""
    software_cluster: ClusterSize
    """In which memory is compared."""
    software_flaps_per_s: int
    software_flap_s: float
    trace: Path | None = None
    """A folder with `openb_pod_list_default.csv`; without one, a day is made up by seed."""


FULL = Sizes(
    extender_cluster=ClusterSize(nodes=10_000, pods=4_000),
    candidates=(100, 1_000, 5_000),
    pairs_of_calls=600,
    scaling=(
        Pair(
            name="pods",
            small=ClusterSize(nodes=5_000, pods=4_000),
            large=ClusterSize(nodes=5_000, pods=40_000),
            candidates=1_000,
        ),
        Pair(
            name="nodes",
            small=ClusterSize(nodes=1_000, pods=4_000),
            large=ClusterSize(nodes=5_000, pods=4_000),
            candidates=500,
        ),
        Pair(
            name="pools",
            small=ClusterSize(nodes=2_000, pods=4_000, pool_count=1),
            large=ClusterSize(nodes=2_000, pods=4_000, pool_count=50),
            candidates=1_000,
        ),
    ),
    connections=64,
    admission_nodes=8_000,
    admissions=20_000,
    waiting_pods=1_000,
    why_nodes=(1, 50, 500, 1_000),
    why_questions=20,
    why_cluster=ClusterSize(nodes=1_000, pods=6_000, pool_count=1),
    why_changes_per_s=100,
    why_s=120.0,
    worst_mixtures=50,
    bindings=1_000,
    startups=(
        ClusterSize(nodes=50, pods=200),
        ClusterSize(nodes=500, pods=2_000),
        ClusterSize(nodes=5_000, pods=20_000),
    ),
    stall_cluster=ClusterSize(nodes=5_000, pods=20_000),
    stall_s=12.0,
    events_per_s=1_000,
    churn_nodes=150,
    churn_pods=100_000,
    inventory_nodes=(50, 5_000),
    label_changes=100,
    pool_counts=(1, 50, 500),
    pool_nodes=1_000,
    device_changes=10,
    operand_nodes=500,
    operand_renderings=200,
    operand_switches=40,
    pages=200,
    page_devices=16,
    page_slices=64,
    hangs=5,
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
    what_if_nodes=5_000,
    what_if_questions=20,
    workload_nodes=500,
    scaling_pods=(10, 100, 1_000, 10_000),
    scaling_nodes=5_000,
    scaling_days=200,
    placement_reads_trace=True,
    cache_files=5_000,
    cache_file_bytes=104_858,
    cache_extractions=6,
    node_caches=1_000,
    node_restarts=5,
    console_clusters=(
        ClusterSize(nodes=50, pods=200),
        ClusterSize(nodes=500, pods=2_000),
        ClusterSize(nodes=5_000, pods=20_000),
    ),
    console_snapshots=5,
    console_ticks=200,
    console_answers=10,
    software_nodes=200,
    software_cluster=ClusterSize(nodes=5_000, pods=20_000),
    software_flaps_per_s=50,
    software_flap_s=60.0,
)


QUICK = Sizes(
    extender_cluster=ClusterSize(nodes=20, pods=10),
    candidates=(10,),
    pairs_of_calls=5,
    scaling=(
        Pair(
            name="everything",
            small=ClusterSize(nodes=20, pods=10, pool_count=1),
            large=ClusterSize(nodes=40, pods=30, pool_count=5),
            candidates=10,
        ),
    ),
    connections=4,
    admission_nodes=20,
    admissions=20,
    waiting_pods=8,
    why_nodes=(1, 4),
    why_questions=2,
    why_cluster=ClusterSize(nodes=10, pods=60, pool_count=1),
    why_changes_per_s=10,
    why_s=4.0,
    worst_mixtures=2,
    bindings=5,
    startups=(ClusterSize(nodes=4, pods=8),),
    stall_cluster=ClusterSize(nodes=10, pods=40),
    stall_s=1.0,
    events_per_s=100,
    churn_nodes=4,
    churn_pods=60,
    inventory_nodes=(2, 4),
    label_changes=3,
    pool_counts=(3,),
    pool_nodes=6,
    device_changes=1,
    operand_nodes=4,
    operand_renderings=2,
    operand_switches=2,
    pages=2,
    page_devices=2,
    page_slices=4,
    hangs=1,
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
    what_if_nodes=20,
    what_if_questions=2,
    workload_nodes=20,
    scaling_pods=(10, 100),
    scaling_nodes=20,
    scaling_days=5,
    placement_reads_trace=False,
    cache_files=50,
    cache_file_bytes=2_000,
    cache_extractions=1,
    node_caches=20,
    node_restarts=1,
    console_clusters=(ClusterSize(nodes=10, pods=40),),
    console_snapshots=1,
    console_ticks=4,
    console_answers=1,
    software_nodes=4,
    software_cluster=ClusterSize(nodes=4, pods=8),
    software_flaps_per_s=10,
    software_flap_s=4.0,
)
