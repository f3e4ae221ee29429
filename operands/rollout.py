"""Readiness of an operand's objects by kind, from what the API server shows. Pure."""

from collections.abc import Mapping
from typing import Any

Json = Mapping[str, Any]


def unready_reason(kind: str, live: "Json") -> str:
    """Return why an object that exists is not ready yet; empty where it is.

    A DaemonSet is ready when all nodes that it selects run an available pod of its last template, of which
    there may be none. Every other kind is ready as soon as it exists.
    """
    return _of_daemon_set(live) if kind == "DaemonSet" else ""


def outdated_nodes(live: "Json") -> int:
    """Return on how many nodes an available pod of a DaemonSet waits for a roll-out to replace it."""
    status = live.get("status") or {}
    waiting: int = status.get("numberAvailable", 0) - status.get("updatedNumberScheduled", 0)
    return max(0, waiting)


def _of_daemon_set(live: Json) -> str:
    status = live.get("status") or {}
    if status.get("observedGeneration", 0) < live["metadata"].get("generation", 0):
        return "its last change is not observed yet"
    desired = status.get("desiredNumberScheduled", 0)
    is_on_delete = live["spec"].get("updateStrategy", {}).get("type") == "OnDelete"
    for field, text in (
        ("currentNumberScheduled", "have a pod"),
        ("updatedNumberScheduled", "have a pod of the last template"),
        ("numberAvailable", "have an available pod"),
    ):
        if field == "updatedNumberScheduled" and is_on_delete:
            continue
        if (count := status.get(field, 0)) < desired:
            return f"{count} of {desired} nodes {text}"
    return ""
