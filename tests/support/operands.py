"""Pods of node software, as NVIDIA's GPU Operator runs them."""

from collections.abc import Mapping, Sequence
from typing import Any


def an_operand_pod(
    app: str = "gpu-feature-discovery",
    *,
    name: str = "gfd-n1",
    namespace: str = "gpu-operator",
    node: str = "n1",
    ready: bool = True,
    ip: str = "10.0.0.7",
    labels: Mapping[str, str] = {},
    inits: Mapping[str, int | None] = {},
    messages: Mapping[str, str] = {},
    ports: Sequence[Mapping[str, Any]] | None = None,
    **metadata: Any,
) -> dict[str, Any]:
    """Return a pod; `inits` are its init containers with their exit codes, None for a running one.

    `messages` are termination messages of the last runs of containers, which failed.
    """
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"app": app, **labels},
            **metadata,
        },
        "spec": {
            "nodeName": node,
            "containers": [{"name": "main", "image": "operand", "ports": ports}],
        },
        "status": {
            "podIP": ip,
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
            "initContainerStatuses": [
                _init(item, code) | _failed(messages.get(item)) for item, code in inits.items()
            ],
            "containerStatuses": [
                {"name": "main", "ready": ready, "state": {"running": {}}}
                | _failed(messages.get("main"))
            ],
        },
    }


def _init(name: str, exit_code: int | None) -> dict[str, Any]:
    state: dict[str, Any] = {"running": {}}
    if exit_code is not None:
        state = {"terminated": {"exitCode": exit_code}}
    return {"name": name, "ready": exit_code == 0, "state": state}


def _failed(message: str | None) -> dict[str, Any]:
    if message is None:
        return {}
    return {"lastState": {"terminated": {"exitCode": 1, "message": message}}}
