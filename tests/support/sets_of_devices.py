"""The small cluster with more devices a node, in pools that constrain their sets."""

from typing import Any

from tests.support.cluster_state import Pick
from tests.support.small_cluster import SmallCluster


class SetsOfDevices(SmallCluster):
    """A cluster in which most pods need an aligned set of devices, or all of their slices on one."""

    homes = (*[("n1", "a")] * 4, *[("n2", "b")] * 3, ("n2", "a"))
    sizes = (1, 1, 2, 2, 3, 4, 8)

    def a_pool_spec(self, pick: Pick) -> dict[str, Any]:
        return {
            **super().a_pool_spec(pick),
            "resource": None,
            "mode": pick(("TimeSlice", "TimeSlice", "Exclusive")),
            "slices": pick((3, 4)),
            "topology": pick(("Required", "Required", "Preferred")),
            "closed": None,
        }
