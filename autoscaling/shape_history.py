"""What failed of a shape lately, how long it is left alone, when it is left out, and what devices its nodes have.

Kept in `status.autoscaling.shapes`, so that a restart goes on where its predecessor was. A failure counts once: in the pass
that sees for the first time that its request has failed.
"""

import datetime as dt
import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from api.kinds.autoscaling import ShapeStatus
from api.status_conditions import format_time, parse_time
from api.well_known_labels import ZONE_LABEL
from autoscaling.scaling_model import Failure, RequestPhase, ShapeHistory

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from api.kinds.autoscaling import ScaleRequestStatus
    from autoscaling.scaling_model import ObservedRequest, RequestId, ScalingParameters

FIRST_PAUSE: Final = dt.timedelta(minutes=3)
"""Karpenter's provider remembers that a type has no capacity for three minutes, too."""
LONGEST_PAUSE: Final = dt.timedelta(minutes=30)
SHORT_PAUSE: Final = dt.timedelta(minutes=1)
"""Short pause after failures that say nothing about the shape: an autoscaler that comes back is asked within this
time."""
MOST_WITHOUT_DEVICES: Final = 2
"""Nodes without devices, or with fewer than promised, after which a shape is left out: each of them is paid for."""
_NOT_OF_THE_SHAPE: Final = frozenset({Failure.NOT_SIGNALLED, Failure.SIGNAL_TAMPERED})
_NOT_AS_PROMISED: Final = frozenset({Failure.NO_DEVICES, Failure.FEWER_DEVICES})
_DONE: Final = frozenset({RequestPhase.AGENT_READY, RequestPhase.RESERVED, RequestPhase.RELEASED})
_JITTER: Final = 10
"""Percent that a pause is longer at most, so that pools that failed together do not ask together."""


def updated_history(
    history: "Iterable[ShapeHistory]",
    parameters: "ScalingParameters",
    observed: "Iterable[ObservedRequest]",
    *,
    recorded: "Sequence[ScaleRequestStatus]",
    capabilities: "Mapping[str, tuple[str, ...]]",
    now: dt.datetime,
) -> tuple[ShapeHistory, ...]:
    """Return the history with what this pass shows for the first time; in the order of shapes and zones.

    Args:
        history: of the pass before.
        parameters: the pool's parameters; shapes that are not in them are forgotten, and a changed spec tries all again.
        observed: the pool's requests.
        recorded: the pool's `status.autoscaling.requests`, of the pass before.
        capabilities: shape -> compute capabilities of the devices that its nodes report.
        now: the time.
    """
    found = {
        (current.shape, current.zone): current
        for entry in history
        if (current := _as_of(entry, parameters, now)) is not None
    }
    failed_ids = {item.id for item in recorded if item.phase == RequestPhase.FAILED.value}
    for request in observed:
        if request.shape is None:
            continue
        if request.phase in _DONE:
            if not _has_fewer_units(request):
                _clear(found, request)
        elif request.failure is not None and request.id not in failed_ids:
            entry = _failed(found, request, parameters.generation, now=now)
            found[entry.shape, entry.zone] = entry
    for shape, values in capabilities.items():
        entry = found.get((shape, "")) or ShapeHistory(shape=shape)
        found[shape, ""] = replace(
            entry, capabilities=values, capabilities_at=parameters.generation
        )
    return tuple(found[key] for key in sorted(found))


def new_failures(
    observed: "Iterable[ObservedRequest]", recorded: "Sequence[ScaleRequestStatus]"
) -> "tuple[ObservedRequest, ...]":
    """Return the requests that failed since the pass before."""
    failed_ids = {item.id for item in recorded if item.phase == RequestPhase.FAILED.value}
    return tuple(
        item for item in observed if item.failure is not None and item.id not in failed_ids
    )


def pause_after(failures: int, request: "RequestId") -> dt.timedelta:
    """Return how long a shape is left alone after so many failures in a row, with the jitter of the request's id."""
    pause = _pause_without_jitter(failures)
    digest = hashlib.sha256(request.encode()).digest()[0]
    return pause + pause * _JITTER * digest / (100 * 256)


def _pause_without_jitter(failures: int) -> dt.timedelta:
    return min(FIRST_PAUSE * (1 << min(failures - 1, 10)), LONGEST_PAUSE)


def _longest_pause(failures: int) -> dt.timedelta:
    """Return how long a pause after so many failures may be; none are failures that say nothing about the shape."""
    if failures == 0:
        return SHORT_PAUSE
    pause = _pause_without_jitter(failures)
    return pause + pause * _JITTER / 100


def history_from(shapes: "Iterable[ShapeStatus] | None") -> tuple[ShapeHistory, ...]:
    """Return the history that a status keeps."""
    return tuple(
        ShapeHistory(
            shape=item.name,
            zone=item.zone,
            failures=item.failures,
            retry_after=parse_time(item.retry_after),
            without_devices=item.nodes_without_devices,
            excluded_at=item.excluded_at,
            reason=item.reason,
            message=item.message,
            capabilities=tuple(item.compute_capabilities or ()),
            capabilities_at=item.capabilities_at,
        )
        for item in shapes or ()
    )


def shape_statuses(history: "Iterable[ShapeHistory]") -> list[ShapeStatus]:
    """Return a history as a status keeps it."""
    return [
        ShapeStatus(
            name=item.shape,
            zone=item.zone,
            failures=item.failures,
            retry_after=format_time(item.retry_after) if item.retry_after is not None else "",
            nodes_without_devices=item.without_devices,
            excluded_at=item.excluded_at,
            reason=item.reason,
            message=item.message,
            compute_capabilities=list(item.capabilities) or None,
            capabilities_at=item.capabilities_at,
        )
        for item in history
    ]


def _as_of(
    entry: ShapeHistory, parameters: "ScalingParameters", now: dt.datetime
) -> ShapeHistory | None:
    """Return what still counts of an entry; None where nothing does."""
    if parameters.shape(entry.shape) is None:
        return None
    if entry.excluded_at not in {0, parameters.generation}:
        entry = replace(entry, excluded_at=0, without_devices=0)
    if entry.capabilities_at != parameters.generation:
        entry = replace(entry, capabilities=(), capabilities_at=0)
    latest = now + _longest_pause(entry.failures)
    if entry.retry_after is not None and entry.retry_after > latest:
        entry = replace(entry, retry_after=latest)  # a clock that was ahead wrote it
    if entry.retry_after is None or entry.retry_after + LONGEST_PAUSE <= now:
        entry = replace(entry, failures=0, retry_after=None)  # long ago
    counts = entry.failures or entry.retry_after or entry.without_devices or entry.capabilities
    return entry if counts else None


def _clear(found: "dict[tuple[str, str], ShapeHistory]", request: "ObservedRequest") -> None:
    """Forget the failures of a shape that works, everywhere and where this node is."""
    shape = request.shape.name if request.shape is not None else ""
    zone = request.claim.zone if request.claim is not None else _zone_of(request)
    for key in ((shape, ""), (shape, zone)):
        found.pop(key, None)


def _has_fewer_units(request: "ObservedRequest") -> bool:
    """Say whether a node that was handed over has fewer usable units than promised, which was its failure."""
    node, shape = request.node, request.shape
    return node is not None and shape is not None and node.indexed_units < shape.units


def _zone_of(request: "ObservedRequest") -> str:
    """Return the zone that the pods of the request pinned; empty where they did not."""
    selectors = [signal.node_selector for signal in request.signals]
    zones = {selector.get(ZONE_LABEL, "") for selector in selectors}
    return zones.pop() if len(zones) == 1 else ""


def _failed(
    found: "Mapping[tuple[str, str], ShapeHistory]",
    request: "ObservedRequest",
    generation: int,
    *,
    now: dt.datetime,
) -> ShapeHistory:
    name = request.shape.name if request.shape is not None else ""
    failure = request.failure
    zone = "" if failure in _NOT_OF_THE_SHAPE else _zone_of(request)
    entry = found.get((name, zone)) or ShapeHistory(shape=name, zone=zone)
    message = request.message if failure in _NOT_AS_PROMISED else ""
    entry = replace(entry, reason=failure.value if failure is not None else "", message=message)
    pauses = entry.retry_after is not None and entry.retry_after > now
    if failure in _NOT_AS_PROMISED:
        count = entry.without_devices + 1
        excluded_at = generation if count >= MOST_WITHOUT_DEVICES else 0
        entry = replace(entry, without_devices=count, excluded_at=excluded_at)
    if failure in _NOT_OF_THE_SHAPE:
        return entry if pauses else replace(entry, retry_after=now + SHORT_PAUSE)
    if pauses and entry.failures:
        return entry  # asked for before the pause began: one cause, one pause
    failures = entry.failures + 1
    return replace(entry, failures=failures, retry_after=now + pause_after(failures, request.id))
