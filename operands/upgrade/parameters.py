"""The parameters of a policy: `upgradePolicy` of a ClusterPolicy's driver or of an NVIDIADriver, judged.

The kinds' own defaults are in `api.kinds.nvidia.upgrade_policy`. A field that cannot be read is a fault: no node starts while
there is one, and nodes in progress end as usual. A number of nodes beyond what is possible is read as the nearest possible
one, with a note. NVIDIA's GPU Operator stops without a word in the first case, and in the second one where the number is
negative.
"""

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

from api.field_errors import FieldError
from api.selector_text import parse_label_selector
from api.text import truncate

if TYPE_CHECKING:
    from api.kinds.nvidia.upgrade_policy import ClusterUpgradePolicy
    from api.meta import LabelSelector
    from api.names import PoolName

_PERCENTAGE: Final = re.compile(r"[+-]?[0-9]{1,9}%", re.ASCII)
_LONGEST_S: Final = 10 * 365 * 86_400
"""A time limit beyond ten years counts as ten years."""


@final
@dataclass(frozen=True, slots=True)
class NodeLimit:
    """A number of nodes, or a percentage of them."""

    amount: int
    is_percentage: bool = False

    def of(self, total: int) -> int:
        """Return the number of nodes: percentages are rounded up, and it is within 0 and the total."""
        number = -(-self.amount * total // 100) if self.is_percentage else self.amount
        return max(0, min(number, total))

    @classmethod
    def parse(cls, text: int | str) -> "NodeLimit | None":
        """Return the limit that a number, or a text such as `25%`, is."""
        if isinstance(text, int):
            return cls(text)
        is_one = _PERCENTAGE.fullmatch(text)
        return cls(int(text.removesuffix("%")), is_percentage=True) if is_one else None

    def __str__(self) -> str:
        return f"{self.amount}%" if self.is_percentage else str(self.amount)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitedPods:
    """Pods whose end is waited for before any pod is evicted."""

    selector: "LabelSelector | None" = None
    pools: "frozenset[PoolName]" = frozenset()
    """Pods of these pools are waited for, too."""
    limit_s: int = 0
    """0: for as long as it takes."""

    @property
    def is_any(self) -> bool:
        return self.selector is not None or bool(self.pools)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionLimits:
    force: bool = False
    """Evict pods that no controller creates again."""
    delete_empty_dir: bool = False
    """Evict pods with an emptyDir, whose content is lost."""
    selector: "LabelSelector | None" = None
    """Selector of a drain: the pods that are evicted; None: all."""
    limit_s: int = 300
    """0: for as long as it takes."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeParameters:
    """How the nodes of one owner are upgraded."""

    auto_upgrade: bool = False
    max_parallel: int = 1
    """Nodes in progress at once; 0: no limit."""
    max_unavailable: NodeLimit = NodeLimit(25, is_percentage=True)
    awaited: AwaitedPods = AwaitedPods()
    pod_deletion: EvictionLimits | None = None
    """How pods that use the driver are evicted; None: they are not, but by a drain."""
    drain: EvictionLimits | None = None
    """How all pods are evicted where evicting users of the driver did not suffice; None: they are not."""
    has_validator: bool = True
    """Without a validator in the installation a ready driver pod suffices."""
    faults: tuple[FieldError, ...] = ()
    """Fields that cannot be read: no node starts."""
    notes: tuple[FieldError, ...] = ()
    """Fields that count as another value."""


OFF: Final = UpgradeParameters()
"""Parameters of nodes that no policy is for."""


def read_parameters(
    policy: "ClusterUpgradePolicy",
    *,
    path: str,
    pools: "frozenset[PoolName]" = frozenset(),
    has_validator: bool = True,
) -> UpgradeParameters:
    """Return the parameters of a policy.

    Args:
        policy: as its author wrote it, with the kind's defaults.
        path: where it stands in its object, for texts.
        pools: whose pods are waited for, beside those of `waitForCompletion.podSelector`.
        has_validator: whether the installation validates drivers.
    """
    fields = _Fields(path)
    waiting, deletion, drain = policy.wait_for_completion, policy.pod_deletion, policy.drain
    awaited = AwaitedPods(pools=pools)
    if waiting is not None:
        awaited = AwaitedPods(
            selector=fields.selector("waitForCompletion.podSelector", waiting.pod_selector),
            pools=pools,
            limit_s=fields.seconds("waitForCompletion.timeoutSeconds", waiting.timeout_seconds),
        )
    evicted = drained = None
    if deletion is not None:
        evicted = EvictionLimits(
            force=deletion.force,
            delete_empty_dir=deletion.delete_empty_dir,
            limit_s=fields.seconds("podDeletion.timeoutSeconds", deletion.timeout_seconds),
        )
    if drain is not None and drain.enable:
        drained = EvictionLimits(
            force=drain.force,
            delete_empty_dir=drain.delete_empty_dir,
            selector=fields.selector("drain.podSelector", drain.pod_selector),
            limit_s=fields.seconds("drain.timeoutSeconds", drain.timeout_seconds),
        )
    return UpgradeParameters(
        auto_upgrade=policy.auto_upgrade,
        max_parallel=fields.count("maxParallelUpgrades", policy.max_parallel_upgrades),
        max_unavailable=fields.limit("maxUnavailable", policy.max_unavailable),
        awaited=awaited,
        pod_deletion=evicted,
        drain=drained,
        has_validator=has_validator,
        faults=tuple(fields.faults),
        notes=tuple(fields.notes),
    )


@dataclass
class _Fields:
    """Reads fields, and collects what is wrong with them."""

    path: str
    faults: list[FieldError] = field(default_factory=list)
    notes: list[FieldError] = field(default_factory=list)

    def _refuse(self, name: str, text: str) -> None:
        self.faults.append(FieldError(f"{self.path}.{name}", text))

    def count(self, name: str, value: int) -> int:
        if value < 0:
            self._refuse(name, f"{value} is less than 0")
        return max(0, value)

    def seconds(self, name: str, value: int) -> int:
        return min(self.count(name, value), _LONGEST_S)

    def selector(self, name: str, text: str) -> "LabelSelector | None":
        try:
            return parse_label_selector(text) if text.strip() else None
        except ValueError as error:
            self._refuse(name, str(error))
            return None

    def limit(self, name: str, value: int | str) -> NodeLimit:
        given = NodeLimit.parse(value)
        if given is None:
            quoted = truncate(repr(value), 64)
            self._refuse(name, f"{quoted} is neither a number nor a percentage such as 25%")
            return NodeLimit(0)
        used = NodeLimit(max(0, given.amount), is_percentage=given.is_percentage)
        if used.is_percentage and used.amount > 100:
            used = NodeLimit(100, is_percentage=True)
        if used != given:
            self.notes.append(FieldError(f"{self.path}.{name}", f"{given} counts as {used}"))
        return used
