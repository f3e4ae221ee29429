"""The dashboards as ConfigMaps, which the sidecar of Grafana's chart loads by their label."""

from typing import TYPE_CHECKING, Any, Final

from manifests import constants
from manifests.monitoring.dashboards.cache_board import CACHE_BOARD
from manifests.monitoring.dashboards.grafana_json import dashboard_text
from manifests.monitoring.dashboards.inventory_board import INVENTORY_BOARD
from manifests.monitoring.dashboards.node_board import NODE_BOARD
from manifests.monitoring.dashboards.workload_board import WORKLOAD_BOARD

if TYPE_CHECKING:
    from collections.abc import Mapping

DASHBOARDS: Final = (INVENTORY_BOARD, NODE_BOARD, WORKLOAD_BOARD, CACHE_BOARD)


def build_dashboards(
    namespace: str,
    labels: "Mapping[str, str]" = constants.DASHBOARD_LABELS,
    annotations: "Mapping[str, str] | None" = None,
) -> list[dict[str, Any]]:
    """Return one ConfigMap for each dashboard."""
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": dashboard.uid,
                "namespace": namespace,
                "labels": {**constants.LABELS, **labels},
                **({"annotations": {**annotations}} if annotations else {}),
            },
            "data": {f"{dashboard.uid}.json": dashboard_text(dashboard)},
        }
        for dashboard in DASHBOARDS
    ]
