"""CustomResourceDefinitions of ClusterPolicy and NVIDIADriver, with the columns of NVIDIA's GPU Operator.

They are installed with `nodeSoftware.enabled` only: a cluster has one definition of a name, and that of an installed
GPU Operator would be taken over.
"""

from typing import TYPE_CHECKING, Any, Final

from api.kinds.nvidia.clusterpolicy import ClusterPolicy
from api.kinds.nvidia.nvidiadriver import NVIDIADriver
from api.names import NVIDIA_GROUP
from manifests import custom_resource

if TYPE_CHECKING:
    from collections.abc import Mapping

_NOT_READY: Final = '.status.states[?(@.state=="notReady")]'
_STATUS: Final = custom_resource.Column(name="Status", path=".status.state")
_WHY_COLUMNS: Final = (
    # The API server shows the first of several.
    custom_resource.Column(
        name="Not-Ready",
        path=f"{_NOT_READY}.name",
        description="The first state that is not ready.",
        is_wide=True,
    ),
    custom_resource.Column(
        name="Missing",
        path=f"{_NOT_READY}.message",
        description="What that state misses, and where.",
        is_wide=True,
    ),
    custom_resource.condition_column("Why", "Error", is_wide=True, field="message"),
)

_KINDS: Final = (
    custom_resource.CustomResource(
        model=ClusterPolicy,
        plural="clusterpolicies",
        group=NVIDIA_GROUP,
        version="v1",
        columns=(_STATUS, custom_resource.AGE, *_WHY_COLUMNS),
        categories=(),
    ),
    custom_resource.CustomResource(
        model=NVIDIADriver,
        plural="nvidiadrivers",
        group=NVIDIA_GROUP,
        columns=(
            _STATUS,
            custom_resource.Column(name="Default", path=".spec.default", type="boolean"),
            custom_resource.AGE,
            *_WHY_COLUMNS,
        ),
        short_names=("nvd", "nvdriver", "nvdrivers"),
        categories=(),
    ),
)


def build_operator_crds(annotations: "Mapping[str, str] | None" = None) -> list[dict[str, Any]]:
    return custom_resource.build_definitions(_KINDS, annotations)
