"""Parts of a pod that a spec hands on as they are: affinity to nodes, and the security context.

Kubernetes judges their values when it gets the DaemonSet; the schema knows their shape only, as upstream's does.
"""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from api.kinds.nvidia.operand_block import Int32, Texts
from api.meta import SparseModel

_ATOMIC: Final = Meta(extra_json_schema={"x-kubernetes-map-type": "atomic"})


class NodeExpression(SparseModel, frozen=True):
    """An expression on a label or a field of nodes."""

    key: str
    """Key of the label, or name of the field."""
    operator: str
    """In, NotIn, Exists, DoesNotExist, Gt or Lt."""
    values: Texts | None = None
    """Values to compare with; none for Exists and DoesNotExist, one number for Gt and Lt."""


class NodeTerm(SparseModel, frozen=True):
    """Expressions that must all hold."""

    match_expressions: list[NodeExpression] | None = None
    """Expressions on labels of the node."""
    match_fields: list[NodeExpression] | None = None
    """Expressions on fields of the node."""


class RequiredNodes(SparseModel, frozen=True):
    """Nodes on which the pods may run."""

    node_selector_terms: list[Annotated[NodeTerm, _ATOMIC]]
    """Terms of which one must hold."""


class PreferredNodes(SparseModel, frozen=True):
    """Nodes that are preferred."""

    weight: Int32
    """Weight of the preference, from 1 to 100."""
    preference: Annotated[NodeTerm, _ATOMIC]
    """The nodes."""


class DriverNodeAffinity(SparseModel, frozen=True):
    """Affinity of pods to nodes, as a pod spells it."""

    required: Annotated[RequiredNodes, _ATOMIC] | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    """Nodes on which the pods may run."""
    preferred: list[PreferredNodes] | None = msgspec.field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )
    """Nodes that are preferred."""


class PodToleration(SparseModel, frozen=True):
    """A taint that the pods tolerate."""

    key: str = ""
    """Key of the taint; empty with operator Exists: every key."""
    operator: str = ""
    """Exists or Equal; Equal if left out."""
    value: str = ""
    """Value of the taint, with operator Equal."""
    effect: str = ""
    """NoSchedule, PreferNoSchedule or NoExecute; empty: every effect."""
    toleration_seconds: int | None = None
    """How long a NoExecute taint is tolerated; for ever if left out."""


class SELinuxOptions(SparseModel, frozen=True):
    """The SELinux context of containers."""

    level: str = ""
    """SELinux level."""
    role: str = ""
    """SELinux role."""
    type: str = ""
    """SELinux type."""
    user: str = ""
    """SELinux user."""


class SecurityProfile(SparseModel, frozen=True):
    """A seccomp or AppArmor profile."""

    type: str
    """Localhost, RuntimeDefault or Unconfined."""
    localhost_profile: str = ""
    """Name of a profile on the node, with type Localhost."""


class Sysctl(SparseModel, frozen=True):
    """A kernel parameter of the pod's namespace."""

    name: str
    """Name of the parameter."""
    value: str
    """Its value."""


class WindowsOptions(SparseModel, frozen=True):
    """Options of containers on Windows, where no operand runs."""

    gmsa_credential_spec: str = ""
    """The GMSA credential spec."""
    gmsa_credential_spec_name: str = ""
    """Name of the GMSA credential spec."""
    host_process: bool | None = None
    """Whether the container is a host process."""
    run_as_user_name: str = ""
    """Name of the user."""


_Groups = Annotated[list[int], Meta(extra_json_schema={"x-kubernetes-list-type": "atomic"})]


class PodSecurityContext(SparseModel, frozen=True):
    """Security settings of a pod."""

    app_armor_profile: SecurityProfile | None = None
    """AppArmor profile of the containers."""
    fs_group: int | None = None
    """Group that owns the pod's volumes."""
    fs_group_change_policy: str = ""
    """When the ownership of volumes is changed: OnRootMismatch or Always."""
    run_as_group: int | None = None
    """Group of the containers' first process."""
    run_as_non_root: bool | None = None
    """Whether containers that would run as root are refused."""
    run_as_user: int | None = None
    """User of the containers' first process."""
    se_linux_change_policy: str = ""
    """How volumes get their SELinux label: MountOption or Recursive."""
    se_linux_options: SELinuxOptions | None = None
    """SELinux context of the containers."""
    seccomp_profile: SecurityProfile | None = None
    """Seccomp profile of the containers."""
    supplemental_groups: _Groups | None = None
    """Further groups of the containers' first process."""
    supplemental_groups_policy: str = ""
    """How groups of the image count: Merge or Strict."""
    sysctls: list[Sysctl] | None = None
    """Kernel parameters of the pod."""
    windows_options: WindowsOptions | None = None
    """Options on Windows."""
