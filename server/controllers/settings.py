"""The server's settings as parameters of the controllers."""

import datetime as dt
import os
from typing import TYPE_CHECKING, Final

from api.meta import SelectorOperator, SelectorRequirement
from inventory.debounce import DebounceLimits
from inventory.discovery.node import InventoryParameters, on_managed_nodes
from inventory.health.device import HealthDebounceLimits
from inventory.readiness.software import BootstrapParameters, Operand
from manifests.constants import (
    HTTPS_PORT_NAME,
    METRICS_PATH,
    SCHEDULER_SECRET,
    SERVER_COMPONENT,
    SERVICE_NAME,
    component_labels,
)
from manifests.node.cache_mounts import NodeCacheSettings
from manifests.node.daemonset import KubeletDirectories, PodSettings
from manifests.node.device_plugin import (
    NodeAgentSettings,
    NodeDetectorSettings,
    WorkloadSettings,
    names_registry,
)
from operands.nvidia.policy_operands import ServerMetrics
from operands.nvidia.policy_states import build_operands
from operands.nvidia.policy_transforms import containers_of
from operands.operand_state import ServedKinds
from reconciler.installation.scheduler_trust import AUTHORITIES_KEY
from reconciler.settings import (
    ControllerSettings,
    EndpointParameters,
    NodeSoftwareParameters,
)
from server.controllers.built_in_policy import built_in_policy
from server.settings import BadSettingsError

if TYPE_CHECKING:
    from pathlib import Path

    from server.setting_sections import NodeRequirementSettings
    from server.settings import (
        DevicePluginSettings,
        NodeAgentRolloutSettings,
        NodeDetectorRolloutSettings,
        Settings,
        TlsSettings,
    )

_IMAGE_VARIABLE: Final = "_IMAGE"
"""End of the names of variables that hold an operand's image."""


def controller_settings(settings: "Settings") -> ControllerSettings:
    health = settings.health
    workloads = workload_settings(settings)
    return ControllerSettings(
        workloads=workloads,
        operands=built_in_policy(settings, workloads),
        inventory=_inventory_parameters(settings),
        bootstrap=_bootstrap_parameters(settings),
        health=HealthDebounceLimits(
            xid_actions=health.xid_actions,
            period_s=health.period_s,
            freshness_s=settings.bootstrap.heartbeat_freshness_s,
        ),
        scheduler_authorities=_scheduler_authorities(settings.tls),
        is_labelling_namespace=settings.pod_security.label_namespace
        and bool(operand_images(settings)),
        is_labelling_nodes=settings.inventory.label_nodes,
        is_scraping=health.dcgm,
        scrape_period_s=health.scrape_period_s,
        is_nominating=settings.placement == "Nominated",
        endpoint=_endpoint_parameters(settings),
        scaling_backends=frozenset(settings.autoscaling.backends),
        is_serving_caches=settings.kernel_caches.enabled,
        node_software=_node_software_parameters(settings),
    )


def _inventory_parameters(settings: "Settings") -> InventoryParameters:
    inventory = settings.inventory
    return InventoryParameters(
        managed_label=inventory.managed_label,
        is_managed_by_default=inventory.managed_by_default,
        gone_for=dt.timedelta(seconds=inventory.node_gone_s),
    )


def _node_software_parameters(settings: "Settings") -> NodeSoftwareParameters:
    given = {
        name: value
        for name, value in os.environ.items()
        if name.endswith(_IMAGE_VARIABLE) and value
    }
    return NodeSoftwareParameters(
        is_enabled=settings.node_software.enabled,
        namespace=settings.namespace,
        environment={**given, **settings.node_software.images},
        metrics=_server_metrics(settings),
    )


def _server_metrics(settings: "Settings") -> ServerMetrics | None:
    """Return where Prometheus finds our metrics; None where the authority of our certificate is in no Secret of ours."""
    if settings.tls.source == "Files":
        return None
    return ServerMetrics(
        selector=component_labels(SERVER_COMPONENT),
        port=HTTPS_PORT_NAME,
        path=METRICS_PATH,
        server_name=f"{SERVICE_NAME}.{settings.namespace}.svc",
        ca_secret=SCHEDULER_SECRET,
    )


def _scheduler_authorities(tls: "TlsSettings") -> "Path | None":
    directory = tls.directory if tls.source == "Files" else None
    return None if directory is None else directory / AUTHORITIES_KEY


def _endpoint_parameters(settings: "Settings") -> EndpointParameters:
    return EndpointParameters(
        namespace=settings.namespace,
        address=settings.listen.advertised_address or "",
        port=settings.listen.port,
    )


def _bootstrap_parameters(settings: "Settings") -> BootstrapParameters:
    bootstrap = settings.bootstrap
    policy = built_in_policy(settings, workload_settings(settings))
    runs = {
        Operand.VALIDATOR: policy.own is not None and policy.own.runs_validator,
        Operand.GFD: policy.spec.gfd.is_enabled,
        Operand.DCGM: policy.spec.dcgm.is_enabled,
        Operand.DCGM_EXPORTER: policy.spec.dcgm_exporter.is_enabled,
    }
    return BootstrapParameters(
        requirements={
            Operand.VALIDATOR: bootstrap.validator.requirement,
            Operand.GFD: bootstrap.gfd.requirement,
            Operand.DCGM: bootstrap.dcgm.requirement,
            Operand.DCGM_EXPORTER: bootstrap.dcgm_exporter.requirement,
        },
        installed=frozenset(item for item, is_run in runs.items() if is_run),
        debounce=DebounceLimits(period_s=bootstrap.period_s),
        heartbeat_freshness_s=bootstrap.heartbeat_freshness_s,
    )


def workload_settings(settings: "Settings") -> WorkloadSettings:
    """Return what is the same for all pools."""
    plugin, agent = settings.device_plugin, settings.node_agent
    detector = settings.node_detector
    return WorkloadSettings(
        image=plugin.image,
        namespace=settings.namespace,
        mode=plugin.mode,
        plugin=plugin.plugin,
        hand_out=plugin.hand_out,
        cdi_kind=plugin.cdi_kind,
        pods=_pod_settings(plugin, agent),
        max_unavailable=settings.daemonsets.rolling_update.max_unavailable,
        kubelet=KubeletDirectories(root=settings.kubelet.directory),
        agent=NodeAgentSettings(
            is_enabled=agent.enabled,
            image=agent.image,
            xid_actions=settings.health.xid_actions,
            driver_libraries=agent.driver_libraries or "",
            exports_metrics=settings.bootstrap.exports_nvml,
            node_selector=agent.node_selector,
            node_affinity=(
                *on_managed_nodes(_inventory_parameters(settings)),
                *(_requirement(item) for item in agent.node_affinity),
            ),
            caches=_node_cache_settings(settings),
            pods=_pod_settings(agent, agent),
        ),
        detector=NodeDetectorSettings(
            is_enabled=detector.enabled,
            node_selector=detector.node_selector,
            node_affinity=tuple(_requirement(item) for item in detector.node_affinity),
            pods=_pod_settings(detector, agent),
        ),
    )


def _node_cache_settings(settings: "Settings") -> NodeCacheSettings | None:
    caches = settings.kernel_caches
    if not caches.enabled:
        return None
    return NodeCacheSettings(
        directory=caches.directory,
        quota=caches.quota,
        grace_s=caches.grace_s,
        plain_http=caches.registries.plain_http,
        private=caches.registries.private,
        ca_config_map=caches.registries.ca_config_map,
        pull_secrets=caches.pull_secrets,
    )


def operand_images(settings: "Settings") -> tuple[str, ...]:
    """Return the images of all containers of our DaemonSets."""
    workloads = workload_settings(settings)
    found = {*workloads.images}
    if workloads.agent_image:
        operands = build_operands(built_in_policy(settings, workloads), ServedKinds())
        daemon_sets = [item for item in operands if item["kind"] == "DaemonSet"]
        found |= {container["image"] for item in daemon_sets for container in containers_of(item)}
    return tuple(sorted(found))


def named_operand_images(settings: "Settings") -> tuple[str, ...]:
    """Return the images that settings of operands name, whether these run or not: as the chart finds them."""
    bootstrap = settings.bootstrap
    return tuple(
        sorted(
            {
                item.image
                for item in (bootstrap.gfd, bootstrap.dcgm, bootstrap.dcgm_exporter)
                if item.image
            }
        )
    )


def _pod_settings(
    settings: "DevicePluginSettings | NodeAgentRolloutSettings | NodeDetectorRolloutSettings",
    agent: "NodeAgentRolloutSettings",
) -> PodSettings:
    return PodSettings(
        image_pull_policy=agent.image_pull_policy or "",
        image_pull_secrets=agent.image_pull_secrets,
        requests=settings.resources.requests,
        limits=settings.resources.limits,
        priority_class=agent.priority_class,
    )


def _requirement(settings: "NodeRequirementSettings") -> SelectorRequirement:
    return SelectorRequirement(
        key=settings.key,
        operator=SelectorOperator(settings.operator),
        values=list(settings.values) or None,
    )


def check_images(settings: "Settings") -> None:
    """Check that each image of our DaemonSets, some of them privileged, names its registry.

    Raises:
        BadSettingsError: one does not; container runtimes would take it from docker.io.
    """
    images = operand_images(settings)
    unnamed = [image for image in images if not names_registry(image)]
    if unnamed:
        raise BadSettingsError(
            f"device_plugin.image, node_agent.image, bootstrap: {', '.join(repr(item) for item in unnamed)} names no"
            " registry, and privileged DaemonSets are made of it: set them to what `make image` built, as"
            " registry.example.com/gpu-control-plane@sha256:..., or make no DaemonSets"
            " (device_plugin.mode None, node_agent.enabled false, bootstrap.operands External)"
        )
