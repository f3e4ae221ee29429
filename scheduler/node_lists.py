"""Node lists of requests, decoded once and kept with their answers.

kube-scheduler sends prioritize the names that filter answered, and filter often those of the pod before. A list is
recognized by its bytes, so two lists are never mixed up. Its names stay the same `str` objects, with their hashes,
and answers on them hold while their view does not change. A few lists of bounded length are kept.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

from scheduler import codec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from api.names import NodeName
    from pool.index.node_view import FitView


MAX_LISTS: Final = 4
"""Number of lists. One kube-scheduler needs two, before and after filter; more would push needed data out of the
processor's caches.
"""
MAX_LIST_BYTES: Final = 512 * 1024
"""Most bytes of one list: 5,000 nodes with names of a hundred letters. With its answers a list takes four times
that."""
_VIEWS: Final = 4
"""Pools and sizes for which a list keeps answers."""


@dataclass(frozen=True, slots=True)
class Filtered:
    """filter's reply: the body, and the nodes that fit."""

    body: bytes
    fit: int
    """Number of nodes that fit."""
    passing: "Candidates | None" = None
    """The nodes that fit; None when all do."""


@dataclass(frozen=True, slots=True)
class Scored:
    """prioritize's reply."""

    body: bytes
    any_fits: bool
    best: "NodeName | None" = None
    """The node that is better than all others; None where the best by score are equal, and kube-scheduler chooses."""
    value_lost: int | None = None
    """Milli of devices by which the pod lowers the value of the best node, where that made it the best."""


@dataclass(slots=True)
class ViewAnswers:
    """Answers of one view for one list, each with the reading of the view's counter."""

    filtered: "Filtered | None" = None
    filtered_at: tuple[int, int] = (-1, -1)
    """`FitView.refusals_moved`, and the index's generation where the answer rests on more than the view."""
    scored: "Scored | None" = None
    """prioritize's reply by the view alone."""
    scored_at: int = -1
    """`FitView.scores_moved`."""
    _items: "Sequence[bytes | None] | None" = None
    _items_at: int = -1

    def keep_items(self, items: "Sequence[bytes | None]", view: "FitView") -> None:
        """Keep the items that filter has looked up, for the prioritize that follows."""
        self._items, self._items_at = items, view.scores_moved

    def take_items(self, view: "FitView") -> "Sequence[bytes | None] | None":
        """Return and drop the kept items; None if a score has changed since."""
        items, self._items = self._items, None
        return items if self._items_at == view.scores_moved else None


@final
class Candidates:
    """The names of one request, in its order, and their JSON array as it was sent."""

    __slots__ = ("_answers", "ending", "names", "raw")

    def __init__(self, raw: bytes, names: "list[NodeName]") -> None:
        self.raw = raw
        self.names = names
        self.ending = codec.NODE_NAMES_END % raw
        self._answers: dict[FitView, ViewAnswers] = {}

    def answers(self, view: "FitView") -> ViewAnswers:
        """Return the mutable answers of the view for this list."""
        found = self._answers.get(view)
        if found is None:
            if len(self._answers) >= _VIEWS:
                del self._answers[next(iter(self._answers))]
            found = self._answers[view] = ViewAnswers()
        return found


@dataclass(frozen=True, slots=True)
class ExtenderCall:
    """filter and prioritize: a pod, and the nodes it may go to."""

    pod: "codec.ExtenderPod"
    candidates: Candidates


@final
@dataclass(slots=True)
class CandidatesReader:
    """Decodes ExtenderArgs as `decode_candidates` does, and faster.

    A request that ends in `,"NodeNames":<array>}` after a JSON object, once that is closed by a brace, is that object
    with this array as its last member: no other reading of the bytes is possible. So its halves are decoded apart, and
    a half that was decoded before is not decoded again. Every other form is left to `decode_candidates`.
    """

    _lists: list[Candidates] = field(default_factory=list)
    # the one that came last is the first
    _pod: "tuple[bytes, codec.ExtenderPod] | None" = None
    # prioritize brings the pod that filter brought

    def read(self, body: bytes) -> ExtenderCall | codec.MalformedArgs:
        candidates = self._cached_candidates(body) or self._read_list(body)
        if candidates is not None:
            pod = self._read_pod(body[: -len(candidates.ending)])
            if pod is not None:
                return ExtenderCall(pod, candidates)
        request = codec.decode_candidates(body)
        if isinstance(request, codec.MalformedArgs):
            return request
        return ExtenderCall(
            request.pod, Candidates(codec.encode_names(request.names), request.names)
        )

    def expect(self, candidates: Candidates) -> None:
        """Keep the list that filter answers, since prioritize will be called with it."""
        if len(candidates.ending) > MAX_LIST_BYTES:
            return
        if candidates in self._lists:
            self._lists.remove(candidates)
        self._lists.insert(0, candidates)
        del self._lists[MAX_LISTS:]

    def _cached_candidates(self, body: bytes) -> Candidates | None:
        for place, candidates in enumerate(self._lists):
            if body.endswith(candidates.ending):
                self._lists.insert(0, self._lists.pop(place))
                return candidates
        return None

    def _read_list(self, body: bytes) -> Candidates | None:
        read = codec.decode_names(body)
        if read is None:
            return None
        candidates = Candidates(*read)
        self.expect(candidates)
        return candidates

    def _read_pod(self, before: bytes) -> "codec.ExtenderPod | None":
        if self._pod is not None and self._pod[0] == before:
            return self._pod[1]
        pod = codec.decode_pod_before_names(before)
        if pod is not None:
            self._pod = (before, pod)
        return pod
