"""The kubelet double: plays the kubelet of every node that has no other, in a process of its own.

    python -m tests.cluster.environment.kubelet --kubeconfig FILE

A bound pod becomes Running and Ready; a bound pod that is being deleted is deleted for good at
once, whatever its grace period. It does nothing else: no leases, no device plugins, no exit of
containers (`pods.finish_pod` does that). Paused by SIGSTOP, pods stay Pending or Terminating.

A pod whose request is refused for good is left alone. Any other failed request ends the watch, and
everything starts again from a list, with backoff. Either leaves a line in the log.
"""

import argparse
import asyncio
import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, final

import aiohttp

from tests.cluster.environment import client, nodes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.environment.client import JsonObject

MODULE = "tests.cluster.environment.kubelet"
WATCHING = "watching pods"
"""The line that it logs once it follows the pods."""

_LEFT_ALONE = (nodes.KWOK_PREFIX, nodes.REAL_PREFIX)
_BOUND = "spec.nodeName!="
_PODS = "/api/v1/pods"
_CONCURRENCY = 32
_FIRST_BACKOFF_S = 0.1
_LONGEST_BACKOFF_S = 2.0


@final
class KubeletDouble:
    """One list and watch; a new one for each."""

    def __init__(self, api: client.ApiClient) -> None:
        self._api = api
        self._slots = asyncio.Semaphore(_CONCURRENCY)
        self._started: set[str] = set()
        self._deleted: set[str] = set()

    async def run(self) -> None:
        """Follow all bound pods until the watch ends or a request fails."""
        listing = await self._api.get(_PODS, fieldSelector=_BOUND)
        version = listing["metadata"]["resourceVersion"]
        async with asyncio.TaskGroup() as group:
            for pod in listing["items"]:
                self._act(group, pod)
            _say(WATCHING)
            async with contextlib.aclosing(
                self._api.watch(_PODS, fieldSelector=_BOUND, resourceVersion=version)
            ) as events:
                async for event in events:
                    if event["type"] in ("ADDED", "MODIFIED"):
                        self._act(group, event["object"])
                    elif event["type"] == "DELETED":
                        self._forget(event["object"]["metadata"]["uid"])

    def _act(self, group: asyncio.TaskGroup, pod: "JsonObject") -> None:
        """Do each step once per pod; the events that our own writes cause do not repeat it."""
        if pod["spec"]["nodeName"].startswith(_LEFT_ALONE):
            return
        uid = pod["metadata"]["uid"]
        if "deletionTimestamp" in pod["metadata"]:
            if uid not in self._deleted:
                self._deleted.add(uid)
                group.create_task(self._delete(pod))
        elif pod["status"].get("phase") == "Pending" and uid not in self._started:
            self._started.add(uid)
            group.create_task(self._start(pod))

    def _forget(self, uid: str) -> None:
        self._started.discard(uid)
        self._deleted.discard(uid)

    async def _start(self, pod: "JsonObject") -> None:
        async with self._slots:
            with _refusals_noted():
                await self._api.patch(
                    f"{_path(pod)}/status", {"status": _running(pod)}, kind="strategic"
                )

    async def _delete(self, pod: "JsonObject") -> None:
        options = {
            "gracePeriodSeconds": 0,
            "preconditions": {"uid": pod["metadata"]["uid"]},
        }
        async with self._slots:
            with _refusals_noted(409):  # another pod of that name took its place
                await self._api.delete(_path(pod), options=options)


async def serve(kubeconfig: Path) -> None:
    """Play kubelet until cancelled, over any failure of the API server."""
    backoff_s = _FIRST_BACKOFF_S
    async with client.open_client(kubeconfig) as api:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                await KubeletDouble(api).run()
            except* (aiohttp.ClientError, client.ApiRefusedError, TimeoutError) as failures:
                _say(f"starting again after {failures.exceptions}")
            if loop.time() - began > _LONGEST_BACKOFF_S:
                backoff_s = _FIRST_BACKOFF_S
            await asyncio.sleep(backoff_s)
            backoff_s = min(2 * backoff_s, _LONGEST_BACKOFF_S)


def _running(pod: "JsonObject") -> "JsonObject":
    # The pod's own creation stands for "now": nobody computes with these times.
    now = pod["metadata"]["creationTimestamp"]
    ready = [
        {"type": kind, "status": "True", "lastTransitionTime": now}
        for kind in ("Initialized", "ContainersReady", "Ready")
    ]
    containers = [
        {
            "name": container["name"],
            "image": container["image"],
            "imageID": "",
            "ready": True,
            "started": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": now}},
        }
        for container in pod["spec"]["containers"]
    ]
    return {
        "phase": "Running",
        "startTime": now,
        "conditions": ready,
        "containerStatuses": containers,
    }


def _path(pod: "JsonObject") -> str:
    metadata = pod["metadata"]
    return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"


@contextlib.contextmanager
def _refusals_noted(*expected: int) -> "Iterator[None]":
    """Let pass what may succeed when it is tried again: conflicts, throttling, server errors.

    A pod that is gone, and `expected`, are not worth a line.
    """
    try:
        yield
    except client.ApiRefusedError as refused:
        if refused.status in (404, *expected):
            return
        if refused.status in (409, 429) or refused.status >= 500:
            raise
        _say(f"left alone: {refused}")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    asyncio.run(serve(parser.parse_args().kubeconfig))


if __name__ == "__main__":
    main()
