"""`pool.workloads` objects in the control plane's namespace: ConfigMaps and DaemonSets by pool."""

from typing import Final, TypeVar

from api.foreign.workload_kinds import ConfigMap, DaemonSet
from api.names import POOL_LABEL, PoolName
from api.well_known_labels import APP_COMPONENT_LABEL
from kube.informer import Selection
from kube.store import IndexedStore
from manifests import constants

ALL_POOLS: Final = PoolName("")
"""Key of the objects that serve all pools of a node."""
LABEL_SELECTOR: Final = f"{APP_COMPONENT_LABEL}={constants.DEVICE_PLUGIN}"

Live = TypeVar("Live", ConfigMap, DaemonSet)


def selection(namespace: str) -> Selection:
    """Return what the informers of ConfigMaps and DaemonSets watch."""
    return Selection(namespace=namespace, label_selector=LABEL_SELECTOR)


def live_workloads(_kind: type[Live]) -> "IndexedStore[str, PoolName, Live]":
    """Return a store of one kind by pool, `ALL_POOLS` for objects of none: the sink of an informer."""
    return IndexedStore(_name_of, _pool_of, identify=lambda unread: (unread.name, ALL_POOLS))


def _name_of(item: ConfigMap | DaemonSet) -> str:
    return item.metadata.name


def _pool_of(item: ConfigMap | DaemonSet) -> PoolName:
    return PoolName(item.metadata.label(POOL_LABEL) or ALL_POOLS)
