"""The part of a spec that every operand has: its image, resources, arguments and environment.

Lists are replaced as a whole, as upstream's schema has them: it names no keys.
"""

from typing import Annotated, ClassVar, Final

from msgspec import Meta

from api.meta import SparseModel

QUANTITY_PATTERN: Final = (
    "^(\\+|-)?(([0-9]+(\\.[0-9]*)?)|(\\.[0-9]+))"
    "(([KMGTPE]i)|[numkMGTPE]|([eE](\\+|-)?(([0-9]+(\\.[0-9]*)?)|(\\.[0-9]+))))?$"
)

Texts = Annotated[list[str], Meta(extra_json_schema={"x-kubernetes-list-type": "atomic"})]
"""A list in which a text may occur twice."""
Int32 = Annotated[int, Meta(extra_json_schema={"format": "int32"})]
PositiveInt32 = Annotated[int, Meta(ge=1, extra_json_schema={"format": "int32"})]
Count = Annotated[int, Meta(ge=0, extra_json_schema={"format": None})]
ImageName = Annotated[str, Meta(pattern="[a-zA-Z0-9\\-]+")]
Quantity = int | Annotated[str, Meta(pattern=QUANTITY_PATTERN)]


class Switchable:
    """A block with a field `enabled` of three values; the operand decides what absence means."""

    __slots__ = ()

    on_by_default: ClassVar[bool] = False
    enabled: bool | None

    @property
    def is_enabled(self) -> bool:
        return self.on_by_default if self.enabled is None else self.enabled


class EnvVar(SparseModel, frozen=True):
    """An environment variable of a container."""

    name: str
    """Name of the variable."""
    value: str = ""
    """Its value."""


class ContainerResources(SparseModel, frozen=True):
    """Compute resources of a container."""

    limits: dict[str, Quantity] | None = None
    """Most of each resource that the container may use."""
    requests: dict[str, Quantity] | None = None
    """What is reserved for the container of each resource; the limits if left out."""


class ConfigReference(SparseModel, frozen=True):
    """Refers to a ConfigMap in the namespace of the operands."""

    name: str = ""
    """Name of the ConfigMap; empty: none."""


class DefaultedConfig(ConfigReference, frozen=True):
    """Refers to a ConfigMap that holds several configurations."""

    default: str = ""
    """Key of the configuration that nodes get of which no label selects one."""


class ImageFields(SparseModel, frozen=True):
    """An image: repository, image and version together, or image alone with the whole reference."""

    image_variable: ClassVar[str] = ""
    """Environment variable of the control plane that names the image where the object names none."""

    repository: str = ""
    """Registry and path, such as registry.example.com/nvidia."""
    image: ImageName = ""
    """Name of the image; without repository and version the whole reference."""
    version: str = ""
    """Tag, or a digest that begins with sha256:."""
    image_pull_policy: str = ""
    """Always, IfNotPresent or Never; any other value counts as IfNotPresent."""
    image_pull_secrets: Texts | None = None
    """Secrets with the registry's credentials, in the namespace of the operands."""


class ContainerFields(ImageFields, frozen=True):
    """A container: an image, with arguments and environment."""

    args: Texts | None = None
    """Arguments of the container."""
    env: list[EnvVar] | None = None
    """Environment variables of the container, over those of the operand."""


class PodFields(ContainerFields, frozen=True):
    """The pods of an operand."""

    resources: ContainerResources = ContainerResources()
    """Compute resources of each container."""
    host_network: bool | None = None
    """Whether the pods use the network of their node."""


class OperandBlock(PodFields, Switchable, frozen=True):
    """An operand that can be switched off."""

    enabled: bool | None = None
    """Whether the operand runs; what counts if left out depends on the operand."""


class DriverManager(ImageFields, frozen=True):
    """The k8s-driver-manager: an init container that frees the node's devices before a driver is loaded."""

    image_variable: ClassVar[str] = "DRIVER_MANAGER_IMAGE"

    env: list[EnvVar] | None = None
    """Environment variables of the container, over those of the operand."""


class Switch(SparseModel, Switchable, frozen=True):
    """A feature that is on or off."""

    enabled: bool | None = None
    """Whether the feature is on; off if left out."""
