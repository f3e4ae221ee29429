"""A full in-memory API server in a process of its own.

    python -m tests.bench.api_process --nodes N --pods M

Objects go straight into its store: creating 70,000 of them over HTTP would take longer than what is
measured. Prints its URL when everything is there.
"""

import argparse
import asyncio
import sys
from typing import TYPE_CHECKING, Any

import uvloop

from api.names import GROUP, VERSION
from kube.client import KubeClient
from kube.configuration import configuration_for
from kube.resources import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES
from manifests import constants
from manifests.crds import build_crds
from server.clock import SystemClock
from simulator.apiserver.ownership import Ownership
from simulator.apiserver.server import InMemoryApiServer
from tests.bench import world

if TYPE_CHECKING:
    from collections.abc import Iterable


async def main(options: argparse.Namespace) -> None:
    clock = SystemClock()
    async with InMemoryApiServer(clock) as api:
        async with KubeClient(configuration_for(api.url), clock) as client:
            for crd in build_crds():
                await client.create(CUSTOM_RESOURCE_DEFINITIONS, crd)
            for name in (constants.DEFAULT_NAMESPACE, "ml-team"):
                await client.create(
                    NAMESPACES,
                    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}},
                )
        stock(api, (GROUP, VERSION, "gpupools"), world.pools())
        stock(api, ("", "v1", "nodes"), world.nodes(options.nodes))
        stock(api, (GROUP, VERSION, "gpudevices"), world.devices(options.nodes))
        stock(api, ("", "v1", "pods"), world.bound_pods(options.pods, options.nodes))
        api.forget_history()
        sys.stdout.write(api.url + "\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


def stock(
    api: InMemoryApiServer, path: tuple[str, str, str], objects: "Iterable[dict[str, Any]]"
) -> None:
    """Put objects into the store as if they had been created."""
    resource = api._frontend._backend.registry.find(*path)
    assert resource is not None, path
    collection = api._store.collection(resource)
    for number, body in enumerate(objects):
        body["metadata"].setdefault("uid", f"{path[2]}-{number}")
        body["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
        body["metadata"]["generation"] = 1
        collection.add(resource, body, Ownership())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--pods", type=int, required=True)
    uvloop.run(main(parser.parse_args()))
