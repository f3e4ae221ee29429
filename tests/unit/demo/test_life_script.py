"""The life of a demo's cluster: endless, gentle, and the same for the same seed."""

from collections import Counter

import pytest

from demo.life_script import Action, CreatePod, EndPod, FailDevice, LifeScript, RecoverDevice
from demo.living_cluster import DEVICES_PER_NODE, NODES, POOLS, WARM_UP, device_table

DEVICES = tuple((node, number) for node in NODES for number in range(DEVICES_PER_NODE))
STEPS = 3_000


def life(seed: int, steps: int = STEPS) -> list[Action]:
    script = LifeScript(seed, POOLS, DEVICES)
    return [script.next() for _ in range(steps)]


@pytest.mark.parametrize("seed", range(5))
def test_a_seed_has_one_life(seed: int):
    assert life(seed, 500) == life(seed, 500)
    assert life(seed, 500) != life(seed + 5, 500)


@pytest.mark.parametrize("seed", range(5))
def test_each_pod_is_created_once_and_ends_once_after_that(seed: int):
    alive: set[tuple[str, str]] = set()
    seen: set[tuple[str, str]] = set()
    for action in life(seed):
        if isinstance(action, CreatePod):
            pod = (action.namespace, action.name)
            assert pod not in seen
            seen.add(pod)
            alive.add(pod)
        elif isinstance(action, EndPod):
            alive.remove((action.namespace, action.name))
    assert len(alive) < 100


@pytest.mark.parametrize("seed", range(5))
def test_pools_are_about_full_and_pods_wait_now_and_then(seed: int):
    units_by_pool: Counter[str] = Counter()
    units: dict[str, CreatePod] = {}
    loads: list[float] = []
    for step, action in enumerate(life(seed)):
        if isinstance(action, CreatePod) and action.is_scheduled:
            units_by_pool[action.pool] += action.units
            units[action.name] = action
        elif isinstance(action, EndPod) and action.name in units:
            ended = units.pop(action.name)
            units_by_pool[ended.pool] -= ended.units
        if step >= WARM_UP:
            loads += [units_by_pool[pool.name] / pool.units for pool in POOLS]
    assert max(loads) < 1.7
    assert 0.8 < sum(loads) / len(loads) < 1.3
    assert 0.2 < sum(load > 1 for load in loads) / len(loads) < 0.95


@pytest.mark.parametrize("seed", range(5))
def test_one_device_fails_at_a_time_and_each_recovers(seed: int):
    failed: set[tuple[str, int]] = set()
    faults = 0
    for action in life(seed):
        if isinstance(action, FailDevice):
            failed.add((action.node, action.number))
            faults += 1
        elif isinstance(action, RecoverDevice):
            failed.remove((action.node, action.number))
        assert len(failed) <= 1
    assert faults > STEPS / 50


@pytest.mark.parametrize("seed", range(5))
def test_some_reservations_expire_and_their_pods_go_later(seed: int):
    made = [item for item in life(seed) if isinstance(item, CreatePod) and not item.is_scheduled]
    ended = {item.name for item in life(seed) if isinstance(item, EndPod)}
    assert len(made) > STEPS / 50
    assert {item.name for item in made[:-5]} <= ended


@pytest.mark.parametrize("pool", POOLS, ids=lambda pool: pool.name)
def test_every_pod_fits_an_empty_node_of_its_pool(pool):
    product = {"training": "H200", "inference": "H100", "notebooks": "L40S"}[pool.name]
    per_device = {"training": 1, "inference": 7, "notebooks": 4}[pool.name]
    by_node = {
        node: per_device * sum(product in item.product for item in device_table(node))
        for node in NODES
    }
    assert sum(by_node.values()) == pool.units
    assert max(pool.sizes) <= max(by_node.values())
