"""The dashboards as ConfigMaps, which the sidecar of Grafana's chart loads by their label.

Their JSON is data of this package; it is built by a tool of development, from the objects that declare metrics.
"""

import functools
import importlib.resources
import json
from typing import TYPE_CHECKING, Any, Final

from manifests import constants
from manifests.monitoring.alerts import PAGE

if TYPE_CHECKING:
    from collections.abc import Mapping

RUNBOOKS: Final = "runbooks"
"""Variable of each dashboard: the address of docs/operations.md, to whose rows panels link."""
_DIRECTORY: Final = importlib.resources.files("manifests") / "monitoring" / "dashboards"
_SUFFIX: Final = ".json"


def dashboard_names() -> list[str]:
    """Return the names of the dashboards, which are their uids in Grafana."""
    names = (entry.name for entry in _DIRECTORY.iterdir())
    return sorted(name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))


@functools.cache
def dashboard_text(name: str, *, runbook_page: str = PAGE) -> str:
    """Return the JSON of a dashboard whose panels link to a page of alerts.

    Raises:
        FileNotFoundError: there is no dashboard of this name.
    """
    text = (_DIRECTORY / f"{name}{_SUFFIX}").read_text(encoding="utf-8")
    if runbook_page == PAGE:
        return text
    dashboard = json.loads(text)
    for variable in dashboard["templating"]["list"]:
        if variable["name"] == RUNBOOKS:
            variable["query"] = runbook_page
    return json.dumps(dashboard, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def build_dashboards(
    namespace: str,
    labels: "Mapping[str, str]" = constants.DASHBOARD_LABELS,
    annotations: "Mapping[str, str] | None" = None,
    *,
    runbook_page: str = PAGE,
) -> list[dict[str, Any]]:
    """Return one ConfigMap for each dashboard."""
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": {**constants.LABELS, **labels},
                **({"annotations": {**annotations}} if annotations else {}),
            },
            "data": {f"{name}{_SUFFIX}": dashboard_text(name, runbook_page=runbook_page)},
        }
        for name in dashboard_names()
    ]
