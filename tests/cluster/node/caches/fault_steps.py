"""What happens in a fault run of kernel caches, by seed: pods and caches come and go while parts of the node fail."""

import random
from dataclasses import dataclass
from enum import Enum
from typing import Final, final


class StepKind(Enum):
    """One thing that happens."""

    START_POD = "start a pod"
    END_POD = "end a pod"
    CHANGE_IMAGE = "change an image"
    DELETE_CACHE = "delete a cache"
    MAKE_CACHE = "make a deleted cache again"
    AGENT = "kill -9 the agent, or start it again"
    KUBELET = "restart kubelet"
    REGISTRY = "stop the registry, or start it again"


_WEIGHTS: Final = {
    StepKind.START_POD: 12,
    StepKind.END_POD: 7,
    StepKind.CHANGE_IMAGE: 6,
    StepKind.DELETE_CACHE: 2,
    StepKind.MAKE_CACHE: 3,
    StepKind.AGENT: 4,
    StepKind.KUBELET: 1,
    StepKind.REGISTRY: 3,
}


@final
@dataclass(frozen=True, slots=True)
class Step:
    """A kind, and a number that chooses among what there is."""

    kind: StepKind
    choice: int


def make_steps(seed: int, count: int) -> list[Step]:
    """Return steps of which every kind happens, where there are enough of them."""
    rng = random.Random(seed)
    first = list(StepKind)[:count]
    drawn = rng.choices(list(_WEIGHTS), list(_WEIGHTS.values()), k=count - len(first))
    kinds = [*first, *drawn]
    rng.shuffle(kinds)
    return [Step(kind, rng.randrange(1 << 16)) for kind in kinds]
