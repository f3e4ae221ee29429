"""Pods that are bound to a node, as the API server shows them, and the units that they were assigned."""

from collections.abc import Mapping
from typing import Any

import msgspec

from api.annotations import encode_devices
from api.foreign.core import Pod
from api.names import DEVICES_ANNOTATION, UnitId

RESOURCE = "gpu.deckhouse.io/whole"


def a_bound_pod(
    name: str = "p",
    *,
    assigned: Mapping[str, tuple[str, ...]] | None = None,
    init: Mapping[str, int] | None = None,
    sidecars: Mapping[str, int] | None = None,
    main: Mapping[str, int] | None = None,
    uid: str = "",
    resource: str = RESOURCE,
    phase: str = "Pending",
) -> Pod:
    """One main container `main` with one unit, unless it is said; container -> units."""
    if main is None:
        main = {"main": 1}

    def container(of: str, count: int, **more: Any) -> dict[str, Any]:
        limits = {"cpu": "1", **({resource: str(count)} if count else {})}
        return {"name": of, "resources": {"limits": limits}, **more}

    annotations = {}
    if assigned is not None:
        units = {key: tuple(map(UnitId, value)) for key, value in assigned.items()}
        annotations[DEVICES_ANNOTATION] = encode_devices(units)
    body = {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": uid or f"uid-{name}",
            "annotations": annotations,
        },
        "spec": {
            "nodeName": "n1",
            "initContainers": [
                *(container(of, count) for of, count in (init or {}).items()),
                *(
                    container(of, count, restartPolicy="Always")
                    for of, count in (sidecars or {}).items()
                ),
            ],
            "containers": [container(of, count) for of, count in main.items()],
        },
        "status": {"phase": phase},
    }
    return msgspec.convert(body, Pod)
