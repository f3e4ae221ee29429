"""Where volumes are, or may come to be: claims, volumes and storage classes, as far as that is read."""

from api.foreign.core import NodeSelector
from api.meta import Model


class ClaimSpec(Model, frozen=True):
    volume_name: str = ""
    """Name of the volume that it is bound to; empty while there is none."""
    storage_class_name: str = ""


class PersistentVolumeClaim(Model, frozen=True):
    spec: ClaimSpec = ClaimSpec()


class VolumeNodeAffinity(Model, frozen=True):
    required: NodeSelector = NodeSelector()


class VolumeSpec(Model, frozen=True):
    node_affinity: VolumeNodeAffinity = VolumeNodeAffinity()


class PersistentVolume(Model, frozen=True):
    spec: VolumeSpec = VolumeSpec()


class TopologyValues(Model, frozen=True):
    key: str = ""
    values: list[str] | None = None


class TopologyTerm(Model, frozen=True):
    """Expressions that must all hold."""

    match_label_expressions: list[TopologyValues] | None = None


class StorageClass(Model, frozen=True):
    provisioner: str = ""
    volume_binding_mode: str = ""
    allowed_topologies: list[TopologyTerm] | None = None
    """Terms of which one must hold for a volume that is made; all places where there is none."""

    @property
    def waits_for_pod(self) -> bool:
        """Whether a volume is made where the pod is, once its node is chosen."""
        return self.volume_binding_mode == "WaitForFirstConsumer"
