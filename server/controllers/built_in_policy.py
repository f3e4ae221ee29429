"""The built-in policy: the operands that section `bootstrap` describes, in the form of a ClusterPolicy, placed as the node agent is."""

from typing import TYPE_CHECKING

from api.kinds.nvidia import container_operands, operator_blocks
from api.kinds.nvidia.clusterpolicy import ClusterPolicySpec
from api.kinds.nvidia.operand_block import ContainerResources, DefaultedConfig, EnvVar
from manifests.node.agent_daemonset import on_nodes_with_devices
from operands.nvidia.own_pods import OwnOperands
from operands.nvidia.policy_operands import PolicyOperands

if TYPE_CHECKING:
    from collections.abc import Mapping

    from manifests.node.device_plugin import WorkloadSettings
    from server.bootstrap_settings import (
        BootstrapSettings,
        GfdOperandSettings,
    )
    from server.settings import Settings


def built_in_policy(settings: "Settings", workloads: "WorkloadSettings") -> PolicyOperands:
    """Return the policy; nothing of it is on where another component runs the operands."""
    return PolicyOperands(
        namespace=settings.namespace,
        spec=_spec(settings.bootstrap, workloads, kubelet=settings.kubelet.directory),
        own=_own_operands(settings.bootstrap, workloads),
    )


def _spec(
    bootstrap: "BootstrapSettings", workloads: "WorkloadSettings", *, kubelet: str
) -> ClusterPolicySpec:
    pods, is_own = workloads.agent.pods, bootstrap.operands == "Own"
    secrets, exporter = list(pods.image_pull_secrets) or None, bootstrap.dcgm_exporter
    return ClusterPolicySpec(
        operator=operator_blocks.OperatorSpec(runtime_class=bootstrap.runtime_class),
        daemonsets=operator_blocks.DaemonsetsSpec(
            rolling_update=operator_blocks.RollingUpdate(
                max_unavailable=str(workloads.max_unavailable)
            )
        ),
        host_paths=operator_blocks.HostPaths(kubelet_root_dir=kubelet),
        validator=container_operands.ValidatorSpec(
            image=workloads.agent_image,
            image_pull_policy=pods.image_pull_policy,
            image_pull_secrets=secrets,
            resources=_resources("10m", "96Mi", "256Mi"),
        ),
        gfd=container_operands.GPUFeatureDiscoverySpec(
            enabled=is_own and bootstrap.gfd.enabled,
            image=bootstrap.gfd.image,
            image_pull_policy=pods.image_pull_policy,
            image_pull_secrets=secrets,
            resources=_resources("10m", "64Mi", "256Mi"),
            env=_discovery(bootstrap.gfd),
        ),
        # Both are one image; its config-manager chooses gpu-feature-discovery's configuration.
        device_plugin=container_operands.DevicePluginSpec(
            image=bootstrap.gfd.image,
            image_pull_policy=pods.image_pull_policy,
            image_pull_secrets=secrets,
            config=DefaultedConfig(
                name=bootstrap.gfd.config_map, default=bootstrap.gfd.default_config
            ),
        ),
        dcgm=container_operands.DCGMSpec(
            enabled=is_own and bootstrap.dcgm.enabled,
            image=bootstrap.dcgm.image,
            image_pull_policy=pods.image_pull_policy,
            image_pull_secrets=secrets,
            resources=_resources("50m", "128Mi", bootstrap.dcgm.memory_limit),
            env=_variables({}),
        ),
        dcgm_exporter=container_operands.DCGMExporterSpec(
            enabled=bootstrap.runs_dcgm_exporter,
            image=exporter.image,
            image_pull_policy=pods.image_pull_policy,
            image_pull_secrets=secrets,
            resources=_resources("50m", "128Mi", exporter.memory_limit),
            env=_variables(exporter.env),
            service_monitor=operator_blocks.ServiceMonitorConfig(
                enabled=True,
                interval=exporter.service_monitor.interval,
                honor_labels=True,
                additional_labels=exporter.service_monitor.labels,
            ),
        ),
    )


def _own_operands(bootstrap: "BootstrapSettings", workloads: "WorkloadSettings") -> OwnOperands:
    agent, validator, exporter = workloads.agent, bootstrap.validator, bootstrap.dcgm_exporter
    is_validating = agent.is_enabled if validator.enabled is None else validator.enabled
    return OwnOperands(
        placement={
            "affinity": {"nodeAffinity": on_nodes_with_devices(agent.node_affinity)},
            "nodeSelector": dict(sorted(agent.node_selector.items())),
            "priorityClassName": agent.pods.priority_class,
        },
        runs_validator=bootstrap.operands == "Own" and is_validating,
        exports_nvml=bootstrap.exports_nvml and agent.is_enabled,
        allocation_arguments=tuple(workloads.allocation_arguments()),
        library_arguments=tuple(agent.library_arguments()),
        validates_nvidia_fs=validator.enable_nvidia_fs_validation,
        validates_gdrcopy=validator.enable_gdrcopy_validation,
        features_dir=bootstrap.gfd.features_dir or "",
        host_sys_path=bootstrap.gfd.host_sys_path,
        exporter_port=exporter.port,
        service_labels=exporter.labels,
        monitor_annotations=exporter.service_monitor.annotations,
    )


def _discovery(gfd: "GfdOperandSettings") -> list[EnvVar]:
    return _variables(
        {
            "GFD_SLEEP_INTERVAL": f"{gfd.sleep_interval_s:g}s",
            "GFD_FAIL_ON_INIT_ERROR": str(gfd.fail_on_init_error).lower(),
        }
    )


def _variables(given: "Mapping[str, str]") -> list[EnvVar]:
    """Return these variables, after that by which NVIDIA's runtime gives a container all devices."""
    values = {"NVIDIA_VISIBLE_DEVICES": "all", **given}
    return [EnvVar(name=name, value=value) for name, value in values.items()]


def _resources(cpu: str, memory: str, limit: str) -> ContainerResources:
    return ContainerResources(requests={"cpu": cpu, "memory": memory}, limits={"memory": limit})
