"""Karpenter's double and what runs on its nodes, in a process of its own: the run itself imports nothing of ours.

    python -m tests.fault.cloud --print-definitions        CRDs of others, as YAML
    python -m tests.fault.cloud --kubeconfig FILE

Killed and started again it goes on with what the API server has.
"""

import argparse
import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import yaml

from http_edge.system_clock import SystemClock
from kube.client import KubeClient
from kube.config.discovery import load_configuration
from simulator.karpenter.fake_karpenter import FakeKarpenter, KarpenterTimes
from simulator.karpenter.karpenter_crds import karpenter_crds
from simulator.node import nfd
from simulator.node.joining_nodes import JoiningNodes
from simulator.node.pool_plugins import PoolPlugins
from tests.cluster.system.installation import NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Sequence

TIMES: Final = KarpenterTimes(batch_s=0.3, retry_s=2.0, validation_s=2.0)
"""A run has seconds where a cluster has minutes."""


def definitions() -> str:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": nfd.NAMESPACE}}
    return yaml.safe_dump_all([*karpenter_crds(), nfd.node_feature_crd(), namespace])


async def play(kubeconfig: Path) -> NoReturn:
    clock = SystemClock()
    configuration = await load_configuration(clock, kubeconfig=str(kubeconfig))
    async with KubeClient(configuration, clock) as client, asyncio.TaskGroup() as group:
        for double in (
            FakeKarpenter(client, clock, times=TIMES),
            JoiningNodes(client, clock, {}),
            PoolPlugins(client, clock, namespace=NAMESPACE),
        ):
            group.create_task(double.run(), name=type(double).__name__)
    raise AssertionError("a task group of endless tasks ended")


def main(arguments: "Sequence[str]") -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--print-definitions", action="store_true")
    parser.add_argument("--kubeconfig", type=Path)
    given = parser.parse_args(arguments)
    if given.print_definitions:
        sys.stdout.write(definitions())
    else:
        asyncio.run(play(given.kubeconfig))


if __name__ == "__main__":
    main(sys.argv[1:])
