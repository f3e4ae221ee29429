"""What a cache costs its pod: beside the same pod without the volume, in pairs, and each mount by itself."""

import asyncio
import datetime as dt
import statistics
import time
from typing import TYPE_CHECKING, Final

import pytest

from api.csi.names import DRIVER_NAME
from tests.bench.other_programs import OtherPrograms
from tests.bench.report import Result, at_most, in_ms
from tests.cluster.environment import polling
from tests.cluster.node.caches.node_oracle import PODS, mounted_volumes
from tests.cluster.node.environment import paths
from tests.support.csi import CsiClient, a_publish, a_target, some_attributes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.cluster.node.caches.cache_images import CacheImage
    from tests.cluster.node.caches.caches import Caches

SUBJECT: Final = "kernel_cache_pods"
PAIRS, PAIRS_LONG = 2, 40
MOUNTS, MOUNTS_LONG = 20, 1000
LINE: Final = ("sh", "-c", "trap 'exit 0' TERM; echo started; sleep 100000 & wait")


@pytest.mark.figures
async def test_a_pod_with_a_warm_cache_starts_as_soon_as_without(
    caches: "Caches",
    images: "dict[str, CacheImage]",
    write_figures: "Callable[[Sequence[Result]], None]",
    progress: "Callable[[str], None]",
    *,
    is_long: bool,
):
    """From the creation of a pod that is bound already, until its container's first line.

    Both have another volume: kubelet looks every 300 ms whether a pod's volumes are there, so that a pod with any
    starts later than one with none.
    """
    await caches.make("llama", images["llama:1"])
    await caches.is_warm("llama", images["llama:1"])
    pairs = PAIRS_LONG if is_long else PAIRS
    others = OtherPrograms()
    with_cache: list[float] = []
    without: list[float] = []
    for number in range(pairs):
        turns = [(True, with_cache), (False, without)]
        # Each is the first as often.
        for has_cache, times in turns if number % 2 else turns[::-1]:
            times.append(await first_line_s(caches, f"pod-{number}", has_cache=has_cache))
    more_s = statistics.median(
        item - other for item, other in zip(with_cache, without, strict=True)
    )
    p50, p99 = in_ms(with_cache)
    result = Result(
        subject=SUBJECT,
        case="a pod with a warm cache, bound until its first line, beside the same pod without",
        samples=pairs,
        p50_ms=p50,
        p99_ms=p99,
        base_p50_ms=statistics.median(without) * 1e3,
        more_ms=more_s * 1e3,
        others_cores=others.cores(),
        aims=(at_most("more_ms", 30),),
    )
    progress(f"{result.case}: {p50:.0f} ms, {result.more_ms:+.1f} ms, {pairs} pairs")
    write_figures([result, await mounts(caches, count=MOUNTS_LONG if is_long else MOUNTS)])


async def first_line_s(caches: "Caches", name: str, *, has_cache: bool) -> float:
    """Run a pod to its first line, and return the seconds from its creation; it is gone then."""
    pod = caches.pod_of(name, "llama", command=LINE)
    spec, (container,) = pod["spec"], pod["spec"]["containers"]
    if not has_cache:
        spec["volumes"], container["volumeMounts"] = [], []
    spec["volumes"].append({"name": "scratch", "emptyDir": {}})
    container["volumeMounts"].append({"name": "scratch", "mountPath": "/scratch"})
    created = time.time()  # noqa: TID251  # containerd writes the machine's
    await caches.create(pod)
    running = await caches.running(name)
    uid = running["metadata"]["uid"]
    log = paths.POD_LOGS / f"{caches.namespace}_{name}_{uid}" / "main" / "0.log"

    def line() -> str:
        return log.read_text(encoding="utf-8").partition("\n")[0] if log.exists() else ""

    first = await polling.eventually(line, what=f"first line of {name}", every=0.01)
    assert first.endswith(" started"), first
    assert len(mounted_volumes()) == int(has_cache)
    await caches.end(name)
    return dt.datetime.fromisoformat(first.split(" ")[0]).timestamp() - created


async def mounts(caches: "Caches", *, count: int) -> Result:
    """Measure NodePublishVolume at the agent's socket, as kubelet calls it, for further volumes of one pod."""
    driver = CsiClient(paths.KUBELET_ROOT / "plugins" / DRIVER_NAME / "csi.sock")
    pod = await caches.run(caches.pod_of("holder", "llama"))
    uid = pod["metadata"]["uid"]
    attributes = some_attributes(
        "llama",
        caches.namespace,
        pod_name="holder",
        pod_namespace=caches.namespace,
        pod_uid=uid,
    )
    others = OtherPrograms()
    times = []
    for number in range(count):
        target = a_target(PODS, uid, f"further-{number}")
        await asyncio.to_thread(target.parent.mkdir)
        before = time.perf_counter()
        await driver.publish(a_publish(target, attributes, volume=f"csi-{number}"))
        times.append(time.perf_counter() - before)
        assert [item.volume for item in mounted_volumes()] == ["cache-0", f"further-{number}"]
        await driver.unpublish(target, f"csi-{number}")
        await asyncio.to_thread(target.parent.rmdir)
    await caches.end("holder")
    assert mounted_volumes() == []
    p50, p99 = in_ms(times)
    return Result(
        subject=SUBJECT,
        case="NodePublishVolume of a warm cache, on a connection of its own",
        samples=count,
        p50_ms=p50,
        p99_ms=p99,
        others_cores=others.cores(),
        aims=(at_most("p99_ms", 20),),
    )
