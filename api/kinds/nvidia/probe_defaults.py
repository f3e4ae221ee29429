"""Timing of the probes of the driver's container, where the object leaves it out."""

from typing import Final

import msgspec

from api.kinds.nvidia.driver_blocks import ContainerProbe

_STARTUP: Final = ContainerProbe(
    initial_delay_seconds=60,
    timeout_seconds=60,
    period_seconds=10,
    success_threshold=1,
    failure_threshold=120,
)
"""The driver is built and loaded meanwhile: 20 minutes, after a first one."""
_PRECOMPILED_DELAY_S: Final = 5
_FURTHER: Final = ContainerProbe(
    initial_delay_seconds=0,
    timeout_seconds=1,
    period_seconds=10,
    success_threshold=1,
    failure_threshold=3,
)
"""Kubernetes' own."""


def startup_probe(given: ContainerProbe | None, *, is_precompiled: bool) -> ContainerProbe:
    """Return the startup probe with all fields; a precompiled driver is loaded without being built."""
    default = _STARTUP
    if is_precompiled:
        default = msgspec.structs.replace(_STARTUP, initial_delay_seconds=_PRECOMPILED_DELAY_S)
    return _filled(given, default)


def further_probe(given: ContainerProbe | None) -> ContainerProbe | None:
    """Return a liveness or readiness probe with all fields; none without one in the object."""
    return None if given is None else _filled(given, _FURTHER)


def _filled(given: ContainerProbe | None, default: ContainerProbe) -> ContainerProbe:
    fields = {} if given is None else msgspec.structs.asdict(given)
    set_fields = {name: value for name, value in fields.items() if value is not None}
    return msgspec.structs.replace(default, **set_fields)
