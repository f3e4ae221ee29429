"""Metrics that a page shows only while a component writes them.

A gauge without labels reads 0 from the start, which would be a statement: `gpu_operator_reconciliation_status` 0 is an
alert. On a replica that does not lead, and where the component is switched off, its metrics are therefore absent.
"""

from typing import TYPE_CHECKING, final

from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client import CollectorRegistry, Metric


@final
class HiddenFamilies(Collector):
    """The families of a registry, hidden at first, as a collector of another one."""

    def __init__(self, hidden: "CollectorRegistry", *, shown_by: "CollectorRegistry") -> None:
        self._hidden = hidden
        self._is_shown = False
        shown_by.register(self)

    def show(self) -> None:
        self._is_shown = True

    def hide(self) -> None:
        self._is_shown = False

    def describe(self) -> "Iterable[Metric]":
        """Return no name: families that come and go are checked by the registry that holds them."""
        return ()

    def collect(self) -> "Iterable[Metric]":
        return self._hidden.collect() if self._is_shown else ()
