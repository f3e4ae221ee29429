"""Checks of the API server on our kinds beyond the types: CEL rules, list semantics, limits.

Data only; `api.crd.openapi` merges it into the CRD schemas. Rules here need one object only.
Rules about several objects (two pools with one resource, a device of another pool) are admission's.
The models do not enforce these rules when they decode: an object that was stored before a rule
existed must stay readable.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

from api import names
from api.cache_name import MAX_CACHE_NAME_LENGTH
from api.crd import scaling_cel
from api.crd.cel_rule import CelRule
from api.crd.nvidia_cel import NVIDIA_LIMITS, NVIDIA_REQUIRED, NVIDIA_RULES
from api.foreign.core import Taint
from api.kinds import device_selector, gkmcache, gpunodeinventory, gpupool
from api.kinds.autoscaling import Autoscaling, NodeShape, ShapeRequirement, ShapeStatus
from api.kinds.gkmcachenode import CachedDigest, NodeGPUs
from api.kinds.gpudevice import DeviceRepair, GPUDeviceStatus, LastXid, Link, MIGInstance
from api.kinds.leadershipterm import GPUControlPlaneTermSpec
from api.kinds.nvidia.operator_status import StateStatus
from api.meta import Condition, LabelSelector, SelectorOperator, SelectorRequirement

CACHE_RULES: Final = (
    CelRule(
        expression=f"self.metadata.name.size() <= {MAX_CACHE_NAME_LENGTH}",
        message=f"metadata.name is longer than {MAX_CACHE_NAME_LENGTH} characters, so that the finalizer"
        " gkm.io.<name>/finalizer would exceed what Kubernetes accepts; choose a shorter name",
    ),
)

VERIFICATION_RULES: Final = (
    CelRule(
        expression="(has(self.keys) && self.keys.size() > 0)"
        " || (has(self.identities) && self.identities.size() > 0)",
        message="verification accepts no signature: name a key or an identity, or remove verification"
        " for the cluster's default",
        field="keys",
        reason="FieldValueRequired",
    ),
)


LABEL_KEY_PATTERN: Final = (
    "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
)
LABEL_VALUE_PATTERN: Final = "^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"
MAX_LABEL_KEY_LENGTH: Final = 317  # a DNS subdomain (253), a slash, a name (63)
MAX_LABEL_VALUE_LENGTH: Final = 63


def _cel_list(words: frozenset[str]) -> str:
    return "[" + ", ".join(f"'{word}'" for word in sorted(words)) + "]"


_HAS_NAME: Final = "(has({0}.resource) && has({0}.resource.name))"
"""Spelled with has(): the API server cannot bound the cost of comparing optional values."""
_NO_POOL_WORDS: Final = _cel_list(names.RESERVED_POOL_NAMES)
_NO_RESOURCE_WORDS: Final = _cel_list(
    frozenset(names.RESOURCE_PREFIX + word for word in names.RESERVED_POOL_NAMES)
)

_POOL_RULES: Final = (
    CelRule(
        expression=f"self.metadata.name.size() <= {names.MAX_POOL_NAME_LENGTH}",
        message=f"metadata.name is longer than {names.MAX_POOL_NAME_LENGTH} characters, so that"
        f" {names.RESOURCE_PREFIX}<name> would exceed the {names.MAX_RESOURCE_NAME_LENGTH} that kubelet takes;"
        " choose a shorter name",
    ),
    CelRule(
        expression=f"self.metadata.name.matches('{names.POOL_NAME_PATTERN}')",
        message="metadata.name must consist of lower-case letters, digits and '-', and start and end"
        " with a letter or digit, because it becomes part of a resource name; choose another name",
    ),
    CelRule(
        expression=f"!(self.metadata.name in {_NO_POOL_WORDS})",
        message=f"metadata.name is a reserved word ({', '.join(sorted(names.RESERVED_POOL_NAMES))});"
        " choose another name",
    ),
)

_ALLOCATION_RULES: Final = (
    CelRule(
        expression="self.mode != 'MIG' || has(self.migProfile) || (has(self.mig) && self.mig.size() > 0)",
        message="mode MIG needs a profile: set migProfile, for instance 1g.10gb, or mig for several",
        field="migProfile",
        reason="FieldValueRequired",
    ),
    CelRule(
        expression="!has(self.migProfile) || !has(self.mig)",
        message="migProfile and mig exclude each other: remove one of them",
        field="mig",
        reason="FieldValueForbidden",
    ),
    CelRule(
        expression="self.mode == 'MIG' || !has(self.mig)",
        message="mig has a meaning in mode MIG only: remove it, or set mode to MIG",
        field="mig",
        reason="FieldValueForbidden",
    ),
    CelRule(
        expression="!has(self.mig) || self.mig.all(a, self.mig.exists_one(b, a.profile == b.profile))",
        message="a profile is in mig once: add up its counts",
        field="mig",
    ),
    CelRule(
        expression="!has(self.mig) || self.mig.filter(share, !has(share.count)).size() <= 1",
        message="only one profile of mig can have as many instances as fit: give the others a count",
        field="mig",
    ),
    CelRule(
        expression="self.mode == 'MIG' || !has(self.migProfile)",
        message="migProfile has a meaning in mode MIG only: remove it, or set mode to MIG",
        field="migProfile",
        reason="FieldValueForbidden",
    ),
    CelRule(
        expression="self.mode != 'TimeSlice' || has(self.slicesPerDevice)",
        message="mode TimeSlice needs the number of slices of a device: set slicesPerDevice (2 to 64, with slicePlacement SameDevice to 100)",
        field="slicesPerDevice",
        reason="FieldValueRequired",
    ),
    CelRule(
        expression="self.mode == 'TimeSlice' || !has(self.slicesPerDevice)",
        message="slicesPerDevice has a meaning in mode TimeSlice only:"
        " remove it, or set mode to TimeSlice",
        field="slicesPerDevice",
        reason="FieldValueForbidden",
    ),
    CelRule(
        expression="self.mode == 'TimeSlice' || !has(self.slicePlacement)",
        message="slicePlacement has a meaning in mode TimeSlice only:"
        " remove it, or set mode to TimeSlice",
        field="slicePlacement",
        reason="FieldValueForbidden",
    ),
    CelRule(
        expression=f"!has(self.slicesPerDevice) || self.slicesPerDevice <= {names.MAX_DISTINCT_SLICES}"
        " || (has(self.slicePlacement) && self.slicePlacement == 'SameDevice')",
        message=f"slicesPerDevice above {names.MAX_DISTINCT_SLICES} needs slicePlacement SameDevice",
        field="slicesPerDevice",
    ),
)

_VALUES_RULES: Final = (
    CelRule(
        expression="!(self.operator in ['In', 'NotIn']) || self.?values.orValue([]).size() > 0",
        message="operators In and NotIn need at least one value",
        field="values",
        reason="FieldValueRequired",
    ),
    CelRule(
        expression="!(self.operator in ['Exists', 'DoesNotExist']) || self.?values.orValue([]).size() == 0",
        message="operators Exists and DoesNotExist take no values: remove them",
        field="values",
        reason="FieldValueForbidden",
    ),
)

RULES: Final[Mapping[type, tuple[CelRule, ...]]] = {
    GPUControlPlaneTermSpec: (
        CelRule(
            expression="self.number > oldSelf.number"
            " || (self.number == oldSelf.number && self.holder == oldSelf.holder)",
            message="number only goes up, and another holder needs a higher one:"
            " bindings of a term that is over must stay refused",
            field="number",
        ),
    ),
    gpupool.GPUPool: _POOL_RULES,
    gpupool.GPUPoolSpec: (
        CelRule(
            expression=f"{_HAS_NAME.format('self')} == {_HAS_NAME.format('oldSelf')}"
            f" && (!{_HAS_NAME.format('self')} || self.resource.name == oldSelf.resource.name)",
            message="resource.name cannot change, because running pods hold the resource under it;"
            " create another pool",
            field="resource.name",
        ),
        *scaling_cel.POOL_RULES,
    ),
    Autoscaling: scaling_cel.AUTOSCALING_RULES,
    gkmcache.GKMCache: CACHE_RULES,
    gkmcache.ClusterGKMCache: CACHE_RULES,
    gkmcache.Verification: VERIFICATION_RULES,
    NodeShape: scaling_cel.SHAPE_RULES,
    gpupool.PoolResource: (
        CelRule(
            expression=f"!has(self.name) || !(self.name in {_NO_RESOURCE_WORDS})",
            message="name ends in a reserved word"
            f" ({', '.join(sorted(names.RESERVED_POOL_NAMES))}); choose another name",
            field="name",
        ),
    ),
    gpupool.Allocation: _ALLOCATION_RULES,
    gpupool.Assignment: (
        CelRule(
            expression="!(self.requireAnnotation && has(self.autoApproveSelector))",
            message="autoApproveSelector contradicts requireAnnotation: true (the default):"
            " set requireAnnotation to false to take devices by label, or remove the selector",
            field="autoApproveSelector",
            reason="FieldValueForbidden",
        ),
    ),
    gpupool.Maintenance: (
        CelRule(
            expression="self.deadline.matches('^([0-9]{1,6}(h|m|s))+$')"
            " && duration(self.deadline) >= duration('1m')"
            " && duration(self.deadline) <= duration('168h')",
            message="deadline must be a duration from 1m to 168h, such as 30m or 24h",
            field="deadline",
        ),
    ),
    gpupool.ReservationPolicy: (
        CelRule(
            # Six digits at most: a duration that overflows fails the rule without its message.
            expression="self.ttl.matches('^([0-9]{1,6}(h|m|s))+$')"
            " && duration(self.ttl) >= duration('5s') && duration(self.ttl) <= duration('1h')",
            message="ttl must be a duration from 5s to 1h, such as 90s or 2m",
            field="ttl",
        ),
    ),
    SelectorRequirement: _VALUES_RULES,
    ShapeRequirement: (*_VALUES_RULES, *scaling_cel.SHAPE_REQUIREMENT_RULES),
    **NVIDIA_RULES,
}
"""Model -> the rules of its objects, at every place in a schema."""

LIST_KEYS: Final[Mapping[type, tuple[str, ...]]] = {
    Condition: ("type",),
    Link: ("peer", "type"),
    MIGInstance: ("uuid",),
    gpunodeinventory.OperandStatus: ("name",),
    gpunodeinventory.PoolDevices: ("pool",),
    gkmcache.PullSecret: ("name",),
    gkmcache.SignerIdentity: ("subject", "issuer"),
    StateStatus: ("name",),
    Taint: ("key", "effect"),
}
"""Item of a list -> its keys, so that writers of different items do not conflict."""

ATOMIC_LISTS: Final = frozenset(
    {
        (SelectorRequirement, "values"),
        (ShapeRequirement, "values"),
        (gpunodeinventory.ContainerDevices, "units"),
        (gkmcache.GKMCacheSpec, "access_modes"),
        (gkmcache.GKMCacheSpec, "workload_namespaces"),
        (ShapeStatus, "compute_capabilities"),
        (CachedDigest, "compatible_gpus"),
        (CachedDigest, "incompatible_gpus"),
        (NodeGPUs, "ids"),
        # One writer, and up to a thousand items: ownership of each would double the object.
        (gpunodeinventory.GPUNodeInventoryStatus, "allocations"),
    }
)
"""Lists that are replaced as a whole. Of the others, lists of strings are sets."""

ENUM_MEMBERS: Final[Mapping[type[Enum], tuple[Enum, ...]]] = {
    SelectorOperator: (
        SelectorOperator.IN,
        SelectorOperator.NOT_IN,
        SelectorOperator.EXISTS,
        SelectorOperator.DOES_NOT_EXIST,
    ),
}
"""Enums of which our kinds accept fewer members than the models, which also decode other kinds."""

TEXT_ENUMS: Final[Mapping[tuple[type, str], type[Enum]]] = {
    (gpupool.GPUPoolStatus, "phase"): gpupool.PoolPhase,
}
"""Fields that our kinds take members of an enum in; to the model they are text, so that it reads those of later versions."""

REQUIRED: Final[Mapping[type, tuple[str, ...]]] = {
    Condition: ("lastTransitionTime", "message", "reason"),
    gkmcache.GKMCacheSpec: ("image",),
    Taint: ("key", "effect"),
    **NVIDIA_REQUIRED,
}
"""Fields with a default in the model that are required in our kinds."""

_LABEL_KEY: Final = {
    "minLength": 1,
    "maxLength": MAX_LABEL_KEY_LENGTH,
    "pattern": LABEL_KEY_PATTERN,
}
_LABEL_VALUES: Final[Mapping[str, Any]] = {"maxItems": 256}

LIMITS: Final[Mapping[tuple[type, str], Mapping[str, Any]]] = {
    (Autoscaling, "budget"): {"minProperties": 1},
    (Autoscaling, "signal_resource"): {"pattern": LABEL_KEY_PATTERN},
    (NodeShape, "node_pool"): {"pattern": "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"},
    (CachedDigest, "last_updated"): {"format": "date-time"},
    (Condition, "last_transition_time"): {"format": "date-time"},
    (device_selector.DeviceSelector, "exclude"): {"minProperties": 1},
    (gkmcache.GKMCacheSpec, "pod_template"): {"x-kubernetes-preserve-unknown-fields": True},
    (gkmcache.GKMCacheStatus, "last_updated"): {"format": "date-time"},
    (GPUDeviceStatus, "uuid"): {"pattern": f"^({names.UUID_PATTERN})?$"},
    (gpunodeinventory.GPUNodeInventoryStatus, "allocations"): {
        "maxItems": gpunodeinventory.MAX_ALLOCATIONS
    },
    (gpunodeinventory.GPUNodeInventoryStatus, "driver_processes"): {
        "maxItems": gpunodeinventory.MAX_DRIVER_PROCESSES
    },
    (DeviceRepair, "since"): {"format": "date-time"},
    (DeviceRepair, "started"): {"format": "date-time"},
    (LastXid, "time"): {"format": "date-time"},
    (gpunodeinventory.GPUNodeInventoryStatus, "last_heartbeat"): {"format": "date-time"},
    (gpunodeinventory.Monitoring, "last_heartbeat"): {"format": "date-time"},
    (gpunodeinventory.OperandStatus, "since"): {"format": "date-time"},
    (LabelSelector, "match_expressions"): {"maxItems": 32},
    (LabelSelector, "match_labels"): {"maxProperties": 64},
    (MIGInstance, "uuid"): {"pattern": f"^{names.UUID_PATTERN}$"},
    (gpupool.Scheduling, "topology_key"): {"pattern": LABEL_KEY_PATTERN},
    (SelectorRequirement, "key"): _LABEL_KEY,
    (SelectorRequirement, "values"): _LABEL_VALUES,
    (ShapeRequirement, "key"): _LABEL_KEY,
    (ShapeRequirement, "operator"): {
        "enum": [member.value for member in SelectorOperator if member.value]
    },
    (ShapeRequirement, "values"): {
        **_LABEL_VALUES,
        "items": {"maxLength": MAX_LABEL_VALUE_LENGTH},  # or a rule on one value costs too much
    },
    (Taint, "effect"): {"enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"]},
    (Taint, "key"): _LABEL_KEY,
    (Taint, "value"): {"maxLength": MAX_LABEL_VALUE_LENGTH, "pattern": LABEL_VALUE_PATTERN},
    **NVIDIA_LIMITS,
}
"""(model, attribute) -> keywords of its schema. Values that a node or pod would be refused for later
are refused here, and CEL can bound its cost."""
