"""CustomResourceDefinitions of ClusterPolicy and NVIDIADriver, with the columns of NVIDIA's GPU Operator.

They are installed with `nodeSoftware.enabled` only: a cluster has one definition of a name, and that of an installed
GPU Operator would be taken over.
"""

from typing import TYPE_CHECKING, Any, Final

from api.kinds.nvidia.clusterpolicy import ClusterPolicy
from api.kinds.nvidia.nvidiadriver import NVIDIADriver
from api.names import NVIDIA_GROUP
from manifests.custom_resource import (
    AGE,
    Column,
    CustomResource,
    build_definitions,
    condition_column,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

_NOT_READY: Final = '.status.states[?(@.state=="notReady")]'
_STATUS: Final = Column(name="Status", path=".status.state")
_WHY_COLUMNS: Final = (
    # The API server shows the first of several.
    Column(
        name="Not-Ready",
        path=f"{_NOT_READY}.name",
        description="The first state that is not ready.",
        is_wide=True,
    ),
    Column(
        name="Missing",
        path=f"{_NOT_READY}.message",
        description="What that state misses, and where.",
        is_wide=True,
    ),
    condition_column("Why", "Error", is_wide=True, field="message"),
)

_KINDS: Final = (
    CustomResource(
        model=ClusterPolicy,
        plural="clusterpolicies",
        group=NVIDIA_GROUP,
        version="v1",
        columns=(_STATUS, AGE, *_WHY_COLUMNS),
        categories=(),
    ),
    CustomResource(
        model=NVIDIADriver,
        plural="nvidiadrivers",
        group=NVIDIA_GROUP,
        columns=(
            _STATUS,
            Column(name="Default", path=".spec.default", type="boolean"),
            AGE,
            *_WHY_COLUMNS,
        ),
        short_names=("nvd", "nvdriver", "nvdrivers"),
        categories=(),
    ),
)


def build_operator_crds(annotations: "Mapping[str, str] | None" = None) -> list[dict[str, Any]]:
    return build_definitions(_KINDS, annotations)
