"""`gpu-control-plane render`: what a cluster needs, as YAML."""

# ruff: noqa: PLC0415  # the server's modules are imported where a target needs them

import sys
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from cli.command_parser import PROGRAM, CommandLineError, CommandParser, no_such
from cli.exit_status import MISUSED, OK
from cli.render_options import add_render_flags, check_render_options
from manifests import constants
from manifests.caches.crds import build_cache_crds
from manifests.example_files import all_examples
from manifests.install.agent_policy import build_agent_policy
from manifests.install.annotation_policy import build_annotation_policy
from manifests.install.crds import build_crds
from manifests.install.deployments.scheduler import SCHEDULER_FILES
from manifests.install.installation import excluded_namespaces
from manifests.install.leadership_policy import build_fencing_policies
from manifests.install.managed_policy import build_managed_policy
from manifests.install.node_feature_rule import build_node_feature_rule
from manifests.install.rbac import build_cache_roles, build_pull_secret_rights
from manifests.install.scheduler import (
    ApiConnection,
    ExtenderEndpoint,
    ExtenderTls,
    SchedulerLeaderElection,
    build_extender_snippet,
    build_scheduler_configuration,
)
from manifests.install.server_policy import OwnObjects, build_server_policies
from manifests.install.webhooks import (
    ServiceClient,
    UrlClient,
    WebhookSettings,
    build_mutating_configuration,
    build_validating_configuration,
)
from manifests.monitoring.alerts import build_alert_rules
from manifests.monitoring.dashboards import config_maps
from manifests.node.csi_driver import build_csi_driver
from manifests.nvidia.operator_crds import build_operator_crds
from manifests.yaml import render

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from pathlib import Path

    from server.settings import Settings


class RenderTarget(Enum):
    """What can be printed."""

    CRDS = "crds"
    WEBHOOKS = "webhooks"
    RBAC = "rbac"
    POLICY = "policy"
    SCHEDULER_CONFIG = "scheduler-config"
    OPERANDS = "operands"
    ALERTS = "alerts"
    DASHBOARDS = "dashboards"
    FEATURES = "features"
    EXAMPLES = "examples"
    NODEPOOL = "nodepool"
    CLUSTERPOLICY = "clusterpolicy"
    ALL = "all"


DESCRIPTIONS: Final = {
    RenderTarget.CRDS: "the kinds of pools, devices, nodes and kernel caches, and the CSIDriver of the latter",
    RenderTarget.RBAC: "namespace, service accounts and roles of server and agents",
    RenderTarget.POLICY: "ValidatingAdmissionPolicies: what users, server and agents may write",
    RenderTarget.WEBHOOKS: "webhook configurations; the server injects caBundle",
    RenderTarget.SCHEDULER_CONFIG: "configuration of a stock kube-scheduler with the extender",
    RenderTarget.OPERANDS: "operands of nodes that the server applies by its settings, for a look",
    RenderTarget.ALERTS: "PrometheusRule with the alerts",
    RenderTarget.DASHBOARDS: "ConfigMaps with the dashboards for Grafana",
    RenderTarget.FEATURES: "NodeFeatureRule by which Node Feature Discovery labels nodes with a device",
    RenderTarget.EXAMPLES: "pools, kernel caches and pods to start from",
    RenderTarget.NODEPOOL: "what a pool with spec.autoscaling needs of Karpenter or cluster-autoscaler",
    RenderTarget.CLUSTERPOLICY: "ClusterPolicy with the images of NVIDIA's GPU Operator v26.7",
    RenderTarget.ALL: "an installation as the chart makes it, for kubectl apply --server-side",
}


def run_render(arguments: "Sequence[str]") -> int:
    """Print one target; return the process's exit status.

    Raises:
        CommandLineError: target, flags, settings or a file that was named cannot be used.
    """
    words = [target.value for target in RenderTarget]
    word = arguments[0] if arguments else ""
    parser = CommandParser(
        "render TARGET", "Print manifests as YAML.", epilog=f"targets:\n{_targets()}"
    )
    add_render_flags(parser)
    if not word or word in {"-h", "--help"}:
        sys.stdout.write(parser.format_help())
        return OK if word else MISUSED
    if word not in words:
        raise no_such("target", word, words, listed_by=f"{PROGRAM} render")
    options = parser.parse_flags(arguments[1:])
    check_render_options(word, options)
    sys.stdout.write(render_target(RenderTarget(word), options))
    return OK


def _targets() -> str:
    return "".join(f"  {target.value:<18}{text}\n" for target, text in DESCRIPTIONS.items())


def render_target(target: RenderTarget, options: "argparse.Namespace") -> str:
    """Return the YAML stream of one target.

    Raises:
        CommandLineError: the settings, or a file that was named, cannot be used.
    """
    match target:
        case RenderTarget.CRDS:
            return render(_definitions(options))
        case RenderTarget.FEATURES:
            return render([build_node_feature_rule()])
        case RenderTarget.EXAMPLES:
            return all_examples()
        case RenderTarget.NODEPOOL:
            from cli.render_node_pool import node_pool_objects

            return render(node_pool_objects(options))
        case RenderTarget.CLUSTERPOLICY:
            from manifests.nvidia.cluster_policy import build_cluster_policy

            policy = build_cluster_policy(
                name=options.name,
                registry=options.registry,
                driver_version=options.driver_version,
                has_driver=bool(options.no_driver),
                has_toolkit=bool(options.no_toolkit),
            )
            return render([policy])
        case RenderTarget.ALL:
            return render(_all_objects(options))
        case _:
            return _of_one_installation(target, options)


def _of_one_installation(target: RenderTarget, options: "argparse.Namespace") -> str:
    own = _own_objects(options)
    namespace = own.namespace
    match target:
        case RenderTarget.RBAC:
            from server.rbac import build_roles

            settings = _load_settings(options)
            roles = build_roles(own, settings.autoscaling.backends)
            return render([*roles, *_cache_rights(settings, namespace)])
        case RenderTarget.WEBHOOKS:
            webhooks = _webhook_settings(options, namespace)
            return render(
                [build_mutating_configuration(webhooks), build_validating_configuration(webhooks)]
            )
        case RenderTarget.POLICY:
            excluded = excluded_namespaces(namespace)
            return render(
                [
                    *build_annotation_policy(
                        options.user or [own.username],
                        server=own.username,
                        excluded_namespaces=excluded,
                    ),
                    *build_managed_policy(options.user or [own.username], namespace=namespace),
                    *build_fencing_policies(),
                    *build_agent_policy(namespace),
                    *build_server_policies(own, excluded_namespaces=excluded),
                ]
            )
        case RenderTarget.SCHEDULER_CONFIG:
            return render([_scheduler_configuration(options, namespace)])
        case RenderTarget.OPERANDS:
            return render(_operands(options, namespace))
        case RenderTarget.ALERTS:
            return render([build_alert_rules(namespace)])
        case RenderTarget.DASHBOARDS:
            return _dashboards(options.board, namespace)
        case _:
            raise ValueError(f"{target.value} needs no names")


def _definitions(options: "argparse.Namespace") -> list[dict[str, Any]]:
    # Modules of settings take a second, which other targets do not need.
    from server.configuration.config_definition import build_config_crd

    definitions = [*build_crds(), build_config_crd(), *build_cache_crds(), build_csi_driver()]
    if options.settings and _load_settings(options).node_software.enabled:
        definitions += build_operator_crds()
    return definitions


def _cache_rights(settings: "Settings", namespace: str) -> list[dict[str, Any]]:
    caches = settings.kernel_caches
    if not caches.enabled:
        return []
    return [*build_cache_roles(), *build_pull_secret_rights(caches.pull_secrets, namespace)]


def _all_objects(options: "argparse.Namespace") -> list[dict[str, Any]]:
    from cli.installed_objects import build_installed_objects
    from server.settings import BadSettingsError
    from server.values_file import KUBERNETES_VERSION, build_installation, load_values

    try:
        installation = build_installation(
            load_values(options.values),
            namespace=options.namespace or constants.DEFAULT_NAMESPACE,
            kubernetes_version=options.kube_version or KUBERNETES_VERSION,
        )
    except BadSettingsError as error:
        raise CommandLineError(str(error)) from error
    return build_installed_objects(installation)


def _dashboards(board: str | None, namespace: str) -> str:
    if board is None:
        return render(config_maps.build_dashboards(namespace))
    names = config_maps.dashboard_names()
    if board not in names:
        raise no_such("dashboard", board, names, listed_by=f"{PROGRAM} render dashboards")
    return config_maps.dashboard_text(board)


def _operands(options: "argparse.Namespace", namespace: str) -> list[dict[str, Any]]:
    from operands.nvidia.policy_states import build_operands
    from operands.operand_state import ALL_KINDS_SERVED
    from server.controllers.built_in_policy import built_in_policy
    from server.controllers.settings import check_images, workload_settings
    from server.settings import BadSettingsError

    settings = _load_settings(options)
    try:
        check_images(settings)
    except BadSettingsError as error:
        raise CommandLineError(str(error)) from error
    settings = settings.model_copy(update={"namespace": namespace})
    return build_operands(built_in_policy(settings, workload_settings(settings)), ALL_KINDS_SERVED)


def _load_settings(options: "argparse.Namespace") -> "Settings":
    from server.settings import BadSettingsError, load_settings

    try:
        return load_settings([], options.settings)
    except BadSettingsError as error:
        raise CommandLineError(str(error)) from error


def _own_objects(options: "argparse.Namespace") -> OwnObjects:
    """Return what the server has, by its settings where they are given; without them, any image."""
    from server.controllers.settings import operand_images

    settings = _load_settings(options)
    return OwnObjects(
        namespace=options.namespace or settings.namespace,
        images=operand_images(settings) if options.settings else None,
        issues_certificates=settings.tls.source == "SelfSigned",
        runs_node_software=settings.node_software.enabled,
    )


def _webhook_settings(options: "argparse.Namespace", namespace: str) -> WebhookSettings:
    given = _load_settings(options)
    return WebhookSettings(
        client=UrlClient(base_url=options.url)
        if options.url
        else ServiceClient(namespace=namespace),
        ca_bundle=_read(options.ca_file) if options.ca_file else b"",
        excluded_namespaces=excluded_namespaces(namespace),
        server=constants.service_account_username(namespace),
        serves_caches=given.kernel_caches.enabled,
        workloads=given.workloads.further_kinds,
    )


def _scheduler_configuration(options: "argparse.Namespace", namespace: str) -> dict[str, Any]:
    url = options.url or f"https://{constants.SERVICE_NAME}.{namespace}.svc"
    tls = ExtenderTls(
        ca_file=str(options.ca_file or f"{SCHEDULER_FILES}/ca.crt"),
        cert_file=str(options.client_cert or f"{SCHEDULER_FILES}/scheduler.crt"),
        key_file=str(options.client_key or f"{SCHEDULER_FILES}/scheduler.key"),
    )
    extender = ExtenderEndpoint(base_url=url, tls=tls)
    if options.resource:
        return build_extender_snippet(extender, options.resource)
    in_cluster = options.kubeconfig is None
    return build_scheduler_configuration(
        extender,
        leader_election=SchedulerLeaderElection(namespace=namespace) if in_cluster else None,
        connection=ApiConnection(kubeconfig="" if in_cluster else str(options.kubeconfig)),
    )


def _read(path: "Path") -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CommandLineError(f"{path} cannot be read: {error.strerror}") from error
