"""Objects that this version cannot read: known ones stay over a list, unknown ones are unread, neither counts as absent."""

import asyncio
import random

import pytest

from api.foreign.core import Pod
from kube.client import KubeClient
from kube.informer import Informer
from kube.resources import PODS
from kube.store import IndexedStore, Store
from tests.component.kube.mirror import a_pod, metric, running
from tests.support.canned_api import CannedApi, Hang, Json, Stream, a_list, event
from tests.support.loop_clock import LoopClock

pytestmark = pytest.mark.looptime

TOO_OLD = event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": ""})
AnyStore = Store[Pod] | IndexedStore[str, str, Pod]


def of_the_next_version(name: str, version: int) -> dict[str, object]:
    return {**a_pod(name, version), "spec": {"nodeSelector": "of the next version"}}


def an_indexed_store() -> IndexedStore[str, str, Pod]:
    return IndexedStore(
        lambda pod: pod.metadata.name,
        lambda pod: pod.metadata.namespace,
        identify=lambda unread: (unread.name, unread.namespace),
    )


def names(store: AnyStore) -> set[str]:
    return set(store.by_name if isinstance(store, Store) else store.keys())


@pytest.fixture(params=[Store, an_indexed_store], ids=["store", "indexed"])
def store(request: pytest.FixtureRequest) -> AnyStore:
    found: AnyStore = request.param()
    return found


def an_informer(client: KubeClient, clock: LoopClock, sink: AnyStore) -> Informer[Pod]:
    return Informer(client, PODS, Pod, sink=sink, clock=clock, rng=random.Random(1))


async def test_the_known_state_of_an_unreadable_object_stays_over_a_list(
    api: CannedApi, client: KubeClient, clock: LoopClock, store: AnyStore
) -> None:
    changed = event("MODIFIED", of_the_next_version("p", 2))
    api.will_answer(a_list(a_pod("p", 1), a_pod("q", 1)), Stream([changed, TOO_OLD]))
    api.will_answer(a_list(of_the_next_version("p", 2)), Hang())
    async with running(an_informer(client, clock, store)):
        await asyncio.sleep(10)
        assert (names(store), store.unread) == ({"p"}, frozenset())
        assert metric("gpu_informer_unreadable_objects") == 1


async def test_the_state_of_an_object_that_had_the_name_before_is_not_known_of_a_new_one(
    api: CannedApi, client: KubeClient, clock: LoopClock, store: AnyStore
) -> None:
    later = of_the_next_version("p", 2)
    later["metadata"] = {"name": "p", "namespace": "a", "uid": "of another object"}
    api.will_answer(a_list(a_pod("p", 1)), Stream([TOO_OLD]), a_list(later), Hang())
    async with running(an_informer(client, clock, store)):
        await asyncio.sleep(10)
        assert (names(store), store.unread) == (set(), frozenset({"p"}))


async def test_an_unreadable_object_of_which_nothing_is_known_is_unread(
    api: CannedApi, client: KubeClient, clock: LoopClock, store: AnyStore
) -> None:
    changes: list[str] = []
    store.changes.subscribe(changes.append)
    api.will_answer(a_list(of_the_next_version("p", 1)), Hang())
    async with running(an_informer(client, clock, store)):
        await asyncio.sleep(1)
        assert (names(store), store.unread) == (set(), frozenset({"p"}))
        assert changes == ["p" if isinstance(store, Store) else "a"]


async def test_an_object_that_can_be_read_again_is_unread_no_more(
    api: CannedApi, client: KubeClient, clock: LoopClock, store: AnyStore
) -> None:
    added = [event("ADDED", of_the_next_version("p", 2)), event("MODIFIED", a_pod("p", 3))]
    api.will_answer(a_list(version="1"), Stream(added), Hang())
    async with running(an_informer(client, clock, store)):
        await asyncio.sleep(10)
        assert (names(store), store.unread) == ({"p"}, frozenset())
        assert metric("gpu_informer_unreadable_objects") == 0


@pytest.mark.parametrize("is_known", [True, False])
async def test_an_unreadable_object_that_is_deleted_is_gone(
    is_known: bool, api: CannedApi, client: KubeClient, clock: LoopClock, store: AnyStore
) -> None:
    before = a_pod("p", 1) if is_known else of_the_next_version("p", 1)
    deleted = event("DELETED", of_the_next_version("p", 2))
    api.will_answer(a_list(before), Stream([deleted]), a_list(version="3"), Hang())
    async with running(an_informer(client, clock, store)):
        await asyncio.sleep(10)
        assert (names(store), store.unread) == (set(), frozenset())


async def test_a_list_that_is_read_by_itself_names_what_it_could_not_read(
    api: CannedApi, client: KubeClient
) -> None:
    bound = of_the_next_version("p", 1)
    bound["spec"] = {"nodeName": "n1", "nodeSelector": "of the next version"}
    bound["metadata"] = {"name": "p", "namespace": "a", "uid": "u", "ownerReferences": 7}
    api.will_answer(Json({"metadata": {"resourceVersion": "1"}, "items": [bound]}))
    listing = await client.list_(PODS, Pod)
    assert [(item.namespace, item.name, item.uid, item.node) for item in listing.unread] == [
        ("a", "p", "u", "n1")
    ]
