"""Reasons are a closed, readable set; a node's refusal is one exact line."""

import re
from enum import Enum

import pytest

from api.kinds.gpupool import PoolPhase
from api.names import PoolName
from pool.refusal import CacheIncompatibility, NodeReason, NodeRefusal
from telemetry.conditions import PoolCondition, PoolReady
from telemetry.reasons import EventReason, RefusalReason, node_refusal_text

KINDS = (EventReason, RefusalReason, PoolCondition, PoolReady, PoolPhase, NodeReason)
TEXTS = {
    NodeReason.UNKNOWN_NODE: "GPU pool whole: node is not known to the GPU control plane",
    NodeReason.NODE_NOT_IN_POOL: "GPU pool whole: node has no device of the pool",
    NodeReason.NODE_TOO_SMALL: "GPU pool whole: 9 requested, node has 8, 2 of them unhealthy",
    NodeReason.INSUFFICIENT_UNITS: (
        "GPU pool whole: 9 requested, 1 free (3 used, 2 reserved, 2 unhealthy of 8)"
    ),
    NodeReason.UNACCOUNTED_PODS: "GPU pool whole: node runs a pod with unknown devices",
    NodeReason.NOT_ALIGNED: (
        "GPU pool whole: 9 requested and 1 free, but of these at most 4 are on one NUMA node or connected by NVLink,"
        " which the pool requires"
    ),
    NodeReason.CANNOT_ALIGN: (
        "GPU pool whole: 9 requested, but the pool requires one NUMA node or NVLink between all of the pod's devices,"
        " and node has at most 4 so"
    ),
    NodeReason.NO_DEVICE_WITH_CAPACITY: (
        "GPU pool whole: 9 requested and 1 free, but at most 4 of one device; in this pool a container gets its"
        " slices on one device, or whole devices"
    ),
    NodeReason.TOO_FEW_DEVICES: (
        "GPU pool whole: 9 requested, node has 8, but in this pool a container gets its slices on one device, or"
        " whole devices, and node has too few devices for that"
    ),
    NodeReason.KUBELET_WOULD_REJECT: (
        "GPU pool whole: 9 requested and 1 free, but kubelet would reject the pod: its topologyManagerPolicy is"
        " restricted, and at most 4 are free on one NUMA node"
    ),
    NodeReason.KUBELET_REJECTS: (
        "GPU pool whole: 9 requested, but kubelet rejects the pod on this node: its topologyManagerPolicy is"
        " restricted, and one NUMA node has at most 4"
    ),
    NodeReason.KUBELET_CHOOSES: (
        "GPU pool whole: 9 requested and 1 free, but kubelet, which aligns devices with other resources of this node,"
        " would choose a NUMA node on which not all containers get the devices that they need"
    ),
    NodeReason.POOL_CHANGING: (
        "GPU pool whole: pool is in maintenance and takes no pods until that is over"
        " (3 of 8 used on this node)"
    ),
    NodeReason.POOL_ENDING: "GPU pool whole: pool is being deleted",
    NodeReason.NODE_LEAVING: (
        "GPU pool whole: node is being deleted, or its autoscaler is about to remove it"
    ),
    NodeReason.NODE_STARTING: (
        "GPU pool whole: node is starting, and its units are for the pods that it was added for"
    ),
    NodeReason.DRIVER_UPGRADE: (
        "GPU pool whole: the driver of the node is being upgraded, and its devices take no new pods until that is over"
    ),
    NodeReason.CACHE_FITS_NO_DEVICE: (
        "GPU pool whole: kernel cache GKMCache team/llama fits no device of the pool on this node:"
        " arch 90 of the cache, device has 80"
    ),
    NodeReason.CACHE_FITS_TOO_FEW: (
        "GPU pool whole: 9 requested, but kernel cache GKMCache team/llama fits only devices with 8 units of the pool"
        " on this node: arch 90 of the cache, device has 80"
    ),
    NodeReason.INSUFFICIENT_FITTING_UNITS: (
        "GPU pool whole: 9 requested, 1 free (3 used, 2 reserved, 2 unhealthy of 8) on the devices of the pool on this"
        " node that kernel cache GKMCache team/llama fits: arch 90 of the cache, device has 80"
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_reasons_are_pascal_case(kind: type[Enum]):
    assert [item.value for item in kind if not re.fullmatch("([A-Z]+[a-z]*)+", item.value)] == []


@pytest.mark.parametrize("kind", KINDS)
def test_no_two_reasons_of_a_kind_are_the_same_word(kind: type[Enum]):
    # An enum takes a second member of the same value for an alias, and hides it from iteration.
    assert len(kind.__members__) == len(list(kind))


def test_event_reasons_fit_into_an_event():
    assert all(len(item.value) <= 128 for item in EventReason)


@pytest.mark.parametrize("reason", NodeReason)
def test_every_refusal_of_a_node_is_one_exact_line(reason: NodeReason):
    refusal = NodeRefusal(
        reason=reason,
        requested=9,
        free=1,
        reserved=2,
        used=3,
        unhealthy=2,
        total=8,
        largest=4,
        policy="restricted",
        incompatibility=CacheIncompatibility(
            "kernel cache GKMCache team/llama fits", "arch 90 of the cache, device has 80"
        ),
    )
    assert node_refusal_text(refusal, PoolName("whole")) == TEXTS[reason]


def test_figures_that_are_zero_are_left_out():
    small = NodeRefusal(reason=NodeReason.NODE_TOO_SMALL, requested=9, total=8)
    full = NodeRefusal(reason=NodeReason.INSUFFICIENT_UNITS, requested=2, free=0, used=8, total=8)
    pool = PoolName("whole")
    assert node_refusal_text(small, pool) == "GPU pool whole: 9 requested, node has 8"
    assert node_refusal_text(full, pool) == "GPU pool whole: 2 requested, 0 free (8 used of 8)"
