"""kubeconfig files, written and read; and what a test needs of any cluster."""

from typing import TYPE_CHECKING, Protocol, final

import yaml
from kubernetes_asyncio import client as kubernetes_client
from kubernetes_asyncio import config as kubernetes_config

from tests.cluster.environment import credentials

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class Cluster(Protocol):
    """An API server and a way in; all that tests may ask of a cluster that is not theirs."""

    def kubeconfig(self, user: str = credentials.ADMIN) -> "Path":
        """Return a kubeconfig file of that user; `admin` may do everything."""


@final
class GivenCluster:
    """The cluster of GPU_CLUSTER_KUBECONFIG. It has one user, the file's own, called admin here."""

    def __init__(self, path: "Path") -> None:
        if not path.is_file():
            raise AssertionError(f"GPU_CLUSTER_KUBECONFIG={path} is not a file")
        self._path = path

    def kubeconfig(self, user: str = credentials.ADMIN) -> "Path":
        if user != credentials.ADMIN:
            raise AssertionError(
                f"the cluster of {self._path} has no user {user}: a test that needs one asks for "
                "the fixture control_plane"
            )
        return self._path


def write_kubeconfig(
    path: "Path", *, url: str, ca_file: "Path", user: str, login: "Mapping[str, str]"
) -> "Path":
    """Write a kubeconfig of one context; `login` is its `user` section (token, client-certificate)."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "tests", "cluster": {"server": url, "certificate-authority": str(ca_file)}}
        ],
        "users": [{"name": user, "user": dict(login)}],
        "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": user}}],
        "current-context": "tests",
    }
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    return path


async def read_kubeconfig(path: "Path") -> kubernetes_client.Configuration:
    """Resolve a kubeconfig file, exec plugins included."""
    configuration = kubernetes_client.Configuration()
    await kubernetes_config.load_kube_config(
        config_file=str(path), client_configuration=configuration
    )
    return configuration
