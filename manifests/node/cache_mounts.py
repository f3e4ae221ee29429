"""What the node agent needs to serve kernel caches: its roles, its arguments, and directories of the node.

The store is at the agent's default path in the container. Directories of kubelet are at the paths that they have on
the node: kubelet names the targets of volumes, and learns at registration where the driver's socket is. Mounts that the agent makes
below kubelet's pods must reach the node and the containers there, so that this directory is mounted with
`Bidirectional` propagation; it must be on a shared mount of the node, as it is under systemd.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from api.csi.names import DRIVER_NAME
from manifests import constants
from manifests.node.daemonset import KUBELET_DIRECTORY, host_directory

if TYPE_CHECKING:
    from manifests.node.daemonset import KubeletDirectories

Json = dict[str, Any]

CACHE_ROLES: Final = ("caches", "csi")
STORE_DIRECTORY: Final = "/var/lib/gkm"
"""The agent's default of `--caches-directory`."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCacheSettings:
    """Settings of kernel caches on the nodes (docs/kernel-caches.md)."""

    directory: str = STORE_DIRECTORY
    """Directory of the store on the nodes."""
    quota: str = ""
    """Quantity of bytes that extracted caches may take; empty: no limit."""
    grace_s: float = 300.0
    plain_http: tuple[str, ...] = ()
    """Registries that are asked without TLS."""
    private: tuple[str, ...] = ()
    """Hosts whose addresses need not be public."""
    ca_config_map: str = ""
    """ConfigMap with the authorities of registries; empty: those of the image's system."""
    pull_secrets: tuple[str, ...] = ()
    """Secrets of our namespace that ClusterGKMCaches may name."""

    def arguments(self, kubelet: "KubeletDirectories") -> list[str]:
        """Return the agent's arguments; those with the agent's own default are left out."""
        given = {
            "--caches-quota": self.quota,
            "--caches-grace": f"{self.grace_s:g}",
            "--kubelet-directory": kubelet.root if kubelet.root != KUBELET_DIRECTORY else "",
            "--registries-plain-http": ",".join(self.plain_http),
            "--registries-private": ",".join(self.private),
            "--registries-ca-file": constants.REGISTRIES_CA_FILE if self.ca_config_map else "",
            "--cache-pull-secrets": ",".join(self.pull_secrets),
        }
        return [word for flag, value in given.items() if value for word in (flag, value)]

    def mounts(self, kubelet: "KubeletDirectories") -> list[Json]:
        pods, plugin, registry = _kubelet_paths(kubelet)
        mounts: list[Json] = [
            {"name": "caches", "mountPath": STORE_DIRECTORY},
            {"name": "pods", "mountPath": pods, "mountPropagation": "Bidirectional"},
            {"name": "csi-plugin", "mountPath": plugin},
            {"name": "plugins-registry", "mountPath": registry},
        ]
        if self.ca_config_map:
            path = constants.REGISTRIES_CA_DIRECTORY
            mounts.append({"name": "registries-ca", "mountPath": path, "readOnly": True})
        return mounts

    def volumes(self, kubelet: "KubeletDirectories") -> list[Json]:
        pods, plugin, registry = _kubelet_paths(kubelet)
        # Where kubelet's directory is elsewhere, the agent starts all the same, and reports that no cache is served.
        volumes = [
            host_directory(name, path, "DirectoryOrCreate")
            for name, path in (
                ("caches", self.directory),
                ("pods", pods),
                ("csi-plugin", plugin),
                ("plugins-registry", registry),
            )
        ]
        if self.ca_config_map:
            # kubelet renews the file when the ConfigMap changes.
            volumes.append({"name": "registries-ca", "configMap": {"name": self.ca_config_map}})
        return volumes


def _kubelet_paths(kubelet: "KubeletDirectories") -> tuple[str, str, str]:
    """Return the directories of pods, of the driver's socket, and of the sockets that kubelet watches."""
    return (
        f"{kubelet.root}/pods",
        f"{kubelet.root}/plugins/{DRIVER_NAME}",
        f"{kubelet.root}/plugins_registry",
    )
