"""From the naive model's dicts to the facts that the allocation state takes."""

import datetime as dt
import itertools
from typing import Any

from api.annotations import ReservationNote
from api.kinds.gpunodeinventory import ContainerDevices
from api.kinds.gpupool import AllocationMode, DeviceTopology, SlicePlacement, Strategy
from api.names import DeviceName, NodeName, PodUid, PoolName, UnitId
from pool import model
from tests.support.builders import EPOCH, a_node, a_pool


def demand_of(pod: dict[str, Any]) -> model.Demand:
    containers = tuple(model.ContainerDemand(*container) for container in pod["containers"])
    return model.Demand(pod["resource"], containers, pod["size"])


def pod_facts(pod: dict[str, Any]) -> model.PodFacts:
    note = None
    if pod["note"] is not None:
        expires = pod["note"].get("expires")
        note = ReservationNote(
            id=pod["note"]["id"],
            pool=pod["note"]["pool"],
            node=pod["note"]["node"],
            devices=as_devices(pod["note"]["devices"]),
            expires_at=EPOCH + dt.timedelta(seconds=expires) if expires is not None else None,
        )
    return model.PodFacts(
        uid=PodUid(pod["uid"]),
        namespace=pod["ns"],
        name=pod["name"],
        demand=demand_of(pod),
        phase=model.PodPhase(pod["phase"]),
        node=pod["node"],
        devices=as_devices(pod["devices"]) if pod["devices"] is not None else None,
        reservation=note,
        nominated_node=pod["nominated"],
        created=pod["created"],
        priority=pod["priority"],
        inadmissible_units=pod["inadmissible_units"],
        is_gated=pod["gated"],
        awaits_capacity=pod["awaits"],
    )


def reports(said: dict[str, list[tuple[str, str, list[str]]]]) -> dict[PodUid, Any]:
    return {
        PodUid(uid): tuple(
            ContainerDevices(
                namespace="ns", pod=uid, container=name, resource=resource, units=units, uid=uid
            )
            for name, resource, units in entries
        )
        for uid, entries in said.items()
    }


def pool_facts(name: str, spec: dict[str, Any]) -> model.PoolFacts:
    return a_pool(
        name,
        resource=spec["resource"],
        mode=AllocationMode(spec["mode"]),
        strategy=Strategy(spec["strategy"]),
        ttl_s=spec["ttl"],
        mig_profile=spec["profile"],
        slices_per_device=spec["slices"],
        slice_placement=SlicePlacement(spec["placement"]),
        device_topology=DeviceTopology(spec["topology"]),
        created=spec["created"],
        is_in_maintenance=spec["closed"] == "PoolChanging",
        is_terminating=spec["closed"] == "PoolEnding",
    )


def device_facts(name: str, spec: dict[str, Any]) -> model.DeviceFacts:
    return model.DeviceFacts(
        name=DeviceName(name),
        node=NodeName(spec["node"]),
        uuid=spec["uuid"],
        pool=PoolName(spec["pool"]) if spec["pool"] else None,
        is_faulted=spec["faulted"],
        mig_instances=tuple(spec["migs"]),
        created=spec["created"],
        numa_node=spec["numa"],
        links=tuple(
            model.DeviceLink(DeviceName(peer), "NVLink", count)
            for peer, count in spec["links"].items()
        ),
    )


def node_facts(name: str, spec: dict[str, Any]) -> model.NodeFacts:
    closed = {f"is_{spec['closed']}": True} if spec["closed"] else {}
    return a_node(name, is_ready=spec["ready"], **closed)


def units_of(devices: dict[str, Any]) -> list[str]:
    return list(dict.fromkeys(itertools.chain(*devices.values())))


def as_devices(devices: dict[str, Any]) -> dict[str, tuple[UnitId, ...]]:
    return {name: tuple(map(UnitId, units)) for name, units in devices.items()}
