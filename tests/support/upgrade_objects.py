"""Pods as the API server shows them, as far as an upgrade reads them."""

from typing import Any

import msgspec

from reconciler.driver_upgrade.objects import UpgradePod


def owner(uid: str = "ds", kind: str = "DaemonSet") -> list[dict[str, Any]]:
    return [{"kind": kind, "name": "x", "uid": uid, "controller": True}]


def a_pod(*, spec: Any = None, status: Any = None, **meta: Any) -> UpgradePod:
    defaults = {"name": "p", "namespace": "gpu", "uid": "u"}
    body = {"metadata": defaults | meta, "spec": spec or {}, "status": status or {}}
    return msgspec.convert(body, UpgradePod)
