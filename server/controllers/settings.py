"""The server's settings in the terms of the controllers."""

import contextlib
import datetime as dt
import os
from typing import TYPE_CHECKING, Final

import msgspec

from api.foreign.core import Toleration
from api.image_source import ImageSourceError
from api.meta import SelectorOperator, SelectorRequirement
from inventory.debounce import DebounceTerms
from inventory.discovery.node import InventoryTerms
from inventory.health.device import IGNORED_XIDS, HealthDebounceTerms
from inventory.readiness.software import BootstrapTerms, Operand
from manifests.constants import (
    HTTPS_PORT_NAME,
    METRICS_PATH,
    NAME,
    SCHEDULER_SECRET,
    SERVER_COMPONENT,
    SERVICE_NAME,
    component_labels,
)
from manifests.node.agent_daemonset import on_nodes_with_devices
from manifests.node.cache_mounts import NodeCacheSettings
from manifests.node.daemonset import KubeletDirectories, PodSettings
from manifests.node.device_plugin import (
    NodeAgentSettings,
    NodeDetectorSettings,
    WorkloadSettings,
    names_registry,
)
from operands.nvidia.policy_operands import ServerMetrics
from operands.operand_settings import (
    BootstrapOperands,
    DcgmSettings,
    ExporterSettings,
    GfdSettings,
    MetricsSource,
    MonitorSettings,
    OperandOptions,
    PlacementTerms,
    ValidatorSettings,
)
from reconciler.installation.scheduler_trust import AUTHORITIES_KEY
from reconciler.settings import (
    AutoscalingTerms,
    ControllerSettings,
    EndpointTerms,
    NodeSoftwareTerms,
)
from server.bootstrap_settings import OperandImageSettings
from server.settings import BadSettingsError

if TYPE_CHECKING:
    from pathlib import Path

    from server.bootstrap_settings import OperandSection
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
    inventory, health = settings.inventory, settings.health
    workloads = workload_settings(settings)
    return ControllerSettings(
        workloads=workloads,
        operands=bootstrap_operands(settings),
        inventory=InventoryTerms(
            managed_label=inventory.managed_label,
            is_managed_by_default=inventory.managed_by_default,
            fresh_for=dt.timedelta(seconds=inventory.freshness_s),
            gone_for=dt.timedelta(seconds=inventory.node_gone_s),
        ),
        bootstrap=_bootstrap_terms(settings),
        health=HealthDebounceTerms(
            ignored_xids=frozenset(health.ignored_xids),
            clean_samples=health.clean_samples,
            period_s=health.period_s,
            freshness_s=settings.bootstrap.heartbeat_freshness_s,
        ),
        heartbeat_freshness_s=inventory.freshness_s,
        scheduler_authorities=_scheduler_authorities(settings.tls),
        is_labelling_namespace=settings.pod_security.label_namespace
        and bool(operand_images(settings)),
        is_labelling_nodes=inventory.label_nodes,
        is_scraping=health.dcgm,
        scrape_period_s=health.scrape_period_s,
        scrape_timeout_s=health.scrape_timeout_s,
        scrapes_per_second=health.scrapes_per_second,
        is_nominating=settings.placement == "Nominated",
        endpoint=_endpoint_terms(settings),
        autoscaling=AutoscalingTerms(
            backends=frozenset(settings.autoscaling.backends),
            # A pod needs the name of an image, whether it runs or not.
            signal_image=settings.autoscaling.signal_image or workloads.agent_image or NAME,
            batch_idle_s=settings.autoscaling.batch_idle_s,
            batch_max_s=settings.autoscaling.batch_max_s,
        ),
        is_serving_caches=settings.kernel_caches.enabled,
        node_software=_node_software_terms(settings),
    )


def _node_software_terms(settings: "Settings") -> NodeSoftwareTerms:
    given = {
        name: value
        for name, value in os.environ.items()
        if name.endswith(_IMAGE_VARIABLE) and value
    }
    return NodeSoftwareTerms(
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


def _endpoint_terms(settings: "Settings") -> EndpointTerms:
    return EndpointTerms(
        namespace=settings.namespace,
        address=settings.listen.advertised_address or "",
        port=settings.listen.port,
    )


def _bootstrap_terms(settings: "Settings") -> BootstrapTerms:
    terms, operands = settings.bootstrap, bootstrap_operands(settings)
    runs = {
        Operand.VALIDATOR: operands.runs_validator,
        Operand.GFD: operands.runs_gfd,
        Operand.DCGM: operands.runs_dcgm,
        Operand.DCGM_EXPORTER: operands.runs_exporter,
    }
    return BootstrapTerms(
        requirements={
            Operand.VALIDATOR: terms.validator.requirement,
            Operand.GFD: terms.gfd.requirement,
            Operand.DCGM: terms.dcgm.requirement,
            Operand.DCGM_EXPORTER: terms.dcgm_exporter.requirement,
        },
        installed=frozenset(item for item, is_run in runs.items() if is_run),
        debounce=DebounceTerms(
            good_samples=terms.good_samples,
            bad_samples=terms.bad_samples,
            period_s=terms.period_s,
        ),
        heartbeat_freshness_s=terms.heartbeat_freshness_s,
    )


def workload_settings(settings: "Settings") -> WorkloadSettings:
    """Return what is the same for all pools.

    The default Xids are not named: DaemonSets that an earlier version made without them stay as they are.
    """
    plugin, agent = settings.device_plugin, settings.node_agent
    detector = settings.node_detector
    ignored = frozenset(settings.health.ignored_xids)
    return WorkloadSettings(
        image=plugin.image,
        namespace=settings.namespace,
        mode=plugin.mode,
        plugin=plugin.plugin,
        hand_out=plugin.hand_out,
        cdi_kind=plugin.cdi_kind,
        pods=_pod_settings(plugin),
        kubelet=KubeletDirectories(
            root=settings.kubelet.directory,
            device_plugins=settings.kubelet.device_plugins_directory,
        ),
        agent=NodeAgentSettings(
            is_enabled=agent.enabled,
            image=agent.image,
            ignored_xids=None if ignored == IGNORED_XIDS else ignored,
            driver_libraries=agent.driver_libraries or "",
            exports_metrics=settings.bootstrap.exports_nvml,
            node_selector={**plugin.node_selector, **agent.node_selector},
            node_affinity=tuple(_requirement(item) for item in agent.node_affinity),
            caches=_node_cache_settings(settings),
            pods=_pod_settings(agent),
        ),
        detector=NodeDetectorSettings(
            is_enabled=detector.enabled,
            image=detector.image,
            node_selector=detector.node_selector,
            node_affinity=tuple(_requirement(item) for item in detector.node_affinity),
            pods=_pod_settings(detector),
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
    found = {*workload_settings(settings).images, *bootstrap_operands(settings).images}
    return tuple(sorted(found))


def named_operand_images(settings: "Settings") -> tuple[str, ...]:
    """Return the images that settings of operands name, whether these run or not: as the chart finds them."""
    found = set()
    for name in ("validator", "gfd", "dcgm", "dcgm_exporter"):
        image: OperandImageSettings = getattr(settings.bootstrap, name).image
        with contextlib.suppress(ImageSourceError):
            found.add(image.resolved(f"bootstrap.{name}"))
    return tuple(sorted(found))


def bootstrap_operands(settings: "Settings") -> BootstrapOperands:
    """Return the operands of nodes, placed as the node agent is."""
    terms, workloads = settings.bootstrap, workload_settings(settings)
    agent, exporter = workloads.agent, terms.dcgm_exporter
    validator, gfd, dcgm = terms.validator, terms.gfd, terms.dcgm
    is_validating = agent.is_enabled if validator.enabled is None else validator.enabled
    uses_nvml = exporter.source is MetricsSource.NVML
    own_image = workloads.agent_image
    return BootstrapOperands(
        namespace=settings.namespace,
        own_image=own_image,
        is_own=terms.operands == "Own",
        kubelet_directory=settings.kubelet.directory,
        runtime_class=terms.runtime_class,
        placement=PlacementTerms(
            affinity={"nodeAffinity": on_nodes_with_devices(agent.node_affinity)},
            node_selector=agent.node_selector,
            tolerations=tuple(
                msgspec.to_builtins(toleration) for toleration in agent.pods.tolerations
            ),
            priority_class=agent.pods.priority_class,
        ),
        validator=ValidatorSettings(
            options=_options("validator", settings, is_enabled=is_validating, default=own_image),
            hand_out_arguments=tuple(workloads.hand_out_arguments()),
            validates_nvidia_fs=validator.enable_nvidia_fs_validation,
            validates_gdrcopy=validator.enable_gdrcopy_validation,
        ),
        gfd=GfdSettings(
            options=_options("gfd", settings, is_enabled=gfd.enabled),
            sleep_interval_s=gfd.sleep_interval_s,
            uses_node_feature_api=gfd.node_feature_api,
            features_dir=gfd.features_dir,
            fails_on_init_error=gfd.fail_on_init_error,
            host_sys_path=gfd.host_sys_path,
            config_map=gfd.config_map,
            default_config=gfd.default_config,
        ),
        dcgm=DcgmSettings(
            options=_options("dcgm", settings, is_enabled=dcgm.enabled),
            mig_strategy=dcgm.mig_strategy,
            hostengine_arguments=dcgm.hostengine_arguments,
            proftester_flags=dcgm.proftester_flags,
        ),
        exporter=ExporterSettings(
            options=_options(
                "dcgm_exporter",
                settings,
                # The node agents serve the metrics of NVML.
                is_enabled=exporter.enabled and (agent.is_enabled or not uses_nvml),
                default=own_image if uses_nvml else None,
            ),
            source=exporter.source,
            port=exporter.port,
            collectors=exporter.collectors,
            labels=exporter.labels,
            annotations=exporter.annotations,
            monitor=MonitorSettings(
                is_enabled=exporter.service_monitor.enabled,
                interval=exporter.service_monitor.interval,
                labels=exporter.service_monitor.labels,
                annotations=exporter.service_monitor.annotations,
            ),
        ),
    )


def _options(
    name: str, settings: "Settings", *, is_enabled: bool, default: str | None = None
) -> OperandOptions:
    """Return the options of one operand; our image has the node agent's pull settings by default."""
    operand: OperandSection = getattr(settings.bootstrap, name)
    if settings.bootstrap.operands != "Own" or not is_enabled:
        return OperandOptions()
    agent = settings.node_agent
    is_ours = operand.image == OperandImageSettings()
    inherited = agent.image_pull_policy if is_ours else None
    secrets = dict.fromkeys((*operand.image_pull_secrets, *agent.image_pull_secrets))
    return OperandOptions(
        is_enabled=True,
        image=default
        if is_ours and default is not None
        else operand.image.resolved(f"bootstrap.{name}"),
        image_pull_policy=operand.image_pull_policy or inherited or "",
        image_pull_secrets=tuple(secrets),
        requests=operand.resources.requests,
        limits=operand.resources.limits,
        args=operand.args,
        env=operand.env,
    )


def _pod_settings(
    settings: "DevicePluginSettings | NodeAgentRolloutSettings | NodeDetectorRolloutSettings",
) -> PodSettings:
    return PodSettings(
        image_pull_policy=settings.image_pull_policy or "",
        image_pull_secrets=settings.image_pull_secrets,
        requests=settings.resources.requests,
        limits=settings.resources.limits,
        tolerations=tuple(
            Toleration(**toleration.model_dump()) for toleration in settings.tolerations
        ),
        priority_class=settings.priority_class,
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
            f"device_plugin.image, node_agent.image, node_detector.image, bootstrap: {', '.join(repr(item) for item in unnamed)} names no"
            " registry, and privileged DaemonSets are made of it: set them to what `make image` built, as"
            " registry.example.com/gpu-control-plane@sha256:..., or make no DaemonSets"
            " (device_plugin.mode None, node_agent.enabled false, bootstrap.operands External)"
        )
