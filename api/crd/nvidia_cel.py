"""Checks of the API server on ClusterPolicy and NVIDIADriver beyond the types; `api.crd.cel` says where they belong.

Two rules are upstream's own: a default NVIDIADriver selects no nodes, and two of its fields cannot change. The
others say on every write what NVIDIA's GPU Operator says late, in a condition or a log, or once when it starts.
An operand that is switched off is not judged, since nothing of it runs.
"""

from collections.abc import Mapping
from typing import Any, Final

from api.crd.cel_rule import CelRule
from api.kinds.nvidia import container_operands, sandbox_operands
from api.kinds.nvidia.clusterpolicy import ClusterPolicySpec, ClusterPolicyStatus
from api.kinds.nvidia.driver_blocks import DriverSpec, GDRCopy, GPUDirectStorage
from api.kinds.nvidia.nvidiadriver import NVIDIADriverSpec, NVIDIADriverStatus
from api.kinds.nvidia.operand_block import ImageFields, Switchable
from api.kinds.nvidia.operator_blocks import ROLLING_LIMIT, RollingUpdate
from api.kinds.nvidia.operator_status import NodeUpgradeStatus, StateStatus
from api.kinds.nvidia.upgrade_policy import ClusterUpgradePolicy, DriverUpgradePolicy
from api.names import DRIVER_OWNER_LABEL

MAX_UPGRADED_NODES: Final = 5000
"""Most entries of `status.upgrade`: 5,000 entries of 200 bytes are a megabyte, and the API server stores 1.5."""

_OPEN_ONLY_GDS: Final = (
    "^v?([3-9]|[1-9][0-9]+|2[.](1[89]|[2-9][0-9]|[0-9]{3,}|17[.]([5-9]|[0-9]{2,})))([.+-]|$)"
)
"""Versions from 2.17.5 on. Short, since the API server bounds the cost of a rule by the length of its expression."""
_PERCENTAGE: Final = "0*([0-9]|[1-9][0-9]|100)%"


def _is_on(field: str, *, by_default: bool = False) -> str:
    return f"(!has({field}) || {field})" if by_default else f"(has({field}) && {field})"


def _is_set(field: str) -> str:
    return f"(has({field}) && size({field}) > 0)"


def _is_whole(block: str) -> str:
    """Return an expression: the image has all three fields, or neither repository nor version."""
    repository, image, version = (
        _is_set(f"{block}.{field}") for field in ("repository", "image", "version")
    )
    return f"({repository} ? {image} && {version} : !{version})"


def _half_image(expression: str, field: str = "") -> CelRule:
    of = f" of {field}" if field else ""
    return CelRule(
        expression=expression,
        message=f"the image{of} is given in half: set repository, image and version, or image alone to the whole"
        " reference",
        field=field,
    )


def _image_rule(operand: type[ImageFields]) -> CelRule:
    if not issubclass(operand, Switchable):
        return _half_image(_is_whole("self"))
    on = _is_on("self.enabled", by_default=operand.on_by_default)
    return _half_image(f"!{on} || {_is_whole('self')}")


def _manager_rule(field: str, *, is_used: str = "") -> CelRule:
    is_unused = f"!{is_used} || " if is_used else ""
    return _half_image(f"{is_unused}!has(self.{field}) || {_is_whole(f'self.{field}')}", field)


_OPERANDS: Final[tuple[type[ImageFields], ...]] = (
    sandbox_operands.CCManagerSpec,
    container_operands.DCGMExporterSpec,
    container_operands.DCGMSpec,
    container_operands.DevicePluginSpec,
    GDRCopy,
    GPUDirectStorage,
    container_operands.GPUFeatureDiscoverySpec,
    sandbox_operands.KataDevicePluginSpec,
    container_operands.MIGManagerSpec,
    container_operands.NodeStatusExporterSpec,
    sandbox_operands.SandboxDevicePluginSpec,
    container_operands.ToolkitSpec,
    container_operands.ValidatorSpec,
    sandbox_operands.VGPUDeviceManagerSpec,
)


def _runs_driver(driver: str) -> str:
    """Return an expression: the policy runs the driver itself."""
    return f"({_is_on(f'{driver}.enabled', by_default=True)} && !{_is_on(f'{driver}.useNvidiaDriverCRD')})"


_RUNS_DRIVER: Final = _runs_driver("self")
_NO_DIGEST: Final = CelRule(
    expression=f"!{_is_on('self.usePrecompiled')}"
    " || !(has(self.version) && self.version.startsWith('sha256:'))",
    message="a precompiled driver needs a tag, to which the kernel and the system of the node are appended:"
    " set version to the driver's branch",
    field="version",
)


def _no_modules(is_precompiled: str) -> CelRule:
    # has() of an absent block is an error, so that each block is asked for before its field.
    module = " || ".join(
        f"(has(self.{block}) && {_is_on(f'self.{block}.enabled')})" for block in ("gds", "gdrcopy")
    )
    return CelRule(
        expression=f"!{is_precompiled} || !({module})",
        message="a precompiled driver runs without GPUDirect Storage and GDRCopy: switch gds and gdrcopy off, or"
        " usePrecompiled",
        reason="FieldValueForbidden",
    )


_POLICY_RULES: Final = (
    CelRule(
        expression="!(has(self.cdi) && self.cdi.nriPluginEnabled)"
        f" || (self.cdi.enabled && {_is_on('self.toolkit.enabled', by_default=True)})",
        message="cdi.nriPluginEnabled needs CDI and the container toolkit: set cdi.enabled and toolkit.enabled to true",
        field="cdi",
    ),
    _no_modules(
        f"({_runs_driver('self.driver')} && {_is_on('self.driver.usePrecompiled')})",
    ),
)

_DRIVER_OBJECT_RULES: Final = (
    CelRule(
        expression="has(self.default) && self.default"
        " ? !has(self.nodeSelector) || size(self.nodeSelector) == 0 : true",
        message="the default NVIDIADriver gets the nodes that no other selects: remove nodeSelector, or set default to"
        " false",
        field="nodeSelector",
        reason="FieldValueForbidden",
    ),
    CelRule(
        expression=f"!has(self.nodeSelector) || !('{DRIVER_OWNER_LABEL}' in self.nodeSelector)",
        message=f"nodeSelector names the label {DRIVER_OWNER_LABEL}, which follows from the selectors: select nodes by"
        " other labels",
        field="nodeSelector",
        reason="FieldValueForbidden",
    ),
    _half_image(_is_whole("self")),
    _manager_rule("manager"),
    _NO_DIGEST,
    _no_modules(_is_on("self.usePrecompiled")),
    CelRule(
        expression=f"!(has(self.gds) && {_is_on('self.gds.enabled')} && has(self.gds.version)"
        f" && (self.gds.version.startsWith('sha256') || self.gds.version.matches('{_OPEN_ONLY_GDS}')))"
        " || self.kernelModuleType == 'open'",
        message="GPUDirect Storage runs with the open kernel modules only from version 2.17.5 on, or by digest:"
        " set kernelModuleType to open",
        field="kernelModuleType",
    ),
)

NVIDIA_RULES: Final[Mapping[type, tuple[CelRule, ...]]] = {
    **{operand: (_image_rule(operand),) for operand in _OPERANDS},
    ClusterPolicySpec: _POLICY_RULES,
    DriverSpec: (
        _half_image(f"!{_RUNS_DRIVER} || {_is_whole('self')}"),
        _manager_rule("manager", is_used=_RUNS_DRIVER),
        CelRule(
            expression=f"!{_RUNS_DRIVER} || {_NO_DIGEST.expression}",
            message=_NO_DIGEST.message,
            field=_NO_DIGEST.field,
        ),
    ),
    sandbox_operands.VFIOManagerSpec: (
        _image_rule(sandbox_operands.VFIOManagerSpec),
        _manager_rule("driverManager", is_used=_is_on("self.enabled")),
    ),
    sandbox_operands.VGPUManagerSpec: (
        _image_rule(sandbox_operands.VGPUManagerSpec),
        _manager_rule("driverManager", is_used=_is_on("self.enabled")),
    ),
    NVIDIADriverSpec: _DRIVER_OBJECT_RULES,
}


def _unchangeable(field: str) -> dict[str, Any]:
    rule = CelRule(
        expression="self == oldSelf",
        message=f"{field} cannot change: create another NVIDIADriver, and remove this one",
    )
    return {"x-kubernetes-validations": [rule.to_schema()]}


_MAX_UNAVAILABLE: Final = {"minimum": 0, "pattern": f"^{_PERCENTAGE}$"}
_CONDITIONS: Final = {
    "items": {
        "required": ["lastTransitionTime", "message", "reason", "status", "type"],
        "properties": {
            "message": {"maxLength": 32768},
            "observedGeneration": {"default": None, "minimum": 0},
            "reason": {
                "minLength": 1,
                "maxLength": 1024,
                "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
            },
            "type": {
                "maxLength": 316,
                "pattern": "^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
                "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
            },
        },
    }
}
"""Limits of `metav1.Condition`, which upstream's kinds have."""

NVIDIA_LIMITS: Final[Mapping[tuple[type, str], Mapping[str, Any]]] = {
    (ClusterUpgradePolicy, "max_unavailable"): _MAX_UNAVAILABLE,
    (DriverUpgradePolicy, "max_unavailable"): _MAX_UNAVAILABLE,
    (RollingUpdate, "max_unavailable"): {"pattern": f"^(|{ROLLING_LIMIT})$"},
    (NVIDIADriverSpec, "driver_type"): _unchangeable("driverType"),
    (NVIDIADriverSpec, "use_precompiled"): _unchangeable("usePrecompiled"),
    (ClusterPolicyStatus, "conditions"): _CONDITIONS,
    (NVIDIADriverStatus, "conditions"): _CONDITIONS,
    **{
        (status, "upgrade"): {"maxItems": MAX_UPGRADED_NODES}
        for status in (ClusterPolicyStatus, NVIDIADriverStatus)
    },
    (NodeUpgradeStatus, "since"): {"format": "date-time"},
    (StateStatus, "since"): {"format": "date-time"},
}

NVIDIA_REQUIRED: Final[Mapping[type, tuple[str, ...]]] = {
    ClusterPolicySpec: (
        "daemonsets",
        "dcgm",
        "dcgmExporter",
        "devicePlugin",
        "driver",
        "gfd",
        "nodeStatusExporter",
        "operator",
        "toolkit",
    ),
    ClusterPolicyStatus: ("state",),
    NVIDIADriverSpec: ("default", "driverType", "image"),
    NVIDIADriverStatus: ("state",),
}
