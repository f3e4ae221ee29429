"""The queries of all stored dashboards by the names of their panels, and values for their variables."""

import json
from typing import Final

from manifests.monitoring.dashboards.config_maps import dashboard_names, dashboard_text

ELSE_ZERO: Final = " or vector(0)"
_BOARDS: Final = {name: json.loads(dashboard_text(name)) for name in dashboard_names()}
CHOICES: Final[dict[str, str]] = {
    f"${item['name']}": item.get("allValue", "")
    for board in _BOARDS.values()
    for item in board["templating"]["list"]
    if item["type"] == "query"
}
"""Grafana's choice `All` of each variable; of one without it what Grafana takes where nothing can be chosen."""
PRICE: Final = {"$price": "2"}

QUERIES: Final[dict[str, str]] = {
    f"{name}: {panel['title']} {target['refId']}": target["expr"]
    for name, board in _BOARDS.items()
    for panel in board["panels"]
    for target in panel.get("targets", ())
}
