"""NetworkPolicies: which addresses reach the servers, kube-scheduler, the pods on nodes and the console.

API servers are in no pod network, and a policy cannot name them by label: their addresses are a
value. kube-scheduler always reaches the servers, and kubelet the probes of its node's pods. Egress is not limited:
API servers, exporters and the registries of kernel caches are at addresses and ports that differ from cluster to
cluster.
"""

from typing import TYPE_CHECKING, Any, Final

from api.well_known_labels import APP_COMPONENT_LABEL, PART_OF_LABEL
from manifests import constants
from operands.nvidia.own_pods import OPERAND_COMPONENT

if TYPE_CHECKING:
    from manifests.install.installation import Installation

Json = dict[str, Any]

_PORTS: Final = ({"port": constants.HTTPS_PORT_NAME, "protocol": "TCP"},)
_NODE_PORTS: Final = tuple(
    {"port": name, "protocol": "TCP"}
    for name in (constants.PROBES_PORT_NAME, constants.EXPORTER_PORT_NAME)
)
_OURS: Final = {PART_OF_LABEL: constants.NAME}
_ON_NODES: Final = {
    "matchExpressions": [
        {
            "key": APP_COMPONENT_LABEL,
            "operator": "In",
            "values": [constants.DEVICE_PLUGIN, OPERAND_COMPONENT],
        }
    ],
}
"""Agents, detectors, device plugins and operands: their pages tell which pods have which devices."""


def build_network_policies(installation: "Installation") -> list[Json]:
    given = installation.values.network_policy.ingress_from
    scheduler = {
        "podSelector": {"matchLabels": constants.component_labels(constants.SCHEDULER_COMPONENT)}
    }
    return [
        _policy(
            installation,
            constants.NAME,
            constants.SERVER_COMPONENT,
            ingress=[
                {"from": [scheduler], "ports": list(_PORTS)},
                {"ports": list(_PORTS)} | _peers_clause(given),
            ],
        ),
        _policy(
            installation,
            constants.SCHEDULER_DEPLOYMENT,
            constants.SCHEDULER_COMPONENT,
            ingress=[{"ports": list(_PORTS)} | _peers_clause(given)],
        ),
        _policy(
            installation,
            constants.NODE_AGENT,
            constants.DEVICE_PLUGIN,
            # The servers read exporters, and these DCGM's host engine.
            ingress=[
                {"from": [{"podSelector": {"matchLabels": _OURS}}]},
                {"ports": list(_NODE_PORTS)} | _peers_clause(given),
            ],
            selector=_ON_NODES,
        ),
    ]


def build_console_network_policy(installation: "Installation") -> Json:
    is_plain = installation.values.console.plain_http
    port = constants.HTTP_PORT_NAME if is_plain else constants.HTTPS_PORT_NAME
    given = installation.values.console.ingress_from
    return _policy(
        installation,
        constants.CONSOLE,
        constants.CONSOLE_COMPONENT,
        ingress=[{"ports": [{"port": port, "protocol": "TCP"}]} | _peers_clause(given)],
    )


def _peers_clause(peers: "tuple[Json, ...]") -> Json:
    """Return the peers of a rule; a rule without admits all."""
    return {"from": list(peers)} if peers else {}


def _policy(
    installation: "Installation",
    name: str,
    component: str,
    *,
    ingress: list[Json],
    selector: Json | None = None,
) -> Json:
    """Return the policy of a component's pods, or of those of the selector."""
    labels = constants.component_labels(component)
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": installation.metadata(name, labels),
        "spec": {
            "podSelector": selector or {"matchLabels": labels},
            "policyTypes": ["Ingress"],
            "ingress": ingress,
        },
    }
