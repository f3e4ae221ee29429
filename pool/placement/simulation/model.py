"""What a simulation is given and what it reports: pods in time, and the sizes of pools."""

import msgspec


class PoolSize(msgspec.Struct, frozen=True):
    """What a pool has at the start of a simulation."""

    name: str
    units_per_device: int
    devices: int
    units: int
    largest_node: int
    """Units of its largest node."""
    taken_devices: float
    """Devices that others than the pods of the workload have, parts of devices included."""


class SimulatedPod(msgspec.Struct, frozen=True):
    """A pod of the workload."""

    name: str
    pool: str = ""
    """Empty: it asks for no devices."""
    units: int = 0
    cpu_milli: int = 0
    memory_mib: int = 0
    models: tuple[str, ...] = ()
    """Models of nodes that it takes; empty: all."""
    arrival_s: float = 0.0
    duration_s: float | None = None
    """Seconds from its placement to its end; None: it never ends."""
