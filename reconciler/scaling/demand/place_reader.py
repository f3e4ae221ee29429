"""Reads where the volumes of waiting pods are, and the other pods that they must be near or apart from: only while they wait.

No informer has claims, volumes and storage classes: a few of them decide, and only while a node is planned.
"""

import asyncio
import dataclasses
import itertools
from collections import Counter
from typing import TYPE_CHECKING, Final, final

from api.foreign.core import Pod
from api.foreign.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from api.names import NodeName, pool_node_label
from api.selector_text import parse_label_selector
from api.well_known_labels import ZONE_LABEL
from autoscaling.plan_attempt import in_turn
from kube.errors import KubeError, NotFound
from kube.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, STORAGE_CLASSES
from manifests.install.rbac import PolicyRule
from pool.model import PodSelection
from pool.peer_rules import PeerKind, PeerRule
from pool.placement.planner import may_go_to
from pool.pods.selection import constraints_of_selection
from reconciler.scaling.demand.pod_places import (
    Place,
    place_by_peers,
    place_of_class,
    place_of_volume,
    placed,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from kube.client import KubeClient
    from pool.catalog import Catalog
    from pool.index.figures import IndexFigures
    from pool.model import PodFacts, PoolFacts
    from reconciler.controller_spec import ControllerContext

RBAC: Final = (
    PolicyRule(resources=("pods",), verbs=("list",)),
    PolicyRule(resources=("persistentvolumeclaims", "persistentvolumes"), verbs=("get",)),
    PolicyRule(group="storage.k8s.io", resources=("storageclasses",), verbs=("get",)),
)
FRESH_S: Final = 4.0
"""Less than the time between two passes over a pool whose pods wait."""
BOUND_S: Final = 300.0
"""The volume of a bound claim, and its place, stay as they are."""
KEPT_S: Final = 60.0
"""How long what is old counts where others are read first."""
AT_A_TIME: Final = 16
MOST_READ: Final = 256
"""Claims and rules in one pass, of the namespaces in turn: pods with further ones wait for the next pass."""
_NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
_PAGE: Final = 500
_Key = tuple[str, str | PeerRule]
"""Namespace, and the name of a claim or a rule about other pods."""
_Nodes = tuple[NodeName, ...]
"""Nodes of the pods that a rule is about, each as often as it has one."""


@final
class PlaceReader:
    """What was read lately, by claim and rule."""

    def __init__(self, client: "KubeClient", catalog: "Catalog", index: "IndexFigures") -> None:
        self._client = client
        self._catalog = catalog
        self._index = index
        self._cached: dict[_Key, tuple[float, Place | _Nodes]] = {}
        # until when it counts, and what it says

    async def read(self, waiting: "Iterable[PodFacts]", *, now: float) -> None:
        """Read what is old, or not known, of the pods' volumes and of other pods; `now` is Clock.monotonic() seconds."""
        cached = {key: cached for key, cached in self._cached.items() if cached[0] > now - KEPT_S}
        self._cached = cached
        by_age = sorted(
            dict.fromkeys(key for pod in waiting for key in _keys(pod)),
            key=lambda key: cached[key][0] if key in cached else 0.0,
        )
        stale_keys: dict[str, list[_Key]] = {}
        for key in by_age:
            if key not in cached or cached[key][0] <= now:
                stale_keys.setdefault(key[0], []).append(key)
        turns = asyncio.Semaphore(AT_A_TIME)
        async with asyncio.TaskGroup() as group:
            for key in itertools.islice(in_turn(stale_keys.values()), MOST_READ):
                group.create_task(self._read(key, now, turns), name=f"place by {key[1]}")

    def zones(self) -> "frozenset[str]":
        """Return the zones in which volumes are, or may be made."""
        places = [found for _, found in self._cached.values() if isinstance(found, Place)]
        terms = [term for place in places for term in place.terms]
        expressions = [expression for term in terms for expression in term.match_expressions or ()]
        return frozenset(
            zone
            for expression in expressions
            if expression.key == ZONE_LABEL
            for zone in expression.values or ()
        )

    def narrowed(self, pool: "PoolFacts", waiting: "Iterable[PodFacts]") -> "list[PodFacts]":
        """Return the pods with selections that say what was read of their places."""
        return [self._narrowed(pool, pod) for pod in waiting]

    def _narrowed(self, pool: "PoolFacts", pod: "PodFacts") -> "PodFacts":
        selection = pod.selection
        if selection is None or not (selection.claims or selection.peers):
            return pod
        places = [self._place(pool, selection, key) for key in _keys(pod)]
        return dataclasses.replace(pod, selection=placed(selection, places))

    def _place(self, pool: "PoolFacts", selection: PodSelection, key: _Key) -> Place:
        _, asked = key
        _, found = self._cached.get(key, (0.0, None))
        if isinstance(found, Place):
            return found
        if found is None or isinstance(asked, str):
            return Place(undecided=f"{_words(asked)} is not read yet: many pods wait")
        if asked.kind is PeerKind.SPREAD:
            domains = self._domains(pool, selection, asked)
            labels = (domains.get(name) for name in found)
        else:
            domains = {}
            labels = (self._label(name, asked.key) for name in found)
        counts = Counter(value for value in labels if value)
        return place_by_peers(asked, counts, frozenset(domains.values()))

    def _domains(
        self, pool: "PoolFacts", selection: PodSelection, rule: PeerRule
    ) -> "Mapping[NodeName, str]":
        """Return the values of the rule's label on nodes of the pool that the pod may go to, as kube-scheduler counts them."""
        constraints = constraints_of_selection(selection)
        return {
            node.name: value
            for node in self._index.nodes.values()
            if (value := node.labels.get(rule.key)) and pool_node_label(pool.name) in node.labels
            if may_go_to(
                node if rule.honors_taints else dataclasses.replace(node, taints=()), constraints
            )
        }

    def _label(self, node: "NodeName", key: str) -> str | None:
        facts = self._index.nodes.get(node)
        return facts.labels.get(key) if facts is not None else None

    async def _read(self, key: _Key, now: float, turns: asyncio.Semaphore) -> None:
        namespace, asked = key
        seconds = FRESH_S
        found: Place | _Nodes
        async with turns:
            try:
                if isinstance(asked, PeerRule):
                    found = await self._nodes_of(asked)
                else:
                    found, is_bound = await self._place_of_claim(namespace, asked)
                    seconds = BOUND_S if is_bound else FRESH_S
            except KubeError:  # counted by the client
                found = Place(omitted=_words(asked))
        self._cached[key] = (now + seconds, found)

    async def _place_of_claim(self, namespace: str, name: str) -> tuple[Place, bool]:
        """Return where a claim's volume is or may be, and whether it is there."""
        try:
            claim = await self._client.get(
                PERSISTENT_VOLUME_CLAIMS, PersistentVolumeClaim, name, namespace=namespace
            )
        except NotFound:
            return Place(undecided=f"claim {name} of the pod does not exist: create it"), False
        volume, class_name = claim.spec.volume_name, claim.spec.storage_class_name
        if volume:
            bound = await self._client.get(PERSISTENT_VOLUMES, PersistentVolume, volume)
            terms = bound.spec.node_affinity.required.node_selector_terms or ()
            return place_of_volume(name, terms), True
        unbound = Place(undecided=f"claim {name} of the pod is not bound to a volume yet")
        if not class_name:
            return unbound, False
        storage_class = await self._client.get(STORAGE_CLASSES, StorageClass, class_name)
        if not storage_class.waits_for_pod:
            return unbound, False
        if (
            storage_class.provisioner == _NO_PROVISIONER
        ):  # one of the volumes that exist, on any node
            return Place(omitted=_words(name)), False
        return place_of_class(name, storage_class.allowed_topologies or ()), False

    async def _nodes_of(self, rule: PeerRule) -> _Nodes:
        if rule.selector is None:
            return ()
        found: list[NodeName] = []
        is_spread = rule.kind is PeerKind.SPREAD

        def node_of(pod: Pod) -> "NodeName | None":
            is_left_out = pod.is_terminal or (is_spread and pod.metadata.deletion_timestamp)
            return None if is_left_out else NodeName(pod.spec.node_name) or None

        for namespace in self._namespaces_of(rule):
            listing = await self._client.list_as(
                PODS,
                Pod,
                node_of,
                namespace=namespace,
                label_selector=rule.selector or None,
                page_size=_PAGE,
            )
            found += listing.items
        return tuple(found)

    def _namespaces_of(self, rule: PeerRule) -> "set[str] | tuple[None]":
        """Return the namespaces of the pods that a rule is about; None for all."""
        if rule.namespace_selector == "":
            return (None,)
        selected: set[str] = set()
        if rule.namespace_selector is not None:
            matches = parse_label_selector(rule.namespace_selector).matches
            namespaces = self._catalog.labels_by_namespace
            selected = {name for name, labels in namespaces.items() if matches(labels)}
        return selected.union(rule.namespaces)


def _keys(pod: "PodFacts") -> "Iterator[_Key]":
    selection = pod.selection
    if selection is not None:
        yield from ((pod.namespace, claim) for claim in selection.claims)
        yield from ((pod.namespace, rule) for rule in selection.peers)


def _words(asked: str | PeerRule) -> str:
    return f"the place of claim {asked}" if isinstance(asked, str) else str(asked)


def place_reader(context: "ControllerContext") -> PlaceReader:
    return PlaceReader(context.client, context.catalog, context.index)
