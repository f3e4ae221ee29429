"""How much of the process the questions of one viewer may take, and those of all: what-if and details of a pod.

They are answered in one step of the event loop, in which no stream is written. A token stands for some 10 ms of it at
2,000 nodes: a viewer has a tenth of the processor in the long run, all together four tenths.
"""

from collections import OrderedDict
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, final

from console.edge.console_answers import RefusedError
from http_edge.reviews.token_bucket import TokenBucket

if TYPE_CHECKING:
    from api.clock import Clock
    from console.console_data import PodTrial

OF_POD: Final = 2.0
"""Details of a pod, which say why it waits: 8 to 64 ms."""
VIEWER_A_SECOND: Final = 10.0
VIEWER_BURST: Final = 40
"""The dearest question takes 30."""
ALL_A_SECOND: Final = 40.0
ALL_BURST: Final = 80
MAX_VIEWERS: Final = 1_000
"""Whose use is known; the one that asked longest ago goes first."""
_PODS_A_TOKEN: Final = 40
"""1,000 pods took 263 to 327 ms."""
_NODES_A_TOKEN: Final = 16


def cost_of_trial(trial: "PodTrial") -> float:
    return 1 + trial.times / _PODS_A_TOKEN + len(trial.cordoned) / _NODES_A_TOKEN


@final
class QuestionLimits:
    """Refuses questions beyond the share of their viewer, or of all."""

    def __init__(self, clock: "Clock") -> None:
        self._clock = clock
        self._of_all = TokenBucket(a_second=ALL_A_SECOND, burst=ALL_BURST)
        self._by_viewer: OrderedDict[str, TokenBucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_viewer)

    def take(self, viewer: str, cost: float) -> None:
        """Count a question.

        Raises:
            RefusedError: 429; it is not to be answered now.
        """
        now = self._clock.monotonic()
        bucket = self._by_viewer.pop(viewer, None)
        if bucket is None:
            bucket = TokenBucket(a_second=VIEWER_A_SECOND, burst=VIEWER_BURST)
        self._by_viewer[viewer] = bucket
        if len(self._by_viewer) > MAX_VIEWERS:
            self._by_viewer.popitem(last=False)
        if not (bucket.take(now, cost) and self._of_all.take(now, cost)):
            raise RefusedError(
                HTTPStatus.TOO_MANY_REQUESTS,
                "too many questions about pods are asked; try again in a second",
                {"Retry-After": "1"},
            )
