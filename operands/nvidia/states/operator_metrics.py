"""State `state-operator-metrics`: the metrics of this control plane under the name of the operator's Service.

Clients of the operator's Service `gpu-operator` find the metrics of the control plane there. Prometheus reads them by
TLS where the policy asks for it: the installation may have a ServiceMonitor of its own, and two would read all twice.
"""

from typing import TYPE_CHECKING, Any, Final

from operands.asset_files import load_assets
from operands.nvidia import policy_transforms
from operands.nvidia.policy_operands import PolicyOperands
from operands.operand_state import OperandState
from operands.transforms import object_of

if TYPE_CHECKING:
    from operands.nvidia.policy_operands import ServerMetrics

NAME: Final = "state-operator-metrics"
_OFF: Final = "the server's tls.source decides, and no spec: it runs with SelfSigned"


def _build(settings: PolicyOperands) -> list[dict[str, Any]]:
    metrics, operator = settings.metrics, settings.spec.operator
    if metrics is None:
        return []
    objects = load_assets(NAME)
    service, monitor = object_of(objects, "Service"), object_of(objects, "ServiceMonitor")
    service["spec"]["selector"] = dict(metrics.selector)
    service["spec"]["ports"][0]["targetPort"] = metrics.port
    config = operator.metrics.service_monitor
    _set_endpoint(monitor, metrics)
    policy_transforms.set_service_monitor(monitor, config)
    policy_transforms.set_operator_metadata(objects, operator)
    if not config.enabled:
        objects.remove(monitor)
    return policy_transforms.finish_policy(NAME, objects, settings)


def _set_endpoint(monitor: dict[str, Any], metrics: "ServerMetrics") -> None:
    endpoint = monitor["spec"]["endpoints"][0]
    endpoint["path"] = metrics.path
    endpoint["tlsConfig"] = {
        "ca": {"secret": {"name": metrics.ca_secret, "key": "ca.crt"}},
        "serverName": metrics.server_name,
    }


STATE: Final = OperandState(
    name=NAME,
    why_off=lambda settings: "" if settings.metrics is not None else _OFF,
    build=_build,
)
