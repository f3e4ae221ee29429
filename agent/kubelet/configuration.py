"""The TopologyManager settings of the node's kubelet.

They are read from kubelet itself, at `/configz` of its authenticated port: the node's proxy of the API server
would need the right to run commands in every pod (`nodes/proxy`), a configuration file may be newer than the process,
and flags go over it. kubelet asks the API server whether the agent may `get nodes/configz` (kubelet 1.33 and later; an
earlier one asks for `nodes/proxy`, and refuses). Two labels of the node go over what kubelet says, and serve where it
says nothing.

kubelet's certificate is not verified: most kubelets sign their own. The address is the agent's own node's, so that the
token goes to nobody who could not read it from the agent.
"""

from typing import TYPE_CHECKING, Any, Final, final

import msgspec

from api.kinds.gpunodeinventory import (
    KubeletConfiguration,
    TopologyManagerPolicy,
    TopologyManagerScope,
)
from api.meta import Model, ObjectMeta
from api.names import TOPOLOGY_MANAGER_POLICY_LABEL, TOPOLOGY_MANAGER_SCOPE_LABEL
from kube.config.connection import Connection
from kube.errors import Undecodable
from kube.transport import ApiRequest, Transport

if TYPE_CHECKING:
    from api.clock import Clock

PATH: Final = "/configz"
ANSWER_WITHIN_S: Final = 5.0


class ConfigurationUnknownError(Exception):
    """The text says why, and what to do."""


class _Endpoint(Model, frozen=True):
    port: int = msgspec.field(default=0, name="Port")


class _Endpoints(Model, frozen=True):
    kubelet_endpoint: _Endpoint = _Endpoint()


class _Address(Model, frozen=True):
    type: str = ""
    address: str = ""


class _Status(Model, frozen=True):
    addresses: list[_Address] | None = None
    daemon_endpoints: _Endpoints = _Endpoints()


class NodeOfKubelet(Model, frozen=True):
    """What a Node says about its kubelet."""

    metadata: ObjectMeta = ObjectMeta()
    status: _Status = _Status()

    @property
    def url(self) -> str | None:
        """The address of kubelet's port; None where the Node does not have it yet."""
        found = {item.type: item.address for item in self.status.addresses or ()}
        host, port = found.get("InternalIP", ""), self.status.daemon_endpoints.kubelet_endpoint.port
        if not host or not port:
            return None
        return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


class _Configz(Model, frozen=True):
    kubeletconfig: KubeletConfiguration


def configured_by_labels(node: NodeOfKubelet) -> KubeletConfiguration | None:
    """Return the settings that the node's labels give; None without a label of the policy.

    Raises:
        ConfigurationUnknownError: a label has an invalid value.
    """
    labels = node.metadata.labels or {}
    if TOPOLOGY_MANAGER_POLICY_LABEL not in labels:
        return None
    try:
        return KubeletConfiguration(
            topology_manager_policy=TopologyManagerPolicy(labels[TOPOLOGY_MANAGER_POLICY_LABEL]),
            topology_manager_scope=TopologyManagerScope(
                labels.get(TOPOLOGY_MANAGER_SCOPE_LABEL, TopologyManagerScope.CONTAINER.value)
            ),
        )
    except ValueError as error:
        policies = ", ".join(item.value for item in TopologyManagerPolicy)
        scopes = ", ".join(item.value for item in TopologyManagerScope)
        raise ConfigurationUnknownError(
            f"{error}: label {TOPOLOGY_MANAGER_POLICY_LABEL} of the node is one of {policies}, and"
            f" {TOPOLOGY_MANAGER_SCOPE_LABEL} one of {scopes}"
        ) from error


class KubeletPort:
    """kubelet's own API."""

    def __init__(self, connection: Connection, clock: "Clock") -> None:
        """Take the credentials of the API server's connection: kubelet has the API server verify the token."""
        self._connection = connection
        self._clock = clock

    async def configuration(self, url: str) -> KubeletConfiguration:
        """Return what the kubelet at this address runs with.

        Raises:
            KubeError: it refused, or did not answer.
        """
        transport = Transport(
            _KubeletConnection(url, self._connection),
            self._clock,
            user_agent="gpu-node-agent",
            timeout_s=ANSWER_WITHIN_S,
        )
        await transport.open()
        try:
            body = await transport.call(
                ApiRequest(method="GET", path=PATH, label="kubelet/configz")
            )
        finally:
            await transport.close()
        return decode_configz(body)


def decode_configz(body: bytes) -> KubeletConfiguration:
    """Return the settings in kubelet's answer.

    Raises:
        Undecodable: it is no answer of a kubelet that we know.
    """
    try:
        return msgspec.json.decode(body, type=_Configz).kubeletconfig
    except msgspec.DecodeError as error:
        raise Undecodable(f"{PATH}: {error}") from error


@final
class _KubeletConnection:
    """kubelet's address, with the credentials for the API server."""

    tls_server_name = None
    ssl_ca_cert = None
    verify_ssl = False
    disable_strict_ssl_verification = True
    proxy = None
    proxy_headers = None

    def __init__(self, url: str, connection: Connection) -> None:
        self.host = url
        self.cert_file = connection.cert_file
        self.key_file = connection.key_file
        self._connection = connection

    async def get_api_key_with_prefix(self, identifier: str, alias: str | None = None) -> Any:  # noqa: ANN401  # as the connection has it
        return await self._connection.get_api_key_with_prefix(identifier, alias)
