"""An API server in memory over TLS, in a process of its own: what a node's agent asks.

    python -m tests.bench.agent_api --certificates FOLDER

Prints its URL once it knows our kinds, and ends with its standard input. It holds what
`tests.bench.agent_node` creates.
"""

import argparse
import asyncio
import ssl
import sys
from pathlib import Path

import uvloop

from http_edge.system_clock import SystemClock
from kube.client import KubeClient
from kube.config.connection import StaticConnection
from kube.resources import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES
from manifests import constants
from manifests.install.crds import build_crds
from simulator.apiserver.server import InMemoryApiServer
from simulator.node.nfd import node_feature_crd


async def main(certificates: Path) -> None:
    """Serve until nobody listens any more."""
    clock = SystemClock()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "tls.crt", certificates / "tls.key")
    async with InMemoryApiServer(clock, ssl_context=context) as api:
        trusted = StaticConnection(api.url, ssl_ca_cert=str(certificates / "ca.crt"))
        async with KubeClient(trusted, clock) as client:
            for crd in (*build_crds(), node_feature_crd()):
                await client.create(CUSTOM_RESOURCE_DEFINITIONS, crd)
            namespace = {"name": constants.DEFAULT_NAMESPACE}
            await client.create(
                NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": namespace}
            )
        sys.stdout.write(api.url + "\n")
        sys.stdout.flush()
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--certificates", type=Path, required=True)
    uvloop.run(main(parser.parse_args().certificates))
