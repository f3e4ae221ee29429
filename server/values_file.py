"""Values of an installation: read from a file in the chart's format, checked, and resolved."""

import json
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError
from pydantic.alias_generators import to_camel

from api.version import VERSION
from manifests import constants
from manifests.install import installation
from manifests.install.cert_manager import OWN_ISSUER
from manifests.install.deployments.server import cache_files
from manifests.install.rbac import group_subjects
from manifests.install.values import ChartValues
from server.controllers.settings import named_operand_images
from server.retired_settings import RETIRED
from server.setting_fields import setting_fields
from server.setting_sources import GivenSettings
from server.settings import BadSettingsError, Settings, settings_fields

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from manifests.install.values import KernelCacheValues, NodeSoftwareValues
    from server.kernel_cache_settings import KernelCacheSettings
    from server.node_software_settings import NodeSoftwareSettings

KUBERNETES_VERSION: Final = "v1.36.3"
"""Version of kube-scheduler where the cluster is not known."""

_ESCAPED: Final = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}
"""Characters as Go's encoder writes them, so that `helm` writes the same text."""


def load_values(file: "Path | None") -> ChartValues:
    """Return the values of the file over the defaults, as Helm merges them.

    Raises:
        BadSettingsError: names every invalid value.
    """
    given = GivenSettings(setting_fields(ChartValues.model_json_schema()))
    if file is not None:
        given.read_file(file)
    if given.faults:
        raise BadSettingsError("; ".join(given.faults))
    defaults = ChartValues().model_dump(mode="json", by_alias=True)
    try:
        return ChartValues.model_validate(installation.overlaid(defaults, given.values))
    except ValidationError as error:
        raise BadSettingsError("; ".join(given.explain(error.errors()))) from error


def build_installation(
    values: ChartValues, *, namespace: str, kubernetes_version: str = KUBERNETES_VERSION
) -> installation.Installation:
    """Return what follows from the values.

    Raises:
        BadSettingsError: names every invalid setting.
    """
    image, scheduler = values.image, values.scheduler.image
    reference = installation.image_reference(
        image.registry, image.repository, tag=image.tag or VERSION, digest=image.digest
    )
    content = installation.overlaid(
        installation.base_settings(values, namespace=namespace, image=reference), values.settings
    )
    settings = _checked(content)
    _check_caches(settings.kernel_caches, values.kernel_caches)
    _check_node_software(settings.node_software, values.node_software)
    _check_console(values)
    if settings.namespace != namespace:
        raise BadSettingsError(
            f"settings.namespace is {settings.namespace}, and the installation's is {namespace}:"
            " leave it out"
        )
    images = {settings.device_plugin.image, settings.node_agent.image}
    images |= set(named_operand_images(settings))
    for item in sorted(images):
        _check_pinned(item)
    volumes, mounts = cache_files(values.kernel_caches)
    return installation.Installation(
        values=values,
        namespace=namespace,
        image=reference,
        scheduler_image=installation.image_reference(
            scheduler.registry,
            scheduler.repository,
            tag=scheduler.tag or installation.release_of(kubernetes_version),
            digest=scheduler.digest,
        ),
        settings=_argument(content),
        port=settings.listen.port,
        operand_images=tuple(sorted(images)),
        pull_secrets=[{"name": name} for name in image.pull_secrets],
        node_writers=values.managed_fields.node_writers,
        viewer_subjects=group_subjects(values.pool_viewers),
        serving_issuer=values.tls.cert_manager.issuer_ref or OWN_ISSUER,
        cache_volumes=volumes,
        cache_mounts=mounts,
        console_secret=values.console.tls.secret_name or constants.CONSOLE_SECRET,
        console_arguments=installation.console_arguments(values.console),
        workload_kinds=settings.workloads.further_kinds,
    )


def _checked(content: "Mapping[str, Any]") -> Settings:
    """Return the settings of the content alone: what this process is told otherwise does not count."""
    given = GivenSettings(settings_fields(), RETIRED)
    given.take(content, origin="settings.")
    try:
        return Settings.model_validate(given.values)
    except ValidationError as error:
        raise BadSettingsError("; ".join(given.explain(error.errors()))) from error


def _check_caches(settings: "KernelCacheSettings", values: "KernelCacheValues") -> None:
    """Check that the settings do not contradict the values, by which roles and mounts are made."""
    meant = (
        ("enabled", settings.enabled, values.enabled),
        ("pull_secrets", settings.pull_secrets, values.pull_secrets),
        (
            "registries.ca_config_map",
            settings.registries.ca_config_map,
            values.registries.ca_config_map,
        ),
        (
            "verification.trust_root_config_map",
            settings.verification.trust_root_config_map,
            values.verification.trust_root_config_map,
        ),
    )
    for path, given, value in meant:
        if given != value:
            name = ".".join(to_camel(part) for part in path.split("."))
            raise BadSettingsError(
                f"settings.kernel_caches.{path} is not what kernelCaches.{name} is: set it there"
            )


def _check_node_software(settings: "NodeSoftwareSettings", values: "NodeSoftwareValues") -> None:
    """Check that the setting does not contradict the value, by which roles, kinds and policies are made."""
    if settings.enabled != values.enabled:
        raise BadSettingsError(
            "settings.node_software.enabled is not what nodeSoftware.enabled is: set it there"
        )


def _check_console(values: ChartValues) -> None:
    """Check that the console can serve: tokens of users do not go over a network in plain text by mistake."""
    console = values.console
    if not console.enabled:
        return
    if console.plain_http and console.tls.secret_name:
        raise BadSettingsError(
            "console.plainHttp and console.tls.secretName exclude each other: leave out one of both"
        )
    if console.needs_issued_certificate and not values.tls.uses_cert_manager:
        raise BadSettingsError(
            "console.enabled needs a certificate: set console.tls.secretName to a Secret of the type"
            " kubernetes.io/tls, or console.plainHttp where an ingress ends TLS"
        )


def _check_pinned(image: str) -> None:
    """Check that an image has a tag or a digest: without, nodes take any version."""
    if ":" not in image.rpartition("/")[2]:
        raise BadSettingsError(f"image {image} has neither tag nor digest")


def _argument(content: "Mapping[str, Any]") -> str:
    """Return the settings as `helm` writes them into an argument."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    for character, escaped in _ESCAPED.items():
        text = text.replace(character, escaped)
    return text.replace("$", "$$")
