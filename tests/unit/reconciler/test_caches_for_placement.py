"""What the observers of kernel caches say is what placement asks."""

import msgspec

from tests.support.builders import a_demand, a_device, a_node, a_pool
from tests.support.controllers import new_stores
from tests.support.kernel_caches import a_cache


def test_a_cache_that_is_observed_decides_which_devices_a_pod_gets():
    stores = new_stores()
    state = stores.allocation_state
    state.index.replace_pool(a_pool())
    state.index.replace_node(a_node("n1"))
    state.index.replace_device(a_device("n1", 0, compute_capability="8.0"))
    stores.gkm_caches.namespaced.upsert(a_cache())
    mounting = msgspec.structs.replace(a_demand(1), caches=(a_cache().cache_name,))
    (refusal,) = state.index.view(a_pool().name, mounting).refusals.values()
    assert refusal is not None
    assert refusal.incompatibility is not None
    assert refusal.incompatibility.reason == "arch 90 of the cache, device has 80"
    stores.gkm_caches.namespaced.replace_all([])
    (refusal,) = state.index.view(a_pool().name, mounting).refusals.values()
    assert refusal is None
