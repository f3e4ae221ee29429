"""Karpenter's objects and signal pods as facts, whatever others wrote into them."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from api.foreign.karpenter import NodeClaim, NodePool
from api.meta import ObjectMeta
from autoscaling.scaling_model import SignalFacts
from reconciler.sinks.karpenter import (
    NodeClaimSink,
    observe_claim,
    observe_node_pool,
    whole_counts,
)
from reconciler.sinks.scale_signal import SignalPod, observe_signal, scale_signal_store
from tests.support.scale_requests import ID, a_claim, a_signal, after, true_since

LABELS = {
    "gpu.deckhouse.io/component": "scale-signal",
    "gpu.deckhouse.io/scaling-pool": "whole",
    "gpu.deckhouse.io/scale-request": ID,
}


def seen(pod: SignalPod) -> SignalFacts:
    found = observe_signal(pod)
    assert found is not None
    return found


def a_signal_pod(**changes: Any) -> SignalPod:
    meta = {
        "name": f"scale-{ID}",
        "uid": "u",
        "creationTimestamp": "2026-03-01T12:00:00Z",
        "labels": changes.get("labels", LABELS),
        "annotations": {
            "gpu.deckhouse.io/shape": "large",
            "gpu.deckhouse.io/scale-devices": changes.get("devices", "8"),
        },
    }
    selector = {"gpu.deckhouse.io/scale-request": changes.get("asked", ID), "zone": "a"}
    spec = {"schedulerName": changes.get("scheduler", "gpu.deckhouse.io/none")}
    conditions = [{"type": "PodScheduled", "status": "False", "reason": changes.get("reason", "")}]
    body = {
        "metadata": meta,
        "spec": {**spec, "nodeSelector": selector, "nodeName": changes.get("node", "")},
        "status": {"conditions": conditions},
    }
    return msgspec.convert(body, SignalPod)


def test_a_signal_as_it_was_made():
    found = seen(a_signal_pod(reason="Unschedulable"))
    assert (found.request, found.pool, found.shape, found.devices) == (ID, "whole", "large", 8)
    assert (found.node_selector, found.created) == ({"zone": "a"}, after(0))
    assert found.is_intact
    assert found.is_marked
    assert not seen(a_signal_pod()).is_marked


@pytest.mark.parametrize(
    "change",
    [
        {"asked": "whole-ffffffffff"},
        {"scheduler": "default-scheduler"},
        {"labels": {**LABELS, "gpu.deckhouse.io/scale-request": "whole-ffffffffff"}},
        {"labels": {**LABELS, "gpu.deckhouse.io/scaling-pool": ""}},
    ],
)
def test_a_signal_that_somebody_changed_is_not_intact(change: dict[str, Any]):
    assert not seen(a_signal_pod(**change)).is_intact


@pytest.mark.parametrize("devices", ["", "-1", "many", "9" * 5000, "\u0665x"])
def test_a_number_of_devices_that_is_none_counts_as_none(devices: str):
    assert seen(a_signal_pod(devices=devices)).devices == 0


def test_a_signal_wakes_its_pool():
    store = scale_signal_store()
    woken: list[str] = []
    store.changes.subscribe(woken.append)
    store.upsert(a_signal())
    store.upsert(a_signal())
    store.discard(a_signal())
    assert woken == ["whole", "whole"]


def test_a_claim_with_what_decides():
    body = {
        "metadata": {
            "name": "whole-x",
            "uid": "u",
            "creationTimestamp": "2026-03-01T12:00:01Z",
            "labels": {
                "karpenter.sh/nodepool": "whole",
                "gpu.deckhouse.io/scale-request": ID,
                "topology.kubernetes.io/zone": "a",
            },
        },
        "status": {
            "nodeName": "n1",
            "conditions": [
                {
                    "type": "Launched",
                    "status": "True",
                    "lastTransitionTime": "2026-03-01T12:00:05Z",
                },
                {"type": "Registered", "status": "Unknown", "reason": "x" * 999},
            ],
        },
    }
    found = observe_claim(msgspec.convert(body, NodeClaim))
    assert (found.request, found.zone, found.node) == (ID, "a", "n1")
    assert found.launched == true_since(5)
    assert len(found.registered.reason) <= 256
    assert not found.initialized.is_true


def test_a_claim_without_anything_is_no_request():
    found = observe_claim(NodeClaim())
    assert (found.request, found.is_terminating) == (None, False)


def test_limits_are_whole_counts_and_what_is_no_quantity_is_left_out():
    limits: dict[str, str | int | float] = {
        "cpu": "1.5",
        "memory": "2Gi",
        "nodes": 8,
        "nvidia.com/gpu": "x",
    }
    assert whole_counts(limits) == {"cpu": 1500, "memory": 2048, "nodes": 8}
    template = {"spec": {"expireAfter": "720h"}}
    body = {"metadata": {"name": "p"}, "spec": {"limits": limits, "template": template}}
    facts = observe_node_pool(msgspec.convert(body, NodePool))
    assert (facts.limits["nodes"], facts.expire_after) == (8, "720h")


# --- claims that are gone ---


def test_the_last_facts_of_a_claim_that_failed_are_kept():
    sink = NodeClaimSink()
    sink.upsert(a_claim())
    last = replace(a_claim(), is_terminating=True)
    sink.discard(last)
    assert (sink.get(last.name), sink.deleted()) == (None, (last,))


def test_a_claim_that_a_list_lacks_is_gone_with_its_last_facts():
    sink = NodeClaimSink()
    other = replace(a_claim(2), request=None)
    sink.replace_all([a_claim(), other])
    sink.replace_all([])
    assert (list(sink), sink.deleted()) == ([], (a_claim(),))


def test_a_claim_of_the_same_name_is_another_one():
    sink = NodeClaimSink()
    sink.upsert(a_claim())
    again = replace(a_claim(), uid="again")
    sink.upsert(again)
    sink.discard(a_claim())
    assert (list(sink), sink.deleted()) == ([again], (a_claim(),))


def test_initialized_nodes_that_go_leave_no_facts():
    sink = NodeClaimSink()
    old = replace(a_claim(), initialized=true_since(9))
    sink.upsert(old)
    sink.discard(old)
    assert sink.deleted() == ()


def test_a_pod_without_the_label_of_signals_is_none_whatever_the_watch_sends():
    assert observe_signal(SignalPod(metadata=ObjectMeta(name="scale-training-1"))) is None
