"""Karpenter, unmodified, with its own kwok provider: it makes the Node of a NodeClaim itself, without a cloud.

kwok makes such a Node ready, and `gpu_nodes.GpuNodes` does what its agent and its kubelet do.
It offers the instance types of Karpenter's double.
"""

import contextlib
import json
from typing import TYPE_CHECKING, Final, final

import yaml

from simulator.karpenter.instance_types import INSTANCE_TYPES
from tests.cluster.environment import client, definitions, polling
from tests.support import ports

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.cluster.environment import control_plane as control_planes
    from tests.cluster.environment import kubectl as kubectls
    from tests.cluster.environment import processes
    from tests.cluster.environment.client import JsonObject

CLAIMS: Final = "/apis/karpenter.sh/v1/nodeclaims"
NODE_POOLS: Final = "/apis/karpenter.sh/v1/nodepools"
NODE_CLASSES: Final = "/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses"
NODE_POOL_LABEL: Final = "karpenter.sh/nodepool"
NODE_CLASS_KIND: Final = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass"}
GATES: Final = "CapacityBuffer=true,StaticCapacity=true"

_READY_S = 120


@final
class Karpenter:
    """One Karpenter, with the rights of an administrator; tests may kill and start it again."""

    def __init__(
        self,
        control_plane: "control_planes.ControlPlane",
        program: "Path",
        *,
        name: str = "karpenter",
        gates: str = GATES,
    ) -> None:
        """`name` names the log; a second one of the same run needs another."""
        types = control_plane.run.directory / f"{name}.instance-types.json"
        types.write_text(json.dumps(_instance_types()), encoding="utf-8")
        health = ports.free_port()
        metrics = ports.free_port()
        self.metrics_url = f"http://127.0.0.1:{metrics}/metrics"
        self._ready = polling.https_probe(f"http://127.0.0.1:{health}/readyz", ca_file=None)
        kubeconfig = control_plane.kubeconfig(
            "system:serviceaccount:kube-system:karpenter", groups=("system:masters",)
        )
        self.process: processes.ChildProcess = control_plane.run.child(
            name,
            [
                str(program),
                "--disable-leader-election",
                f"--metrics-port={metrics}",
                f"--health-probe-port={health}",
                f"--instance-types-file-path={types}",
                f"--feature-gates={gates}",
                # The default of 1 CPU makes its controllers slow on purpose.
                "--cpu-requests=2000",
            ],
            env={"KUBECONFIG": str(kubeconfig), "SYSTEM_NAMESPACE": "kube-system"},
        )

    async def start(self) -> None:
        """Start it; returns when its caches have synced."""
        self.process.start()
        await self.process.wait_ready(self._ready, within=_READY_S)

    async def stop(self) -> None:
        await self.process.terminate()


def _instance_types() -> "list[JsonObject]":
    """Return the instance types as the file has them that Karpenter's kwok provider reads."""
    return [
        {
            "name": item.name,
            "architecture": "amd64",
            "operatingSystems": ["linux"],
            "resources": dict(item.resources),
            "offerings": [
                {
                    "Price": offering.price_milli / 1000,
                    "Available": True,
                    "Requirements": [
                        a_requirement(key, value) for key, value in offering.labels.items()
                    ],
                }
                for offering in item.offerings
            ],
        }
        for item in INSTANCE_TYPES
    ]


async def install_definitions(kubectl: "kubectls.Kubectl", folder: "Path") -> None:
    """Apply Karpenter's CustomResourceDefinitions; they stay until the control plane goes."""
    documents = [yaml.safe_load(path.read_text()) for path in sorted(folder.glob("*.yaml"))]
    await kubectl("apply", "--server-side", "--force-conflicts", "-f", str(folder))
    await definitions.until_served(kubectl, documents)


async def claims_of(api: client.ApiClient, *node_pools: str) -> "list[JsonObject]":
    """Return the NodeClaims of these NodePools."""
    found = (await api.get(CLAIMS))["items"]
    return [item for item in found if item["metadata"]["labels"].get(NODE_POOL_LABEL) in node_pools]


async def remove_node_pools(api: client.ApiClient) -> None:
    """Delete all NodePools, and wait until Karpenter has deleted their nodes."""
    for item in (await api.get(NODE_POOLS))["items"]:
        with contextlib.suppress(client.ApiRefusedError):  # it is going already
            await api.delete(f"{NODE_POOLS}/{item['metadata']['name']}")

    async def are_gone() -> bool:
        left = (await api.get(CLAIMS))["items"]
        assert not left, f"{[item['metadata']['name'] for item in left]}"
        return True

    await polling.eventually(are_gone, what="NodeClaims gone", every=0.5)


def a_node_class(name: str, *, registration_delay: str = "0s") -> "JsonObject":
    return {
        "apiVersion": "karpenter.kwok.sh/v1alpha1",
        "kind": "KWOKNodeClass",
        "metadata": {"name": name},
        "spec": {"nodeRegistrationDelay": registration_delay},
    }


def a_node_pool(
    name: str,
    *,
    node_class: str = "",
    requirements: "Sequence[JsonObject]" = (),
    taints: "Sequence[JsonObject]" = (),
    startup_taints: "Sequence[JsonObject]" = (),
    consolidate_after: str = "0s",
    limits: "JsonObject | None" = None,
) -> "JsonObject":
    """Return a NodePool whose nodes go when they are empty, and never expire."""
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {
            "template": {
                "spec": {
                    "requirements": list(requirements),
                    "taints": list(taints),
                    "startupTaints": list(startup_taints),
                    "expireAfter": "Never",
                    "nodeClassRef": {**NODE_CLASS_KIND, "name": node_class or name},
                }
            },
            "disruption": {
                "consolidationPolicy": "WhenEmpty",
                "consolidateAfter": consolidate_after,
                "budgets": [{"nodes": "100%"}],
            },
            **({"limits": limits} if limits else {}),
        },
    }


def a_requirement(key: str, *values: str) -> "JsonObject":
    """Return one with operator In, or Exists where there are no values."""
    if not values:
        return {"key": key, "operator": "Exists"}
    return {"key": key, "operator": "In", "values": list(values)}
