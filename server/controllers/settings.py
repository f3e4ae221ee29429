"""The server's settings in the terms of the controllers."""

import datetime as dt
from typing import TYPE_CHECKING

from api.foreign.core import Toleration
from api.meta import SelectorOperator, SelectorRequirement
from inventory.debounce import DebounceTerms
from inventory.discovery.node import InventoryTerms
from inventory.health.device import IGNORED_XIDS, HealthDebounceTerms
from inventory.readiness.software import BootstrapTerms, Operand
from manifests.constants import SCHEDULER_SECRET
from manifests.node.daemonset import KubeletDirectories, PodSettings
from manifests.node.device_plugin import NodeAgentSettings, WorkloadSettings, names_registry
from reconciler.installation.scheduler_trust import AUTHORITIES_KEY
from reconciler.settings import ControllerSettings, EndpointTerms, SchedulerTerms
from server.settings import BadSettingsError

if TYPE_CHECKING:
    from server.settings import (
        DevicePluginSettings,
        NodeAgentRolloutSettings,
        NodeRequirementSettings,
        Settings,
    )


def controller_settings(settings: "Settings") -> ControllerSettings:
    inventory, health = settings.inventory, settings.health
    workloads = workload_settings(settings)
    return ControllerSettings(
        workloads=workloads,
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
        scheduler=_scheduler_terms(settings),
        is_labelling_namespace=settings.pod_security.label_namespace and bool(workloads.images),
        is_labelling_nodes=inventory.label_nodes,
        is_scraping=health.dcgm,
        scrape_period_s=health.scrape_period_s,
        scrape_timeout_s=health.scrape_timeout_s,
        scrapes_per_second=health.scrapes_per_second,
        is_nominating=settings.placement == "Nominated",
        endpoint=_endpoint_terms(settings),
    )


def _scheduler_terms(settings: "Settings") -> SchedulerTerms:
    tls = settings.tls
    directory = tls.directory if tls.source == "Files" else None
    return SchedulerTerms(
        namespace=settings.namespace,
        deployment=settings.scheduler.deployment,
        secret=SCHEDULER_SECRET,
        authorities=None if directory is None else directory / AUTHORITIES_KEY,
        check_every_s=tls.check_every_s,
    )


def _endpoint_terms(settings: "Settings") -> EndpointTerms:
    return EndpointTerms(
        namespace=settings.namespace,
        service=settings.service,
        address=settings.listen.advertised_address or "",
        port=settings.listen.port,
    )


def _bootstrap_terms(settings: "Settings") -> BootstrapTerms:
    terms = settings.bootstrap
    return BootstrapTerms(
        requirements={
            Operand.VALIDATOR: terms.validator,
            Operand.GFD: terms.gfd,
            Operand.DCGM: terms.dcgm,
            Operand.DCGM_EXPORTER: terms.dcgm_exporter,
        },
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
            node_selector={**plugin.node_selector, **agent.node_selector},
            node_affinity=tuple(_requirement(one) for one in agent.node_affinity),
            pods=_pod_settings(agent),
        ),
    )


def _pod_settings(settings: "DevicePluginSettings | NodeAgentRolloutSettings") -> PodSettings:
    return PodSettings(
        image_pull_policy=settings.image_pull_policy or "",
        image_pull_secrets=settings.image_pull_secrets,
        requests=settings.resources.requests,
        limits=settings.resources.limits,
        tolerations=tuple(Toleration(**one.model_dump()) for one in settings.tolerations),
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
    unnamed = [one for one in workload_settings(settings).images if not names_registry(one)]
    if unnamed:
        raise BadSettingsError(
            f"device_plugin.image, node_agent.image: {', '.join(repr(one) for one in unnamed)} names no"
            " registry, and privileged DaemonSets are made of it: set them to what `make image` built, as"
            " registry.example.com/gpu-control-plane@sha256:..., or make no DaemonSets"
            " (device_plugin.mode None, node_agent.enabled false)"
        )
