"""A pod at admission: the request, and the part of the pod that is read, decoded once for all rules."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from admission.decision import Denied
from admission.object_decoder import ObjectDecoder
from admission.review import GroupVersionKind
from api.foreign.core import Container, Pod, PodSpec, Volume
from api.meta import Model, ObjectMeta
from api.names import CAPACITY_GATE, MIRROR_ANNOTATION, NODES_GROUP, RESOURCE_PREFIX
from api.text import listed, truncate
from pool.demand import BadQuantity, ManyPools, TooLarge, demand_of
from telemetry.reasons import RefusalReason, too_large_text

if TYPE_CHECKING:
    from admission.review import AdmissionRequest
    from pool.model import Constraints, Demand, PoolFacts

POD_KIND: Final = GroupVersionKind(version="v1", kind="Pod")


class SecurityContext(Model, frozen=True):
    privileged: bool | None = None


class AdmittedContainer(Container, frozen=True):
    env: msgspec.Raw = msgspec.Raw()
    """Not decoded: environments are long, and few of them name devices."""
    security_context: SecurityContext | None = None


class HostPath(Model, frozen=True):
    path: str = ""


class AdmittedVolume(Volume, frozen=True):
    host_path: HostPath | None = None


class AdmittedSpec(PodSpec, frozen=True):
    """A pod's spec with what a pool's baseline judges; the caches of pods have no use for it."""

    containers: Sequence[AdmittedContainer] | None = None
    init_containers: Sequence[AdmittedContainer] | None = None
    volumes: Sequence[AdmittedVolume] | None = None
    runtime_class_name: str | None = None
    host_ipc: bool = msgspec.field(default=False, name="hostIPC")
    host_pid: bool = msgspec.field(default=False, name="hostPID")


class AdmittedPod(Pod, frozen=True):
    """A pod with metadata and spec, so that a patch may reach into them."""

    metadata: ObjectMeta
    spec: AdmittedSpec


POD_BOUNDS: Final = {
    # JSON in annotations, environments and commands are counted with the rest: a large pod has a tenth.
    "metadata.annotations": 30_000,
    "spec.containers": 30_000,
    "spec.initContainers": 30_000,
    "spec.volumes": 30_000,  # the items of ConfigMaps
    "spec.affinity": 20_000,  # the names of some thousand nodes
}
pod_decoder: "Final[ObjectDecoder[AdmittedPod]]" = ObjectDecoder(
    AdmittedPod, POD_KIND, bounds=POD_BOUNDS
)


class PodRequest(msgspec.Struct, frozen=True):
    """A pod at CREATE."""

    request: "AdmissionRequest"
    pod: AdmittedPod

    @property
    def namespace(self) -> str:
        """Return the request's namespace; the object itself may lack one."""
        return self.request.namespace or self.pod.metadata.namespace

    @property
    def ref(self) -> str:
        """Return `namespace/name`, with `*` for the part of a generated name that is not known yet."""
        meta = self.pod.metadata
        return truncate(f"{self.namespace}/{meta.name or f'{meta.generate_name}*'}")

    @property
    def is_dry_run(self) -> bool:
        return self.request.dry_run is True

    @property
    def is_gated(self) -> bool:
        """Say whether scheduling gates of others keep the pod out of the scheduler's queue."""
        gates = self.pod.spec.scheduling_gates
        return gates is not None and any(gate.name != CAPACITY_GATE for gate in gates)

    @property
    def is_mirror(self) -> bool:
        """Say whether a kubelet mirrors a static pod, which already runs; other users cannot claim that."""
        return self.pod.metadata.annotation(MIRROR_ANNOTATION) is not None and NODES_GROUP in (
            self.request.user_info.groups or ()
        )

    @property
    def service_account(self) -> str:
        """Return `<namespace>/<name>` of the pod's service account."""
        return f"{self.namespace}/{self.pod.spec.service_account_name or 'default'}"

    def demand(self) -> "Demand | Denied | None":
        """Return the pod's demand; None when it names no pool."""
        demand = demand_of(self.pod.spec, self.namespace)
        match demand:
            case ManyPools(resources=resources):
                text = (
                    f"the pod asks for several GPU pools: {listed(resources)}; one pod takes units"
                    " of one pool: keep one resource, or split the pod"
                )
                return Denied(RefusalReason.MIXED_POOLS, text)
            case BadQuantity(container=container, resource=resource, value=value):
                text = (
                    f'container "{truncate(container)}" asks for "{truncate(value)}" of {truncate(resource)};'
                    " ask for a whole number of units"
                )
                return Denied(RefusalReason.BAD_QUANTITY, text)
            case TooLarge():
                return Denied(RefusalReason.TOO_LARGE, too_large_text(demand))
            case _:
                return demand if demand is None else self._overhead_denial() or demand

    def _overhead_denial(self) -> Denied | None:
        """Deny units in the overhead of a RuntimeClass: kube-scheduler counts them, and no container gets them."""
        found = [name for name in self.pod.spec.overhead or () if name.startswith(RESOURCE_PREFIX)]
        if not found:
            return None
        text = (
            f"the overhead of the pod's RuntimeClass names {listed(found)}, and devices are given to"
            " containers alone; take it out of the RuntimeClass"
        )
        return Denied(RefusalReason.BAD_QUANTITY, text)


class PoolPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod with a demand on a pool that it may use."""

    request: PodRequest
    pool: "PoolFacts"
    demand: "Demand"
    constraints: "Constraints"


def node_preset_denial(pod: Pod) -> Denied | None:
    """Deny a pod that names its node, or return None."""
    if not pod.spec.node_name:
        return None
    text = (
        f"spec.nodeName is set to {truncate(pod.spec.node_name)}, which bypasses the scheduler, so that"
        " no devices are chosen for the pod; remove it, and use a nodeSelector on"
        " kubernetes.io/hostname where it must be that node"
    )
    return Denied(RefusalReason.NODE_PRESET, text)
