"""The dashboards as ConfigMaps, which the sidecar of Grafana's chart loads by their label.

Their JSON, `boards`, is the chart's files: as Grafana exports it, with a mark where the address of the alerts' page stands.
"""

import functools
import importlib.resources
from typing import TYPE_CHECKING, Any, Final

from manifests import constants
from manifests.monitoring.alerts import PAGE

if TYPE_CHECKING:
    from collections.abc import Mapping

_PAGE_MARK: Final = "<.Values.monitoring.prometheusRule.runbookPage>"
_DIRECTORY: Final = importlib.resources.files("manifests") / "monitoring" / "dashboards" / "boards"
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
    return text.replace(_PAGE_MARK, runbook_page)


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
