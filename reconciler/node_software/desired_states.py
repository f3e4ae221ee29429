"""What states are to have, or why they cannot: a mistake in one state stops no other."""

from typing import TYPE_CHECKING, Any, TypeVar, final

from manifests.node.device_plugin import signed
from operands.nvidia.policy_operands import PolicyOperands, StateFault, StateSettingsError
from operands.nvidia.states import driver, vgpu_manager
from reconciler.node_software.config_map_keys import ConfigMapKeys
from reconciler.node_software.state_outcomes import DesiredState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from api.kinds.nvidia.clusterpolicy import ClusterPolicy
    from kube.client import KubeClient
    from operands.nvidia.node_software import HostSoftware
    from operands.operand_state import OperandState, ServedKinds
    from reconciler.settings import NodeSoftwareParameters

Settings = TypeVar("Settings")


def desired_state(
    state: "OperandState[Settings]",
    settings: Settings,
    served: "ServedKinds",
    *,
    without: "Mapping[HostSoftware, str]",
) -> DesiredState:
    """Return the signed objects of a state.

    Args:
        state: the state.
        settings: what it depends on.
        served: optional kinds of the cluster.
        without: software of nodes that get nothing of the state, and why, with the cure.
    """
    if not state.is_enabled(settings):
        return DesiredState(name=state.name, is_enabled=False)
    try:
        objects: list[dict[str, Any]] = state.objects(settings, served)
    except StateSettingsError as error:
        return DesiredState(name=state.name, fault=(error.fault, str(error)))
    texts = sorted(set(without.values()))
    return DesiredState(
        name=state.name,
        objects=[signed(object_) for object_ in objects],
        fault=(StateFault.OS_UNKNOWN, "; ".join(texts)) if texts else None,
    )


@final
class PolicyStates:
    """The states of the ClusterPolicy that counts, which are built again only where something has changed."""

    def __init__(
        self,
        client: "KubeClient",
        parameters: "NodeSoftwareParameters",
        states: "Sequence[OperandState[PolicyOperands]]",
    ) -> None:
        self._parameters = parameters
        self._states = states
        self._config_maps = ConfigMapKeys(client, parameters.namespace)
        self._built: tuple[tuple[object, ...], list[DesiredState]] = ((), [])
        # what the desired states were built from, and they

    async def desired(
        self, policy: "ClusterPolicy", software: "tuple[HostSoftware, ...]", served: "ServedKinds"
    ) -> list[DesiredState]:
        """Return what every state is to have.

        Raises:
            KubeError: a ConfigMap that the spec names cannot be read.
        """
        base = self._operands(policy, software, {})
        names = driver.config_maps_of_policy(base) | vgpu_manager.config_maps_of_policy(base)
        keys = await self._config_maps.of(names)
        inputs = (policy.metadata.name, policy.spec, software, served, keys)
        if self._built[0] != inputs:
            settings = self._operands(policy, software, keys)
            without = {
                driver.NAME: driver.nodes_without_driver(settings),
                vgpu_manager.NAME: vgpu_manager.nodes_without_manager(settings),
            }
            desired = [
                desired_state(state, settings, served, without=without.get(state.name, {}))
                for state in self._states
            ]
            self._built = inputs, desired
        return self._built[1]

    def _operands(
        self,
        policy: "ClusterPolicy",
        software: "tuple[HostSoftware, ...]",
        config_keys: "Mapping[str, tuple[str, ...]]",
    ) -> PolicyOperands:
        return PolicyOperands(
            name=policy.metadata.name,
            spec=policy.spec,
            namespace=self._parameters.namespace,
            environment=self._parameters.environment,
            software=software,
            config_keys=config_keys,
            metrics=self._parameters.metrics,
        )
