"""All objects of an installation, in the order in which they are applied.

`gpu-control-plane render all` prints them, and the chart is generated from them. A group is a file
of the chart; it is left out where the value that it depends on is false or empty.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from cli.uninstall.hook_rights import build_hook
from console.processes.rbac import CONSOLE_NAMESPACED_RBAC, CONSOLE_RBAC
from manifests import constants
from manifests.caches.claim_policies import build_claim_policies
from manifests.caches.crds import build_cache_crds
from manifests.install.agent_policy import build_agent_policy
from manifests.install.annotation_policy import build_annotation_policy
from manifests.install.cert_manager import (
    build_certificates,
    build_console_certificate,
    inject_annotation,
)
from manifests.install.crds import build_crds
from manifests.install.deployments.console import build_console
from manifests.install.deployments.deployment import given
from manifests.install.deployments.scheduler import (
    build_scheduler,
    build_scheduler_budget,
    build_scheduler_config,
)
from manifests.install.deployments.server import (
    build_metrics_service,
    build_server,
    build_server_budget,
    build_service,
)
from manifests.install.leadership_policy import build_fencing_policies
from manifests.install.managed_policy import build_managed_policy
from manifests.install.network_policy import (
    build_console_network_policy,
    build_network_policies,
)
from manifests.install.node_feature_rule import build_node_feature_rule
from manifests.install.rbac import (
    build_cache_roles,
    build_namespace,
    build_pool_viewers,
    build_pull_secret_rights,
    build_rbac,
    build_scheduler_rbac,
    build_user_roles,
)
from manifests.install.server_policy import build_server_policies
from manifests.install.uninstall_hook import HookPod
from manifests.install.webhooks import (
    ServiceClient,
    WebhookSettings,
    build_mutating_configuration,
    build_validating_configuration,
)
from manifests.monitoring.alerts import build_alert_rules
from manifests.monitoring.dashboards.config_maps import build_dashboards
from manifests.monitoring.monitors import build_pod_monitor, build_service_monitor
from manifests.node.csi_driver import build_csi_driver
from manifests.nvidia.operator_crds import build_operator_crds
from server.configuration.config_definition import build_config_crd
from server.rbac import (
    BACKEND_RULES,
    build_agent_roles,
    build_backend_roles,
    build_node_software_roles,
    build_server_roles,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from manifests.install.installation import Installation
    from manifests.install.values import ChartValues

Json = dict[str, Any]

_NODE_SOFTWARE: Final = "node_software.enabled"
_KEPT: Final = {"helm.sh/resource-policy": "keep"}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectGroup:
    """Objects that are installed together."""

    name: str
    objects: list[Json]
    needs: tuple[str, ...] = ()
    """Values by their names in the model, `scheduler.enabled`: all must be true, or not empty."""
    needs_backend: str = ""
    """A backend of autoscaling that the server's settings name."""
    is_in_chart: bool = True
    """Helm makes the namespace itself."""
    is_hook: bool = False
    """Only Helm makes it, at the time that its annotations say."""

    def is_selected(self, values: "ChartValues") -> bool:
        named = values.settings.get("autoscaling", {}).get("backends", ())
        has_backend = not self.needs_backend or self.needs_backend in named
        return has_backend and all(_value_at(values, path) for path in self.needs)


def build_installed_objects(installation: "Installation") -> list[Json]:
    """Return the objects that the values ask for."""
    return [
        object_
        for group in build_groups(installation)
        if group.is_selected(installation.values) and not group.is_hook
        for object_ in group.objects
    ]


def build_groups(installation: "Installation") -> "list[ObjectGroup]":
    """Return all groups, whether the values ask for them or not."""
    namespace = installation.namespace
    kept = _KEPT if installation.values.crds.keep else None
    return [
        ObjectGroup(name="namespace", objects=[build_namespace(namespace)], is_in_chart=False),
        ObjectGroup(
            name="crds",
            objects=[*build_crds(kept), build_config_crd(kept)],
            needs=("crds.enabled",),
        ),
        *_kernel_caches(installation),
        ObjectGroup(
            name="node-software-crds",
            objects=build_operator_crds(kept),
            needs=("crds.enabled", _NODE_SOFTWARE),
        ),
        ObjectGroup(name="server-roles", objects=build_server_roles(installation.own_objects)),
        *(
            ObjectGroup(
                name=f"{backend.value}-roles",
                objects=build_backend_roles(installation.own_objects, backend),
                needs_backend=backend.value,
            )
            for backend in BACKEND_RULES
        ),
        ObjectGroup(
            name="node-software-roles",
            objects=build_node_software_roles(installation.own_objects),
            needs=(_NODE_SOFTWARE,),
        ),
        ObjectGroup(
            name="node-feature-rule",
            objects=[build_node_feature_rule()],
            needs=("node_feature_rule.enabled",),
        ),
        ObjectGroup(name="agent-roles", objects=build_agent_roles(namespace)),
        ObjectGroup(name="user-roles", objects=build_user_roles()),
        ObjectGroup(
            name="pool-viewers",
            objects=build_pool_viewers(installation.viewer_subjects),
            needs=("pool_viewers",),
        ),
        ObjectGroup(name="policies", objects=list(_policies(installation))),
        ObjectGroup(
            name="server-policies",
            objects=build_server_policies(
                installation.own_objects, excluded_namespaces=installation.excluded_namespaces
            ),
        ),
        ObjectGroup(
            name="services",
            objects=[build_service(installation), build_metrics_service(installation)],
        ),
        ObjectGroup(
            name="certificates",
            objects=build_certificates(installation),
            needs=("tls.uses_cert_manager",),
        ),
        ObjectGroup(name="server", objects=build_server(installation)),
        ObjectGroup(
            name="server-disruption-budget",
            objects=[build_server_budget(installation)],
            needs=("pod_disruption_budget.enabled",),
        ),
        *_scheduler(installation),
        *_console(installation),
        ObjectGroup(
            name="network-policies",
            objects=build_network_policies(installation),
            needs=("network_policy.enabled",),
        ),
        *_monitoring(installation),
        ObjectGroup(name="webhooks", objects=_webhooks(installation)),
        ObjectGroup(
            name="uninstall",
            objects=build_hook(
                installation.own_objects,
                _hook_pod(installation),
                is_forced=installation.values.uninstall.force,
            ),
            needs=("uninstall.enabled",),
            is_hook=True,
        ),
    ]


def _kernel_caches(installation: "Installation") -> "Iterator[ObjectGroup]":
    enabled, secrets = "kernel_caches.enabled", installation.values.kernel_caches.pull_secrets
    kept = _KEPT if installation.values.crds.keep else None
    yield ObjectGroup(
        name="cache-crds", objects=build_cache_crds(kept), needs=("crds.enabled", enabled)
    )
    yield ObjectGroup(name="cache-roles", objects=build_cache_roles(), needs=(enabled,))
    yield ObjectGroup(
        name="cache-pull-secrets",
        objects=build_pull_secret_rights(secrets, installation.namespace),
        needs=(enabled, "kernel_caches.pull_secrets"),
    )
    yield ObjectGroup(
        name="csi-driver", objects=[build_csi_driver(), *build_claim_policies()], needs=(enabled,)
    )


def _scheduler(installation: "Installation") -> "Iterator[ObjectGroup]":
    enabled = "scheduler.enabled"
    roles = build_scheduler_rbac(installation.namespace)
    yield ObjectGroup(name="scheduler-roles", objects=roles, needs=(enabled,))
    yield ObjectGroup(
        name="scheduler",
        objects=[build_scheduler_config(installation), build_scheduler(installation)],
        needs=(enabled,),
    )
    yield ObjectGroup(
        name="scheduler-disruption-budget",
        objects=[build_scheduler_budget(installation)],
        needs=(enabled, "pod_disruption_budget.enabled"),
    )


def _console(installation: "Installation") -> "Iterator[ObjectGroup]":
    enabled = "console.enabled"
    yield ObjectGroup(
        name="console-roles",
        objects=build_rbac(
            CONSOLE_RBAC,
            name=constants.CONSOLE,
            namespaced_rules=CONSOLE_NAMESPACED_RBAC,
            namespace=installation.namespace,
        ),
        needs=(enabled,),
    )
    yield ObjectGroup(
        name="console-certificate",
        objects=[build_console_certificate(installation)],
        needs=(enabled, "tls.uses_cert_manager", "console.needs_issued_certificate"),
    )
    yield ObjectGroup(name="console", objects=build_console(installation), needs=(enabled,))
    yield ObjectGroup(
        name="console-network-policy",
        objects=[build_console_network_policy(installation)],
        needs=(enabled, "network_policy.enabled"),
    )


def _monitoring(installation: "Installation") -> "Iterator[ObjectGroup]":
    namespace, values = installation.namespace, installation.values.monitoring
    servers, agents, rule = values.service_monitor, values.pod_monitor, values.prometheus_rule
    yield ObjectGroup(
        name="service-monitor",
        objects=[
            build_service_monitor(
                namespace,
                servers.interval,
                servers.labels,
                # Without cert-manager, the Secret of the serving certificate has the CA's key too.
                ca_secret=constants.SERVING_SECRET
                if installation.uses_cert_manager
                else constants.SCHEDULER_SECRET,
                with_usage=servers.usage,
            )
        ],
        needs=("monitoring.service_monitor.enabled",),
    )
    yield ObjectGroup(
        name="pod-monitor",
        objects=[build_pod_monitor(namespace, agents.interval, agents.labels)],
        needs=("monitoring.pod_monitor.enabled",),
    )
    yield ObjectGroup(
        name="alerts",
        objects=[build_alert_rules(namespace, rule.labels, runbook_page=rule.runbook_page)],
        needs=("monitoring.prometheus_rule.enabled",),
    )
    dashboards = values.dashboards
    yield ObjectGroup(
        name="dashboards",
        objects=build_dashboards(
            namespace,
            dashboards.labels,
            dashboards.annotations,
            runbook_page=rule.runbook_page,
        ),
        needs=("monitoring.dashboards.enabled",),
    )


def _policies(installation: "Installation") -> "Iterator[Json]":
    own, excluded = installation.own_objects, installation.excluded_namespaces
    yield from build_annotation_policy(
        [own.username], server=own.username, excluded_namespaces=excluded
    )
    yield from build_managed_policy(
        [own.username],
        namespace=own.namespace,
        node_writers=installation.node_writers,
        break_glass_group=installation.values.managed_fields.break_glass_group,
    )
    yield from build_fencing_policies()
    yield from build_agent_policy(own.namespace)


def _webhooks(installation: "Installation") -> list[Json]:
    settings = WebhookSettings(
        client=ServiceClient(namespace=installation.namespace),
        excluded_namespaces=installation.excluded_namespaces,
        server=installation.own_objects.username,
        serves_caches=installation.values.kernel_caches.enabled,
        workloads=installation.workload_kinds,
        further_webhooks=installation.workload_webhooks,
        annotations=inject_annotation(installation.namespace)
        if installation.uses_cert_manager
        else {},
    )
    return [build_mutating_configuration(settings), build_validating_configuration(settings)]


def _hook_pod(installation: "Installation") -> HookPod:
    server = installation.values.server
    return HookPod(
        image=installation.image,
        image_pull_policy=installation.values.image.pull_policy,
        fields=given(
            imagePullSecrets=installation.pull_secrets,
            nodeSelector=server.node_selector,
            tolerations=list(server.tolerations),
            priorityClassName=server.priority_class_name,
        ),
    )


def _value_at(values: object, path: str) -> object:
    for name in path.split("."):
        values = getattr(values, name)
    return values
