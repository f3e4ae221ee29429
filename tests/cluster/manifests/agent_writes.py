"""What agents of an installation of two nodes write, and what the API server says to it."""

import contextlib
import secrets
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from agent.detection.report import detected_labels, detector_feature_name
from agent.driver.pci import PciDevice
from api.foreign.nodefeature import NODE_NAME_LABEL
from api.names import GKM_GROUP
from manifests import constants
from operands.nvidia.states import gpu_feature_discovery
from operands.operand_state import ServedKinds
from tests.cluster.environment import client
from tests.cluster.manifests.objects import a_pod
from tests.unit.operands.operand_cases import ALL_ON

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    LogIn = Callable[..., Awaitable[client.ApiClient]]

INVENTORIES = "/apis/gpu.deckhouse.io/v1alpha1/gpunodeinventories"


@dataclass(frozen=True, kw_only=True)
class Site:
    """Two nodes of an installation."""

    namespace: str
    mine: str
    other: str

    @property
    def features(self) -> str:
        return f"/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/{self.namespace}/nodefeatures"


def a_feature(node: str, *, name: str | None = None) -> dict[str, Any]:
    """The NodeFeature of a node's agent, or something that looks like it."""
    return {
        "apiVersion": "nfd.k8s-sigs.io/v1alpha1",
        "kind": "NodeFeature",
        "metadata": {
            "name": f"{constants.AGENT_FEATURE_PREFIX}{node if name is None else name}",
            "labels": {NODE_NAME_LABEL: node} if node else {},
        },
        "spec": {},
    }


def a_report(node: str, *, name: str | None = None, **spec: Any) -> dict[str, Any]:
    """The NodeFeature of a node's detector, or something that looks like it."""
    device = PciDevice(
        address="0000:3b:00.0",
        vendor="10de",
        device="2330",
        class_="0302",
        numa_node=0,
        driver=None,
    )
    features: dict[str, Any] = {"flags": {}, "attributes": {}, "instances": {}}
    return a_feature(node) | {
        "metadata": {
            "name": detector_feature_name(node if name is None else name),
            "labels": {NODE_NAME_LABEL: node},
        },
        "spec": {"labels": detected_labels([device]), "features": features, **spec},
    }


def a_discovery(node: str, *, name: str | None = None, **spec: Any) -> dict[str, Any]:
    """The NodeFeature of a node's gpu-feature-discovery, or something that looks like it."""
    feature = a_feature(node)
    feature["metadata"]["name"] = f"nvidia-features-for-{node if name is None else name}"
    features: dict[str, Any] = {"flags": {}, "attributes": {}, "instances": {}}
    labels = {"nvidia.com/gpu.product": "NVIDIA-H200", "nvidia.com/mig-1g.18gb.count": "7"}
    return feature | {"spec": {"labels": labels, "features": features, **spec}}


async def write_feature(api: client.ApiClient, site: Site, feature: dict[str, Any]) -> Any:
    """Apply it as the agent does: created where it is not there, patched where it is."""
    path = f"{site.features}/{feature['metadata']['name']}"
    return await api.patch(path, feature, kind="apply", fieldManager="agent", force="true")


async def write_inventory(api: client.ApiClient, node: str) -> Any:
    body = {
        "apiVersion": "gpu.deckhouse.io/v1alpha1",
        "kind": "GPUNodeInventory",
        "metadata": {"name": node},
        "status": {"driver": {"version": secrets.token_hex(2)}},
    }
    path = f"{INVENTORIES}/{node}/status"
    return await api.patch(path, body, kind="apply", fieldManager="agent", force="true")


def discovery_rbac(namespace: str) -> list[dict[str, Any]]:
    """Return account and role of gpu-feature-discovery in the namespace, as its operand has them."""
    objects = gpu_feature_discovery.STATE.objects(
        replace(ALL_ON, namespace=namespace), ServedKinds()
    )
    return [
        object_
        for object_ in objects
        if object_["kind"] in {"ServiceAccount", "Role", "RoleBinding"}
    ]


@contextlib.contextmanager
def is_refused(text: str) -> "Iterator[None]":
    with pytest.raises(client.ApiRefusedError, match=text) as refused:
        yield
    assert refused.value.status == 403


async def create_pod(
    api: client.ApiClient, namespace: str, node: str, account: str
) -> dict[str, str]:
    pod = a_pod(namespace, name=f"{account}-{secrets.token_hex(3)}")
    pod["spec"] |= {"nodeName": node, "serviceAccountName": account}
    meta = (await api.create(f"/api/v1/namespaces/{namespace}/pods", pod))["metadata"]
    return {"name": meta["name"], "uid": meta["uid"]}


def a_gkm_object(kind: str, name: str) -> dict[str, Any]:
    return {"apiVersion": f"{GKM_GROUP}/v1alpha1", "kind": kind, "metadata": {"name": name}}
