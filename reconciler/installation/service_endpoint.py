"""`service.endpoint`: the Service leads to the leader, and every synced replica is a ready pod.

A Service that selects pods leads to all that are ready. So either standbys are not ready, and a rollout, a
disruption budget or `helm --wait` never sees all replicas available; or requests reach them, which reserve
nothing. The Service of the chart therefore selects none: the leader writes its own address into an
EndpointSlice, in one write when its term begins. Until then the slice leads to its predecessor, which still
admits pods.
"""

from typing import TYPE_CHECKING, Any, Final, final

import structlog

from api.meta import Model, ObjectMeta
from kube.errors import NotFound
from kube.resources import ENDPOINT_SLICES, SERVICES
from manifests import constants
from manifests.install.rbac import PolicyRule
from reconciler.controller_spec import ControllerSpec

if TYPE_CHECKING:
    from kube.client import KubeClient
    from reconciler.settings import EndpointParameters

FIELD_MANAGER: Final = "gpu-control-plane/endpoint"
RECHECK_S: Final = 5.0
"""A write of a former leader may come late, and a slice can be deleted."""

_log = structlog.get_logger()


class _Endpoint(Model, frozen=True):
    addresses: tuple[str, ...] = ()


class _Port(Model, frozen=True):
    port: int = 0


class _EndpointSlice(Model, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    endpoints: tuple[_Endpoint, ...] | None = None
    ports: tuple[_Port, ...] | None = None

    def leads_to(self, parameters: "EndpointParameters") -> bool:
        return self.endpoints == (_Endpoint(addresses=(parameters.address,)),) and self.ports == (
            _Port(port=parameters.port),
        )


class _Service(Model, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


def build_endpoint_slice(parameters: "EndpointParameters", service_uid: str) -> dict[str, Any]:
    """Return the slice, which is deleted together with its Service."""
    return {
        "apiVersion": ENDPOINT_SLICES.api_version,
        "kind": ENDPOINT_SLICES.kind,
        "metadata": {
            "name": constants.SERVICE_NAME,
            "namespace": parameters.namespace,
            "labels": dict(constants.LABELS)
            | {
                "kubernetes.io/service-name": constants.SERVICE_NAME,
                "endpointslice.kubernetes.io/managed-by": constants.NAME,
            },
            "ownerReferences": [
                {
                    "apiVersion": SERVICES.api_version,
                    "kind": SERVICES.kind,
                    "name": constants.SERVICE_NAME,
                    "uid": service_uid,
                }
            ],
        },
        "addressType": "IPv6" if ":" in parameters.address else "IPv4",
        "endpoints": [
            {"addresses": [parameters.address], "conditions": {"ready": True, "serving": True}}
        ],
        "ports": [
            {
                "name": constants.HTTPS_PORT_NAME,
                "port": parameters.port,
                "protocol": "TCP",
                "appProtocol": "https",
            }
        ],
    }


@final
class ServiceEndpoint:
    """Leads one Service to this replica."""

    def __init__(self, client: "KubeClient", parameters: "EndpointParameters") -> None:
        self._client = client
        self._parameters = parameters

    async def reconcile(self, service: str) -> float | None:
        """Write the slice if it leads elsewhere."""
        namespace = self._parameters.namespace
        try:
            slice_ = await self._client.get(
                ENDPOINT_SLICES, _EndpointSlice, service, namespace=namespace
            )
        except NotFound:
            slice_ = _EndpointSlice()
        if slice_.leads_to(self._parameters):
            return RECHECK_S
        try:
            owner = await self._client.get(SERVICES, _Service, service, namespace=namespace)
        except NotFound:
            return RECHECK_S
        await self._client.apply(
            ENDPOINT_SLICES,
            build_endpoint_slice(self._parameters, owner.metadata.uid),
            field_manager=FIELD_MANAGER,
        )
        _log.info("service leads here", service=service, address=self._parameters.address)
        return RECHECK_S


SPEC: Final = ControllerSpec(
    name="service.endpoint",
    namespaced_rbac=(
        # A create carries no name: `manifests.install.server_policy` limits that.
        PolicyRule(
            group=ENDPOINT_SLICES.group, resources=(ENDPOINT_SLICES.plural,), verbs=("create",)
        ),
        PolicyRule(
            group=ENDPOINT_SLICES.group,
            resources=(ENDPOINT_SLICES.plural,),
            verbs=("get", "patch"),
            names=(constants.SERVICE_NAME,),
        ),
        PolicyRule(resources=("services",), verbs=("get",), names=(constants.SERVICE_NAME,)),
    ),
    triggers=(),
    initial=lambda _: (constants.SERVICE_NAME,),
    is_enabled=lambda settings: bool(settings.endpoint.address),
    build=lambda context: ServiceEndpoint(context.client, context.settings.endpoint).reconcile,
)
