"""Pools, devices and pods of these tests, and what must be true of pods that were bound."""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.cluster.environment import pods
from tests.support import hand_made

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tests.cluster.environment.client import ApiClient, JsonObject

PREFIX = "gpu.deckhouse.io/"
API = "/apis/gpu.deckhouse.io/v1alpha1"
POOLS = f"{API}/gpupools"
DEVICES = f"{API}/gpudevices"
DEVICES_KEY = f"{PREFIX}devices"
RESERVATION_KEY = f"{PREFIX}reservation"


@dataclass(frozen=True, kw_only=True)
class Pool:
    """A pool that exists, with its devices and nodes."""

    name: str
    nodes: tuple[str, ...]
    slices: int = 1

    @property
    def resource(self) -> str:
        return PREFIX + self.name

    @property
    def path(self) -> str:
        return f"{POOLS}/{self.name}"


def a_pool_object(name: str, **spec: Any) -> "JsonObject":
    return {
        "apiVersion": "gpu.deckhouse.io/v1alpha1",
        "kind": "GPUPool",
        "metadata": {"name": name},
        "spec": spec,
    }


def a_device(
    node: str, device: int, pool: str, *, mig_profiles: "Sequence[str]" = ()
) -> "JsonObject":
    """Return a device as inventory and assignment report it: annotated with its pool, and in it.

    `mig_profiles` are those of the instances on it.
    """
    found = hand_made.a_device(node, device, pool)
    found["status"]["mig"] = {
        "capable": True,
        "mode": "Enabled" if mig_profiles else "Disabled",
        "instances": [
            {"uuid": f"MIG-{node}-{device}-{number}", "profile": profile}
            for number, profile in enumerate(mig_profiles)
        ],
    }
    return found


def a_pod(name: str, pool: Pool, units: int = 1, **options: Any) -> "JsonObject":
    """Return a pod that asks for units of a pool the ordinary way."""
    return pods.a_pod(name, limits={pool.resource: units}, **options)


def a_container(name: str, pool: Pool, units: int, **more: Any) -> "JsonObject":
    limits = {pool.resource: str(units)} if units else {}
    return {"name": name, "image": "example.test/main:1", "resources": {"limits": limits}, **more}


def a_deployment(name: str, pool: Pool, *, replicas: int, units: int = 1) -> "JsonObject":
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [a_container("main", pool, units)]},
            },
        },
    }


def devices_of(pod: "JsonObject") -> dict[str, list[str]]:
    """Return container -> unit ids, from the annotation of a bound pod."""
    annotations = pod["metadata"].get("annotations", {})
    assert DEVICES_KEY in annotations, f"pod {pod['metadata']['name']} carries no devices"
    given: dict[str, list[str]] = json.loads(annotations[DEVICES_KEY])
    return given


def units_of(pod: "JsonObject") -> list[str]:
    """Return the distinct units of a bound pod."""
    return list(dict.fromkeys(unit for units in devices_of(pod).values() for unit in units))


def reservation_of(pod: "JsonObject") -> "JsonObject":
    """Return the reservation note of a pod."""
    note: JsonObject = json.loads(pod["metadata"]["annotations"][RESERVATION_KEY])
    return note


def check_devices(found: "Iterable[JsonObject]") -> list[str]:
    """Check what must be true of all bound pods; return their units.

    Every container has as many units as it asks for, all of the pod's own node, and no unit is in
    two pods.
    """
    owner: dict[str, str] = {}
    for pod in found:
        name = pod["metadata"]["name"]
        given = devices_of(pod)
        assert {key: len(units) for key, units in given.items()} == _asked(pod)
        for unit in units_of(pod):
            assert f"-{pod['spec']['nodeName']}-" in unit
            assert unit not in owner, f"{unit} was given to {owner.get(unit)} and to {name}"
            owner[unit] = name
    return list(owner)


def _asked(pod: "JsonObject") -> dict[str, int]:
    containers = [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]
    return {
        container["name"]: int(amount)
        for container in containers
        for resource, amount in container["resources"].get("limits", {}).items()
        if resource.startswith(PREFIX)
    }


def all_bound(found: "Mapping[str, JsonObject]", count: int) -> bool:
    """Say whether so many pods are bound."""
    return sum(pods.is_bound(pod) for pod in found.values()) == count


async def devices_of_pool(api: "ApiClient", pool: str) -> list["JsonObject"]:
    """Return the devices that are in a pool; others may be in none, or have no status yet."""
    return [
        item
        for item in (await api.get(DEVICES))["items"]
        if item.get("status", {}).get("poolRef", {}).get("name") == pool
    ]


def capacity(pool: "JsonObject") -> dict[str, int]:
    """Return the figures of a pool's status."""
    figures: dict[str, int] = pool.get("status", {}).get("capacity", {})
    return figures
