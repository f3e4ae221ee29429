"""Report of the node's devices: the detector's NodeFeature, written where it differs.

It has the labels of the NodeFeatureRule that number the devices, and no features: where nfd-master runs, it sets
them on the Node as it would by the rule. It exists only while the node has a device, and is owned by the Node.
`gpu.deckhouse.io/present` is not among the labels: on the Node it has one writer, the control plane.
"""

import asyncio
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import structlog

from agent.api_access import connect
from api.foreign.core import Node
from api.foreign.nodefeature import NODE_NAME_LABEL, NodeFeature
from inventory.discovery.labels import COUNT_LABEL, SLOT_PREFIX
from kube.client import KubeClient
from kube.config.connection import BadConfigurationError
from kube.errors import KubeError, NotFound, one_line
from kube.resources import NODE_FEATURES, NODES
from manifests.constants import DETECTOR_FEATURE_PREFIX, NODE_DETECTOR
from manifests.node.daemonset import workload_labels
from telemetry.logs import configure_logs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.driver.pci import PciDevice
    from agent.settings import AgentSettings
    from api.clock import Clock
    from kube.client import WriteResponse
    from kube.resources import Resource

FIELD_MANAGER: Final = "gpu-control-plane/detector"

T = TypeVar("T")

_log = structlog.get_logger()


class ReportApi(Protocol):
    """Access to the API server; `kube.client.KubeClient`."""

    async def get(
        self, resource: "Resource", type_: type[T], name: str, *, namespace: str | None = None
    ) -> T:
        """Return the object."""

    async def apply(
        self, resource: "Resource", body: object, *, field_manager: str
    ) -> "WriteResponse":
        """Apply server-side, with force."""

    async def delete(
        self,
        resource: "Resource",
        name: str,
        *,
        namespace: str | None = None,
        uid: str | None = None,
    ) -> None:
        """Delete the object; with `uid` another one of the same name raises Conflict."""


def detected_labels(devices: "Sequence[PciDevice]") -> dict[str, str]:
    """Return the labels of devices in the order of their addresses; none without a device."""
    if not devices:
        return {}
    labels = {COUNT_LABEL: str(len(devices))}
    for number, device in enumerate(devices):
        slot = f"{SLOT_PREFIX}{number:02d}"
        labels[f"{slot}.vendor"] = device.vendor
        labels[f"{slot}.device"] = device.device
        labels[f"{slot}.class"] = device.class_
    return labels


def detector_feature_name(node: str) -> str:
    return f"{DETECTOR_FEATURE_PREFIX}{node}"


async def write_report(
    client: ReportApi, devices: "Sequence[PciDevice]", *, node: str, namespace: str
) -> None:
    """Write or delete the node's NodeFeature where it is not as the devices are.

    Raises:
        KubeError: it could not be read or written.
    """
    name = detector_feature_name(node)
    try:
        current = await client.get(NODE_FEATURES, NodeFeature, name, namespace=namespace)
    except NotFound:
        current = None
    labels = detected_labels(devices)
    if not labels:
        if current is not None:
            uid = current.metadata.uid
            await client.delete(NODE_FEATURES, name, namespace=namespace, uid=uid)
        _log.info("no device on the PCI bus", node=node, deleted=current is not None)
        return
    if (
        current is not None
        and current.spec.labels == labels
        and current.metadata.label(NODE_NAME_LABEL) == node
    ):
        return
    uid = (await client.get(NODES, Node, node)).metadata.uid
    body = _feature_body(labels, node=node, namespace=namespace, owner_uid=uid)
    await client.apply(NODE_FEATURES, body, field_manager=FIELD_MANAGER)
    _log.info("devices reported", node=node, devices=[device.address for device in devices])


def _feature_body(
    labels: dict[str, str], *, node: str, namespace: str, owner_uid: str
) -> dict[str, Any]:
    owner = {"apiVersion": "v1", "kind": NODES.kind, "name": node, "uid": owner_uid}
    return {
        "apiVersion": NODE_FEATURES.api_version,
        "kind": NODE_FEATURES.kind,
        "metadata": {
            "name": detector_feature_name(node),
            "namespace": namespace,
            "labels": {**workload_labels(NODE_DETECTOR), NODE_NAME_LABEL: node},
            "ownerReferences": [owner],
        },
        "spec": {
            "labels": labels,
            "features": {"flags": {}, "attributes": {}, "instances": {}},
        },
    }


def report_devices(
    settings: "AgentSettings", devices: "Sequence[PciDevice]", clock: "Clock"
) -> bool:
    """Report once; return whether the API server has what the bus shows. A failure is logged."""
    configure_logs("info")
    try:
        asyncio.run(_report(settings, devices, clock))
    except (KubeError, BadConfigurationError, OSError) as error:
        name = f"{settings.namespace}/{detector_feature_name(settings.node)}"
        _log.warning("NodeFeature not written", name=name, error=one_line(str(error)))
        return False
    return True


async def _report(
    settings: "AgentSettings", devices: "Sequence[PciDevice]", clock: "Clock"
) -> None:
    connection = await connect(settings, clock)
    async with KubeClient(connection, clock, user_agent=NODE_DETECTOR) as client:
        await write_report(client, devices, node=settings.node, namespace=settings.namespace)
