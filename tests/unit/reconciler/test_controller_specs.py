"""Controllers are declared once: beside their reconcile function, and in one list."""

import importlib
import pkgutil
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

import reconciler
from api.names import DeviceName, NodeName, PoolName
from http_edge.reviews import kube_reviews
from manifests.install.rbac import PolicyRule, build_rbac
from reconciler.controller_spec import ControllerSpec, TaskSpec
from reconciler.pool.index_changes import index_changes
from reconciler.pool.plugin_config import COALESCE_S, plugin_config_facts
from reconciler.pool.validation_cache import validity_cache
from server import binder, informers, rbac
from server.configuration import config_store
from server.controllers.all import CONTROLLERS
from server.controllers.manager import ControllerManager
from server.leadership import fence
from tests.support.assignment import a_gpupool
from tests.support.controllers import a_context, connected
from tests.support.recorded_events import RecordedEvents
from tests.support.source_trees import ROOT, source_of

Spec = ControllerSpec | TaskSpec


CONTROLLERS_NAMED = re.compile("[Cc]ontrollers? (`[a-z.-]+`(?:(?:, | and )`[a-z.-]+`)*)")


def walk_modules() -> Iterator[ModuleType]:
    for module in pkgutil.walk_packages(reconciler.__path__, "reconciler."):
        yield importlib.import_module(module.name)


def declared() -> Iterator[Spec]:
    """Yield the `SPEC` of every module of `reconciler`."""
    for module in walk_modules():
        spec = getattr(module, "SPEC", None)
        if spec is not None:
            yield spec


def by_name(name: str) -> ControllerSpec:
    (found,) = (item for item in CONTROLLERS if item.name == name)
    assert isinstance(found, ControllerSpec)
    return found


def test_every_declared_controller_is_in_the_list_and_no_other():
    found = list(declared())
    assert {id(item) for item in found} == {id(item) for item in CONTROLLERS}
    assert len(found) == len(CONTROLLERS)


def test_names_are_those_of_metrics_logs_and_tasks():
    assert sorted(item.name for item in CONTROLLERS) == [
        "binding.settling",
        "cache.status",
        "cachenode.cleanup",
        "device.assignment",
        "device.health",
        "device.repair",
        "device.state",
        "driver.upgrade",
        "index.changes",
        "namespace.pod-security",
        "node.bootstrap",
        "node.dcgm",
        "node.deploy-labels",
        "node.exports",
        "node.handover",
        "node.inventory",
        "node.leaving",
        "node.operands",
        "node.pool-marks",
        "node.present-label",
        "nodeclaim.watch",
        "nvidiadriver",
        "pod.access",
        "pod.explanation",
        "pod.nominating",
        "pod.waking",
        "pool.capacity",
        "pool.conflict",
        "pool.kept-nodes",
        "pool.life",
        "pool.removed-backends",
        "pool.scaling",
        "pool.status",
        "pool.workloads",
        "scheduler.trust",
        "service.endpoint",
    ]


def test_a_module_that_begins_with_a_name_begins_with_that_of_its_controller():
    for item in walk_modules():
        begins = re.match("`([^`]+)`", item.__doc__ or "")
        if begins and hasattr(item, "SPEC"):
            assert begins[1] == item.SPEC.name, item.__name__


def test_pages_and_docstrings_name_controllers_that_there_are():
    names = {item.name for item in CONTROLLERS}
    texts = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "reconciler").rglob("*.py")]
    named = {
        name
        for path in texts
        for found in CONTROLLERS_NAMED.findall(source_of(path))
        for name in re.findall("`([^`]+)`", found)
    }
    assert named
    assert named <= names


def rules_of(*lists: tuple[PolicyRule, ...]) -> object:
    return build_rbac([rule for rules in lists for rule in rules])[1]["rules"]


def test_rendered_permissions_are_the_union_of_the_declared_ones():
    own = (
        informers.RBAC,
        config_store.RBAC,
        binder.RBAC,
        fence.RBAC,
        rbac.EVENTS,
        kube_reviews.RBAC,
    )
    assert rules_of(rbac.CLUSTER_RULES) == rules_of(*(item.rbac for item in declared()), *own)


async def test_each_controller_is_built_and_subscribed_without_io():
    context = a_context(recorder=RecordedEvents())
    async with context.ending:
        for spec in CONTROLLERS:
            spec.start(context)


async def test_nothing_is_woken_after_the_end_of_the_term():
    context = a_context()
    async with context.ending:
        woken = connected(by_name("node.inventory"), context)
    context.stores.devices.changes.publish(NodeName("n1"))
    assert woken.taken() == []


@pytest.mark.parametrize(
    ("name", "setting"), [("node.dcgm", "is_scraping"), ("pod.nominating", "is_nominating")]
)
@pytest.mark.parametrize("is_on", [True, False])
def test_a_controller_that_the_settings_switch_off_is_not_started(name, setting, is_on):
    manager = ControllerManager(a_context(**{setting: is_on}), CONTROLLERS)
    assert (name in manager.names) is is_on


async def test_a_changed_pool_wakes_its_readers_once_its_validity_is_known():
    """Whatever the order of subscriptions: a reader follows the validity cache, not the index."""
    context = a_context()
    seen: list[tuple[str, bool]] = []
    async with context.ending:
        index, name = context.shared(index_changes), PoolName("a")

        def run_pass(pool: PoolName) -> None:
            validity = context.shared(validity_cache)
            seen.append((pool, validity.validity_of(pool).is_valid))

        context.shared(validity_cache).pools.subscribe(run_pass)
        shared: dict[str, Any] = {"resource": {"name": "gpu.deckhouse.io/b"}}
        context.catalog.pools[PoolName("b")] = a_gpupool("b", **shared)
        index.pools.publish(PoolName("b"))
        context.catalog.pools[name] = a_gpupool("a", created=5, **shared)
        index.pools.publish(name)
        context.catalog.pools[name] = a_gpupool("a", created=5)
        index.pools.publish(name)
        index.pools.publish(name)
    assert seen == [("b", True), ("a", False), ("a", True), ("a", True)]


async def test_changes_of_a_pools_devices_are_gathered_into_one_list():
    context = a_context()
    async with context.ending:
        woken = connected(by_name("pool.workloads"), context)
        context.shared(plugin_config_facts).changes.publish(PoolName("a"))
    assert woken.later == {"a": COALESCE_S}


async def test_devices_are_written_at_once_in_the_initial_list_and_after_bursts_later():
    context = a_context()
    async with context.ending:
        woken = connected(by_name("device.state"), context)
        index = context.shared(index_changes)
        index.devices.publish(DeviceName("n1-0"))
        assert woken.taken() == ["n1-0"]
        index.device_delay_s = 1.0
        index.devices.publish(DeviceName("n1-0"))
        assert (woken.taken(), woken.later) == ([], {"n1-0": 1.0})


async def test_a_node_of_the_index_wakes_inventory_labels_and_nothing_of_pools():
    context = a_context()
    async with context.ending:
        controllers = {
            item.name: connected(item, context)
            for item in CONTROLLERS
            if isinstance(item, ControllerSpec)
        }
        context.shared(index_changes).nodes.publish(NodeName("n1"))
    woken = {name for name, keys in controllers.items() if "n1" in keys.taken()}
    assert woken == {
        "cachenode.cleanup",
        "node.deploy-labels",
        "node.handover",
        "node.inventory",
        "node.leaving",
        "node.pool-marks",
        "node.present-label",
    }
