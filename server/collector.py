"""The garbage collector, told what the caches are.

A full collection walks every cached object while requests wait: measured 78 ms with 15,000 of them,
872 ms with as many dictionaries. What was listed at start lives on, so it is moved out of sight
(`gc.freeze`); young objects die by reference counting, so the first generation may grow larger.
"""

import gc
from typing import Final

FIRST_GENERATION: Final = 50_000


def calm_collector() -> None:
    """Take everything that lives now out of the collector's sight. Call when caches are filled."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(FIRST_GENERATION, 20, 20)
