"""`scalesignal.index`: signal pods, which make an autoscaler add nodes, as facts."""

import datetime as dt
from typing import TYPE_CHECKING, Final

from api import names
from api.foreign.core import DEFAULT_SCHEDULER, PodSpec
from api.meta import Condition, Model, ObjectMeta
from api.status_conditions import parse_time
from autoscaling.scaling_model import RequestId, SignalFacts
from kube.informer import Selection
from kube.store import IndexedStore

if TYPE_CHECKING:
    from api.foreign.core import NodeSelectorTerm

LABEL_SELECTOR: Final = f"{names.COMPONENT_LABEL}={names.SCALE_SIGNAL}"
_DIGITS: Final = 3
"""Digits of the number of devices of a node."""
_EPOCH: Final = dt.datetime.fromtimestamp(0, dt.UTC)


class _SignalStatus(Model, frozen=True):
    phase: str = ""
    conditions: list[Condition] | None = None


class SignalPod(Model, frozen=True):
    """The part of a pod that shows the state of a signal."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: _SignalStatus = _SignalStatus()


def selection(namespace: str) -> Selection:
    """Return what the informer watches."""
    return Selection(namespace=namespace, label_selector=LABEL_SELECTOR)


def observe_signal(pod: SignalPod) -> SignalFacts | None:
    """Return the facts of a signal; one that another client changed is there too, and not intact.

    None for any other pod: what is deleted as a signal is never decided by the answer of a watch alone.
    """
    meta, spec = pod.metadata, pod.spec
    if meta.label(names.COMPONENT_LABEL) != names.SCALE_SIGNAL:
        return None
    request = RequestId(meta.label(names.SCALE_REQUEST_LABEL) or "")
    selector = dict(spec.node_selector or {})
    asked = selector.pop(names.SCALE_REQUEST_LABEL, "")
    devices = meta.annotation(names.SCALE_DEVICES_ANNOTATION) or ""
    pool, shape = (
        meta.label(names.SCALING_POOL_LABEL) or "",
        meta.annotation(names.SHAPE_ANNOTATION) or "",
    )
    is_named = bool(request) and meta.name == f"scale-{request}"
    marked = next(
        (condition for condition in pod.status.conditions or () if _is_unschedulable(condition)),
        None,
    )
    # Deadlines begin when the autoscaler was asked, and the clock of that time is the one that they are compared with.
    asked_at = parse_time(marked.last_transition_time) if marked is not None else None
    return SignalFacts(
        name=meta.name,
        uid=meta.uid,
        request=request,
        pool=names.PoolName(pool),
        shape=shape,
        devices=int(devices) if devices.isdecimal() and len(devices) <= _DIGITS else 0,
        created=asked_at or parse_time(meta.creation_timestamp or "") or _EPOCH,
        node_selector=selector,
        affinity=_required_terms(spec),
        node=spec.node_name,
        is_terminating=meta.deletion_timestamp is not None,
        is_intact=is_named
        and bool(pool)
        and bool(shape)
        and asked in {"", request}
        and (not asked or spec.scheduler_name != DEFAULT_SCHEDULER),
        is_marked=marked is not None,
    )


def scale_signal_store() -> "IndexedStore[str, names.PoolName, SignalFacts]":
    """Return a store of signals by pool; publishes the pools of changed ones."""
    return IndexedStore(
        lambda item: item.name,
        lambda item: item.pool,
        identify=lambda unread: (unread.name, names.PoolName("")),
    )


def _required_terms(spec: PodSpec) -> "tuple[NodeSelectorTerm, ...]":
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    required = affinity.required if affinity is not None else None
    return tuple(required.node_selector_terms or ()) if required is not None else ()


def _is_unschedulable(condition: Condition) -> bool:
    return (condition.type, condition.status, condition.reason) == (
        "PodScheduled",
        "False",
        "Unschedulable",
    )
