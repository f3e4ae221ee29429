"""Limits of a pool's nodes: units, nodes on their way, NodePools, and money. Each is kept, not only watched."""

from collections import Counter
from typing import TYPE_CHECKING, final

from api.vendor import GPU_RESOURCE
from autoscaling.nodes_per_hour import HOUR
from autoscaling.scaling_model import MICRO, PodWait, WaitReason

if TYPE_CHECKING:
    from autoscaling.scaling_model import ScalingParameters, ShapeParameters, Supply


@final
class ScalingLimits:
    """What may still be added, while a plan is made."""

    def __init__(
        self, parameters: "ScalingParameters", supply: "Supply", existing_units: int
    ) -> None:
        """Count what is there and on its way.

        Args:
            parameters: the pool's parameters.
            supply: requests on their way, NodePools, and money.
            existing_units: units of the pool's nodes that no request on its way is for.
        """
        self._parameters = parameters
        self._supply = supply
        self.units = existing_units
        """Units of nodes that exist, are on their way, or are to be asked for."""
        self._in_flight = 0
        self._of_hour = len(supply.nodes_of_last_hour)
        self._micro = supply.running_micro
        self._added: Counter[str] = Counter()
        # NodePool -> nodes that its figures do not count yet
        self._devices: Counter[str] = Counter()
        self._device_resources = {parameters.signal_resource, GPU_RESOURCE}
        # of which Karpenter counts the devices of an instance type, whatever signals request
        for request in supply.in_flight:
            shape = request.shape
            if shape is None or not request.is_in_flight:
                continue
            self._in_flight += 1
            self.units += shape.units
            if request.node is None:
                self._micro += shape.price_micro or 0
            if not request.is_launched:
                self._count(shape)
                self._of_hour += request.id not in supply.nodes_of_last_hour

    def take(self, shape: "ShapeParameters") -> None:
        """Count a node that is asked for."""
        self._in_flight += 1
        self._of_hour += 1
        self.units += shape.units
        self._micro += shape.price_micro or 0
        self._count(shape)

    def refusal(self, shape: "ShapeParameters") -> PodWait | None:
        """Return the limit that one more node of this shape would break."""
        return (
            self._by_node_pool(shape)
            or self._by_pool(shape)
            or self._by_money(shape)
            or self._by_hour()
        )

    def _count(self, shape: "ShapeParameters") -> None:
        self._added[shape.node_pool] += 1
        self._devices[shape.node_pool] += shape.devices

    def _by_pool(self, shape: "ShapeParameters") -> PodWait | None:
        parameters = self._parameters
        if parameters.max_units is not None and self.units + shape.units > parameters.max_units:
            return PodWait(
                WaitReason.MAX_UNITS,
                f"pool {parameters.pool.name} has or gets {self.units} units, and a node of shape {shape.name} "
                f"{shape.units} more: raise spec.autoscaling.maxUnits, which is {parameters.max_units}, or wait until pods end",
            )
        if self._in_flight >= parameters.max_in_flight:
            return PodWait(
                WaitReason.MAX_IN_FLIGHT,
                f"{self._in_flight} of at most {parameters.max_in_flight} nodes of pool {parameters.pool.name} are on their way: "
                "the next one is asked for when one has come; spec.autoscaling.maxInFlight allows more",
            )
        return None

    def _by_hour(self) -> PodWait | None:
        parameters = self._parameters
        if self._of_hour < parameters.max_nodes_per_hour:
            return None
        oldest = next(iter(self._supply.nodes_of_last_hour.values()), None)
        again = f" at {oldest + HOUR:%H:%M:%S} UTC" if oldest is not None else ""
        return PodWait(
            WaitReason.MAX_NODES_PER_HOUR,
            f"pool {parameters.pool.name} got or gets {self._of_hour} nodes within an hour, the most that "
            f"spec.autoscaling.maxNodesPerHour allows: see by its NodeClaims and their Events why they do not stay, or raise "
            f"it; the next one is asked for{again}",
        )

    def _by_node_pool(self, shape: "ShapeParameters") -> PodWait | None:
        node_pool = self._supply.node_pools.get(shape.node_pool)
        if node_pool is None:
            return None
        added = self._added[shape.node_pool]
        of_node = {
            "nodes": 1,
            "cpu": shape.cpu_milli or 0,
            "memory": shape.memory_mib or 0,
            **dict.fromkeys(self._device_resources, shape.devices),
        }
        for resource, limit in sorted(node_pool.limits.items()):
            used = node_pool.used.get(resource, 0)
            pending = (
                self._devices[shape.node_pool]
                if resource in self._device_resources
                else added * of_node.get(resource, 0)
            )
            # What is not known of the shape is at least something.
            if used + pending + max(1, of_node.get(resource, 0)) > limit:
                return PodWait(
                    WaitReason.NODE_POOL_LIMIT,
                    f"NodePool {shape.node_pool} uses or gets {_figure(resource, used + pending)} of its limit "
                    f"{_figure(resource, limit)} of {resource}: raise its spec.limits, or wait until its nodes go",
                )
        return None

    def _by_money(self, shape: "ShapeParameters") -> PodWait | None:
        parameters, price = self._parameters, shape.price_micro
        if not price:
            return None
        hour = self._micro + price
        if parameters.per_hour_micro is not None and hour > parameters.per_hour_micro:
            return PodWait(
                WaitReason.BUDGET_HOUR,
                f"the nodes of pool {parameters.pool.name} cost {amount_text(self._micro)} an hour, and a node of shape "
                f"{shape.name} {amount_text(price)} more: raise spec.autoscaling.budget.perHour, which is "
                f"{amount_text(parameters.per_hour_micro)}, or wait until nodes go",
            )
        day = self._supply.spent_today_micro + hour
        if parameters.per_day_micro is not None and day > parameters.per_day_micro:
            return PodWait(
                WaitReason.BUDGET_DAY,
                f"pool {parameters.pool.name} has cost {amount_text(self._supply.spent_today_micro)} today (UTC), and one hour "
                f"of its nodes with one more of shape {shape.name} costs {amount_text(hour)}: raise "
                f"spec.autoscaling.budget.perDay, which is {amount_text(parameters.per_day_micro)}, or wait for tomorrow",
            )
        return None


def amount_text(micro: int) -> str:
    """Return millionths as an amount with at least two places."""
    whole, remaining = divmod(micro, MICRO)
    return f"{whole}.{f'{remaining:06}'.rstrip('0'):0<2}"


def _figure(resource: str, count: int) -> str:
    if resource == "cpu":
        return f"{count / 1000:g}"
    return f"{count}Mi" if resource == "memory" else str(count)
