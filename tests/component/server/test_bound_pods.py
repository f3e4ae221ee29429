"""Bindings of earlier leaders are read while the watch continues, and the newer of the two wins."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence

import pytest

from api.foreign.core import Pod
from kube.client import KubeClient
from kube.config.connection import StaticConnection
from kube.decoding import Listing
from kube.resources import PODS
from kube.unread_objects import UnreadObject
from pool.model import AnyPod, PodFacts, PodPhase
from server.leadership.bound_pods import BoundPods
from simulator.node.kubelet import register_node
from tests.support.builders import a_pod_facts
from tests.support.loop_clock import LoopClock
from tests.support.polling import until
from tests.support.running_server import ADMIN_TOKEN, Cluster


class ReportedPods:
    """A sink; which pods with units there are, and where."""

    def __init__(self) -> None:
        self.pods: dict[str, PodFacts] = {}
        self.unread: set[str] = set()

    def last_read(self, unread: UnreadObject) -> AnyPod | None:
        return self.pods.get(unread.name)

    def replace_unread(self, unread: Collection[UnreadObject]) -> None:
        self.unread = {item.name for item in unread}

    def replace_all(self, items: Sequence[AnyPod]) -> None:
        self.pods = {item.name: item for item in items if isinstance(item, PodFacts)}

    def replace_in_steps(self, items: Sequence[AnyPod]) -> Iterator[None]:
        self.replace_all(items)
        yield

    def upsert(self, item: AnyPod) -> None:
        assert isinstance(item, PodFacts)
        self.pods[item.name] = item

    def discard(self, item: AnyPod) -> None:
        assert isinstance(item, PodFacts)
        self.pods.pop(item.name, None)


async def add_pod(cluster: Cluster, name: str, *, bound: bool) -> None:
    await cluster.client.create(
        PODS,
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": "kube-system",  # where no webhook of ours is called
                "labels": {"gpu.deckhouse.io/pool": "whole"},
            },
            "spec": {
                "nodeName": "n1" if bound else None,
                "containers": [
                    {
                        "name": "c",
                        "image": "i",
                        "resources": {"limits": {"gpu.deckhouse.io/whole": 1}},
                    }
                ],
            },
        },
    )


async def read_during(
    cluster: Cluster, change: Callable[[BoundPods], Awaitable[None]]
) -> ReportedPods:
    """Read with a response that is late, so that something happens before it comes."""
    current = ReportedPods()
    cluster.api.faults.delay("GET", "/api/v1/pods$", 0.3)
    before = len(list(cluster.api.requests))
    configuration = StaticConnection(cluster.api.url, token=ADMIN_TOKEN)
    async with KubeClient(configuration, LoopClock()) as client:
        bound = BoundPods(client, current)
        async with asyncio.TaskGroup() as group:
            group.create_task(bound.read())
            await until(lambda: len(list(cluster.api.requests)) > before)
            await change(bound)
    return current


async def nothing(_: BoundPods) -> None:
    return


async def test_bound_pods_are_shown_and_pending_ones_are_left_to_the_watch(
    cluster: Cluster,
) -> None:
    await register_node(cluster.client, "n1", {"gpu.deckhouse.io/whole": 4})
    await add_pod(cluster, "bound", bound=True)
    await add_pod(cluster, "pending", bound=False)

    current = await read_during(cluster, nothing)

    assert set(current.pods) == {"bound"}
    assert current.pods["bound"].phase is PodPhase.BOUND


async def test_pods_that_ended_are_shown_before_those_that_may_have_their_units(
    cluster: Cluster,
) -> None:
    await register_node(cluster.client, "n1", {"gpu.deckhouse.io/whole": 4})
    await add_pod(cluster, "a-next", bound=True)
    await add_pod(cluster, "b-ended", bound=True)
    await cluster.client.merge_patch(
        PODS,
        {"status": {"phase": "Succeeded"}},
        name="b-ended",
        namespace="kube-system",
        subresource="status",
    )

    current = await read_during(cluster, nothing)

    assert list(current.pods) == ["b-ended", "a-next"]


async def test_pod_that_the_watch_shows_gone_meanwhile_does_not_come_back(
    cluster: Cluster,
) -> None:
    await register_node(cluster.client, "n1", {"gpu.deckhouse.io/whole": 4})
    await add_pod(cluster, "gone", bound=True)
    await add_pod(cluster, "stays", bound=True)
    pod = await cluster.client.get(PODS, Pod, "gone", namespace="kube-system")

    async def discard(bound: BoundPods) -> None:
        bound.discard(a_pod_facts(name="gone", uid=pod.metadata.uid))

    current = await read_during(cluster, discard)

    assert set(current.pods) == {"stays"}


async def test_full_list_during_the_read_has_it_read_again(cluster: Cluster) -> None:
    await register_node(cluster.client, "n1", {"gpu.deckhouse.io/whole": 4})
    await add_pod(cluster, "bound", bound=True)

    async def relist(bound: BoundPods) -> None:
        bound.replace_all([])

    current = await read_during(cluster, relist)

    reads = [request for request in cluster.api.requests if request.path == "/api/v1/pods"]
    assert len(reads) == 2
    assert set(current.pods) == {"bound"}


async def read_beside_a_list(cluster: Cluster, *, began: str, version: str) -> ReportedPods:
    """Read what is bound while the informer lists too, and hand over its list, with nobody in it."""
    await register_node(cluster.client, "n1", {"gpu.deckhouse.io/whole": 4})
    await add_pod(cluster, "bound", bound=True)
    current = ReportedPods()
    configuration = StaticConnection(cluster.api.url, token=ADMIN_TOKEN)
    async with KubeClient(configuration, LoopClock()) as client:
        bound = BoundPods(client, current)
        if began == "before":
            bound.list_begins()
        await bound.read()
        if began == "after":
            bound.list_begins()
        bound.list_ends(version)
        for _ in bound.replace_in_steps([]):
            pass
    return current


async def test_list_that_is_older_than_the_read_takes_nothing_of_it_back(cluster: Cluster) -> None:
    current = await read_beside_a_list(cluster, began="before", version="1")
    assert set(current.pods) == {"bound"}


@pytest.mark.parametrize(
    ("began", "version"),
    [
        pytest.param("before", "999999", id="newer, though it began before the read"),
        pytest.param("after", "1", id="begun after the read, whatever it says of its version"),
    ],
)
async def test_pod_that_a_newer_list_lacks_is_gone(
    began: str, version: str, cluster: Cluster
) -> None:
    current = await read_beside_a_list(cluster, began=began, version=version)
    assert current.pods == {}


async def test_pods_that_end_while_nothing_is_read_are_not_noted() -> None:
    current = ReportedPods()
    bound = BoundPods(None, current)  # type: ignore[arg-type]  # nothing is read
    for number in range(100):
        bound.upsert(a_pod_facts(name=f"p{number}"))
        bound.discard(a_pod_facts(name=f"p{number}"))
    assert (current.pods, bound._gone) == ({}, set())


class Unreadable:
    """A client whose list has bound pods that this version cannot read."""

    def __init__(self, *names: str) -> None:
        self._unread = [UnreadObject("ns", name, f"uid-{name}", node="n1") for name in names]

    async def list_as(self, *_: object, **__: object) -> Listing[PodFacts]:
        return Listing(items=[], resource_version="7", unread=self._unread)


async def read_unreadable(*names: str, last_read: str = "") -> tuple[BoundPods, ReportedPods]:
    current = ReportedPods()
    bound = BoundPods(Unreadable(*names), current)  # type: ignore[arg-type]  # lists alone
    if last_read:
        bound.upsert(a_pod_facts(name=last_read))
    await bound.read()
    return bound, current


async def test_bound_pod_that_the_read_cannot_decode_is_unread_unless_it_is_known() -> None:
    _, current = await read_unreadable("new", "old", last_read="old")
    assert current.unread == {"new"}


async def test_unread_pods_of_the_read_and_of_the_informer_are_unread() -> None:
    bound, current = await read_unreadable("a", "b")
    bound.replace_unread([UnreadObject("ns", name, f"uid-{name}") for name in "bc"])
    assert current.unread == {"a", "b", "c"}
    bound.replace_unread([])
    assert current.unread == {"a", "b"}


async def test_pod_that_the_watch_reads_is_unread_no_more() -> None:
    bound, current = await read_unreadable("a")
    bound.upsert(a_pod_facts(name="a", uid="uid-a"))
    assert current.unread == set()


@pytest.mark.parametrize(("version", "left"), [("8", set()), ("6", {"a"})])
async def test_list_that_is_newer_than_the_read_says_which_pods_are_unread(
    version: str, left: set[str]
) -> None:
    current = ReportedPods()
    bound = BoundPods(Unreadable("a"), current)  # type: ignore[arg-type]  # lists alone
    bound.list_begins()
    await bound.read()
    bound.list_ends(version)
    bound.replace_all([])
    assert current.unread == left
