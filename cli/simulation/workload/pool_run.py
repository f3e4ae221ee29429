"""The scenarios of pools: a workload's pods as a user would create them, on copies of a cluster's state."""

from collections import Counter
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Final

import msgspec

from admission.decision import Denied
from api.kinds.gpupool import Strategy
from api.text import nearest
from cli.simulation.errors import BadInputError
from cli.simulation.pod_file import pod_of_object
from cli.simulation.pod_scheduling import PodCreator, question_of, request_of
from cli.simulation.workload import run
from cli.simulation.workload.run_report import Axis
from cli.simulation.workload.snapshot_cluster import POOL_SPEC, SnapshotCluster, WorkloadPod
from cli.simulation.workload.workload_file import read_workload
from pool.compute_resources import requested
from pool.layout import most_units_of_a_device
from pool.placement.fragmentation.target_workload import WHOLE_DEVICE
from pool.placement.simulation import openb
from pool.placement.simulation.model import SimulatedPod

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from api.names import NodeName
    from cli.simulation.cluster_objects import ClusterObjects
    from cli.simulation.object_files import Object
    from cli.simulation.pod_file import NewPod
    from cli.simulation.snapshot import Snapshot
    from pool.model import PoolFacts

POOL_STRATEGIES: Final = (POOL_SPEC, *(strategy.value for strategy in Strategy))


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolCluster:
    """A cluster of pools, of which each run gets a copy."""

    objects: "ClusterObjects"
    snapshot_of: "Callable[[ClusterObjects], Snapshot]"
    username: str = ""
    """Username of the creator of the workload's pods."""
    groups: tuple[str, ...] = ()

    def with_strategy(self, strategy: str) -> "Snapshot":
        """Return a copy whose pools have a strategy, or their own."""
        if strategy == POOL_SPEC:
            return self.snapshot_of(self.objects)
        pools = [
            msgspec.structs.replace(
                pool,
                spec=msgspec.structs.replace(
                    pool.spec,
                    scheduling=msgspec.structs.replace(
                        pool.spec.scheduling, strategy=Strategy(strategy)
                    ),
                ),
            )
            for pool in self.objects.pools
        ]
        return self.snapshot_of(replace(self.objects, pools=pools))


def workload_on_pools(cluster: PoolCluster, file: "Path") -> run.Scenario:
    """Return a workload of ours on a cluster of pools.

    Raises:
        BadInputError: the file cannot be read, or names a pool or a model that the cluster lacks.
    """
    found = read_workload(file)
    writer = _PodWriter(cluster, str(file))
    pods = [
        writer.from_object(pod, item) if item is not None else writer.from_sizes(pod)
        for pod, item in zip(found.pods, found.objects, strict=True)
    ]
    return _scenario(cluster, pods, axis=run.axis_of(found.pods), name=str(file))


def trace_on_pools(
    cluster: PoolCluster, file: "Path", *, pool: str | None, inflate: float | None, seed: int
) -> run.Scenario:
    """Return the pods of a trace on a cluster of pools.

    Args:
        cluster: where they run.
        file: pod list of the trace.
        pool: the pool that pods with devices ask; the cluster's only one if left out.
        inflate: share of the pool's devices that pods in random order ask for; None: in the trace's time.
        seed: of the random order.

    Raises:
        BadInputError: the file cannot be read, or there is no such pool.
    """
    writer = _PodWriter(cluster, str(file))
    facts = writer.pool(pool)
    try:
        read = openb.read_pods(run.lines_of(file), str(file))
    except openb.TraceError as error:
        raise BadInputError(str(error)) from error
    devices = writer.devices_of(facts)
    per_device = most_units_of_a_device(facts)
    timed: Iterable[tuple[openb.TracePod, float, float | None]]
    if inflate is None:
        timed = openb.in_time(read)
        axis, name = Axis.TIME, str(file)
    else:
        arrivals = sample_pods(read, devices=devices, inflate=inflate, seed=seed)
        timed = [(pod, 0.0, None) for pod in arrivals]
        axis, name = Axis.ARRIVED, run.inflated_name(file, inflate, seed)
    pods = [
        writer.from_sizes(
            SimulatedPod(
                f"default/{pod.name}",
                facts.name if pod.devices else "",
                -(-pod.shape.demand * per_device // WHOLE_DEVICE),
                pod.cpu_milli,
                pod.memory_mib,
                (),
                arrival_s,
                duration_s,
            )
        )
        for pod, arrival_s, duration_s in timed
    ]
    notes = (
        ["models that pods of the trace name are not asked for"]
        if any(pod.models for pod in read)
        else []
    )
    return _scenario(cluster, pods, axis=axis, name=name, notes=notes)


def sample_pods(
    pods: "Sequence[openb.TracePod]", *, devices: int, inflate: float, seed: int
) -> "list[openb.TracePod]":
    """Return pods of the trace in random order until they ask for a share of so many devices."""
    random = Random(seed)  # noqa: S311  # its seed repeats it
    by_name = sorted(pods, key=lambda pod: pod.name)
    arrivals = random.sample(by_name, len(by_name))
    openb.tune(
        arrivals, by_name, requested=inflate * devices * WHOLE_DEVICE, below=random.randrange
    )
    return arrivals


def _scenario(
    cluster: PoolCluster,
    pods: "Sequence[WorkloadPod]",
    *,
    axis: Axis,
    name: str,
    notes: "Sequence[str]" = (),
) -> run.Scenario:
    return run.Scenario(
        pods=[pod.simulated for pod in pods],
        cluster=lambda strategy, _seed: SnapshotCluster(
            cluster.with_strategy(strategy), pods, strategy=strategy
        ),
        axis=axis,
        cluster_name=cluster.objects.origin,
        workload_name=name,
        notes=[*notes, *(f"partial: {gap}" for gap in cluster.objects.gaps)],
    )


class _PodWriter:
    """Writes the pods of a workload; equal ones share their spec."""

    def __init__(self, cluster: PoolCluster, file: str) -> None:
        self._cluster = cluster
        self._snapshot = cluster.snapshot_of(cluster.objects)
        self._file = file
        self._specs: dict[object, NewPod] = {}
        self._count = 0
        self._start = self._snapshot.admission.now().utc

    def pool(self, name: str | None) -> "PoolFacts":
        """Return a pool by name, or the only one.

        Raises:
            BadInputError: there is no such pool, or there are several.
        """
        pools = {pool.name: pool for pool in self._snapshot.index.pools()}
        if name is None and len(pools) > 1:
            raise BadInputError(
                f"{self._file}: the cluster has pools {', '.join(sorted(pools))}; name the one that pods with"
                " devices ask: --pool NAME"
            )
        found = next(iter(pools.values())) if name is None else pools.get(name)  # type: ignore[call-overload]
        if found is None:
            raise BadInputError(f"{self._file}: {run.unknown_pool(str(name), pools)}")
        return found

    def devices_of(self, pool: "PoolFacts") -> int:
        """Return the number of a pool's devices."""
        return sum(map(len, self._snapshot.index.state(pool.name).devices_by_node.values()))

    def from_sizes(self, pod: SimulatedPod) -> WorkloadPod:
        """Return a pod of which only the sizes are given."""
        key = pod.pool, pod.units, pod.cpu_milli, pod.memory_mib, pod.models
        spec = self._specs.get(key)
        if spec is None:
            spec = self._specs[key] = self._read(
                pod, _object_of(pod, self._resource(pod), self._nodes(pod))
            )
        return self._created(pod, spec, kind=key)

    def from_object(self, pod: SimulatedPod, item: "Object") -> WorkloadPod:
        """Return a pod of an object."""
        key = id(item)
        spec = self._specs.get(key)
        if spec is None:
            spec = self._specs[key] = self._read(pod, item)
        question = question_of(spec, self._snapshot)
        if question is not None:
            pod = msgspec.structs.replace(pod, pool=question.pool.name, units=question.demand.units)
        return self._created(pod, spec, kind=key)

    def _read(self, pod: SimulatedPod, item: "Object") -> "NewPod":
        where = f"{self._file}: pod {pod.name}"
        asked = pod_of_object(item, where=where)
        if asked is None:
            raise BadInputError(f"{where}: the template has no spec")
        demand = request_of(asked, PodCreator()).demand()
        if isinstance(demand, Denied):
            raise BadInputError(f"{where}: {demand.text}")
        return asked

    def _created(self, pod: SimulatedPod, spec: "NewPod", *, kind: object) -> WorkloadPod:
        self._count += 1
        namespace, _, name = pod.name.rpartition("/")
        asked = spec.created(
            name,
            namespace=namespace,
            uid=f"simulated-pod-{self._count}",
            at=self._start,
            after_s=pod.arrival_s,
        )
        cluster = self._cluster
        return WorkloadPod(
            simulated=pod,
            asked=asked,
            creator=PodCreator.of(asked, username=cluster.username, groups=cluster.groups),
            requests=requested(asked.pod),
            kind=kind,
        )

    def _resource(self, pod: SimulatedPod) -> str:
        if not pod.pool:
            return ""
        pools = {pool.name: pool for pool in self._snapshot.index.pools()}
        if pod.pool not in pools:
            raise BadInputError(f"{self._file}: pod {pod.name} {run.unknown_pool(pod.pool, pools)}")
        return next(pool.resource for pool in pools.values() if pool.name == pod.pool)

    def _nodes(self, pod: SimulatedPod) -> "list[NodeName] | None":
        """Return the nodes whose devices are mostly of the models that the pod takes."""
        if not pod.models:
            return None
        products = {name: self._product(name) for name in sorted(self._snapshot.index.nodes)}
        for model in pod.models:
            if model not in products.values():
                models = sorted({product for product in products.values() if product})
                meant = nearest(model, models)
                hint = f"did you mean {meant}?" if meant else f"there are {', '.join(models)}"
                raise BadInputError(
                    f"{self._file}: pod {pod.name} takes model {model}, which no node has; {hint}"
                )
        return [name for name, product in products.items() if product in pod.models]

    def _product(self, node: "NodeName") -> str:
        products = Counter(
            device.status.product
            for name in sorted(self._snapshot.index.devices.on_node(node))
            if (device := self._snapshot.stores.devices.get(name)) is not None
        )
        return products.most_common(1)[0][0] if products else ""


def _object_of(pod: SimulatedPod, resource: str, nodes: "Sequence[NodeName] | None") -> "Object":
    """Return a Pod with one container."""
    requests = {"cpu": f"{pod.cpu_milli}m", "memory": f"{pod.memory_mib}Mi"}
    limits = {resource: str(pod.units)} if resource else {}
    main = {"name": "main", "resources": {"requests": requests, "limits": limits}}
    spec: Object = {"containers": [main]}
    if nodes is not None:
        named = {"key": "metadata.name", "operator": "In", "values": list(nodes)}
        required = {"nodeSelectorTerms": [{"matchFields": [named]}]}
        spec["affinity"] = {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}
        }
    return {"kind": "Pod", "metadata": {}, "spec": spec}
