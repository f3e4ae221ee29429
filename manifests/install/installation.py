"""What differs between installations, for the builders of this package.

The values as they are given, and what follows from them. The chart's generator builds the same
objects with Helm's expressions in place of the text.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from manifests import constants
from manifests.install.server_policy import OwnObjects

if TYPE_CHECKING:
    from collections.abc import Sequence

    from api.workload_kinds import WorkloadKind
    from manifests.install.values import ChartValues, ConsoleValues, KernelCacheValues

Json = dict[str, Any]

SERVING_DIRECTORY: Final = "/etc/gpu-control-plane/tls"
CLIENT_CA_DIRECTORY: Final = "/etc/gpu-control-plane/client-ca"
"""Where the server has cert-manager's certificates."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """One installation of the control plane."""

    values: "ChartValues"
    namespace: str
    image: str
    """Reference of the server's image."""
    scheduler_image: str
    settings: str
    """Settings of the server as JSON, with `$` written twice: the kubelet expands variables in arguments."""
    port: int
    operand_images: tuple[str, ...]
    """Images of the DaemonSets that the server makes."""
    pull_secrets: "Sequence[Json]"
    """References of `values.image.pull_secrets`."""
    node_writers: "Sequence[str]"
    """Users of `values.managed_fields.node_writers`."""
    viewer_subjects: "Sequence[Json]"
    """Subjects of `values.pool_viewers`."""
    serving_issuer: "Mapping[str, str]"
    """cert-manager's issuer of the serving certificate."""
    cache_volumes: "Sequence[Json]"
    """Volumes of the server with the ConfigMaps of `values.kernel_caches`."""
    cache_mounts: "Sequence[Json]"
    console_secret: str
    """Secret with the console's certificate."""
    console_arguments: "Sequence[str]"
    """Flags of the console for `values.console.hosts` and `values.console.decisions`."""
    workload_kinds: "Sequence[WorkloadKind]" = ()
    """Kinds of the setting workloads.kinds."""
    workload_webhooks: "Sequence[Json]" = ()
    """Webhooks of such kinds, where Helm makes them."""

    @property
    def own_objects(self) -> OwnObjects:
        return OwnObjects(
            namespace=self.namespace,
            images=self.operand_images,
            issues_certificates=not self.uses_cert_manager,
            runs_node_software=self.values.node_software.enabled,
        )

    @property
    def excluded_namespaces(self) -> tuple[str, ...]:
        """Return the namespaces whose pods do not depend on the webhooks."""
        return excluded_namespaces(self.namespace)

    @property
    def uses_cert_manager(self) -> bool:
        return self.values.tls.uses_cert_manager

    def metadata(self, name: str, labels: "Mapping[str, str] | None" = None) -> Json:
        """Return the metadata of an object in the namespace."""
        return {
            "name": name,
            "namespace": self.namespace,
            "labels": dict(constants.LABELS) | dict(labels or {}),
        }


def excluded_namespaces(namespace: str) -> tuple[str, ...]:
    """Return the namespaces in which no pod can request a pool: ours, and that of the system."""
    others = set(constants.DEFAULT_EXCLUDED_NAMESPACES) - {constants.DEFAULT_NAMESPACE}
    return (namespace, *sorted(others))


def base_settings(values: "ChartValues", *, namespace: str, image: str) -> Json:
    """Return the settings that follow from other values; those of `values.settings` override them."""
    agent: Json = {"image": image, "image_pull_policy": values.image.pull_policy}
    if values.image.pull_secrets:
        agent["image_pull_secrets"] = list(values.image.pull_secrets)
    settings: Json = {
        "namespace": namespace,
        "device_plugin": {"image": image},
        "node_agent": agent,
        "kernel_caches": cache_settings(values.kernel_caches),
    }
    if values.node_software.enabled:
        software: Json = {"enabled": True}
        if values.node_software.images:
            software["images"] = values.node_software.images
        settings["node_software"] = software
    if values.tls.uses_cert_manager:
        settings["tls"] = {"source": "Files", "directory": SERVING_DIRECTORY}
        settings["extender"] = {"client_ca_file": f"{CLIENT_CA_DIRECTORY}/ca.crt"}
    return settings


def cache_settings(values: "KernelCacheValues") -> Json:
    """Return the settings that only `values.kernel_caches` may set, because objects depend on them."""
    settings: Json = {
        "enabled": values.enabled,
        "registries": {"ca_config_map": values.registries.ca_config_map},
        "verification": {"trust_root_config_map": values.verification.trust_root_config_map},
    }
    if values.pull_secrets:
        settings["pull_secrets"] = list(values.pull_secrets)
    return settings


def console_arguments(values: "ConsoleValues") -> list[str]:
    decisions = ["--decisions"] if values.decisions else []
    return [*(f"--host={name}" for name in values.hosts), *decisions]


def image_reference(registry: str, repository: str, *, tag: str, digest: str) -> str:
    """Return the name of an image; with a digest, the tag is for people."""
    pinned = f"@{digest}" if digest else ""
    return f"{registry}/{repository}{f':{tag}' if tag else ''}{pinned}"


def release_of(kubernetes_version: str) -> str:
    """Return the version of the release that a vendor's version is made of: `v1.34.2-eks-1`."""
    return re.split(r"[-+]", kubernetes_version, maxsplit=1)[0]


def overlaid(base: "Mapping[str, Any]", over: "Mapping[str, Any]") -> Json:
    """Return both, merged as Helm merges values: maps by key, all else replaced, null removes a key."""
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(old, Mapping):
            merged[key] = overlaid(old, value)
        else:
            merged[key] = value
    return merged
