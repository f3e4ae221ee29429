"""The manifest of the plugin; github.com/kubernetes-sigs/krew: docs/PLUGIN_LIFECYCLE.md."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from manifests.yaml import render

if TYPE_CHECKING:
    from collections.abc import Sequence

PLUGIN: Final = "gpu"
PROGRAM: Final = "kubectl-gpu"
_DESCRIPTION: Final = """\
Pools of GPUs (gpu.deckhouse.io): why a pod waits and what would help, what each device
does, who has what, whether a pod would fit, and what is wrong with the installation.
It reads with the credentials of kubectl, and writes nothing.
"""
_CAVEATS: Final = """\
Completion needs kubectl 1.26 or newer, and kubectl_complete-gpu on PATH:
  ln -s "${KREW_ROOT:-$HOME/.krew}"/store/gpu/*/kubectl_complete-gpu ~/.local/bin/
"""


@final
@dataclass(frozen=True, slots=True)
class PluginArchive:
    """An archive for one platform."""

    architecture: str
    name: str
    sha256: str


def plugin_manifest(version: str, archives: "Sequence[PluginArchive]", *, url: str) -> str:
    """Return the manifest as YAML.

    Args:
        version: of the plugin.
        archives: one for each platform.
        url: directory of the archives, without a slash at its end.
    """
    manifest: dict[str, Any] = {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": PLUGIN},
        "spec": {
            "version": f"v{version}",
            "shortDescription": "Why pods wait for GPUs, what is free, who has the rest",
            "description": _DESCRIPTION,
            "caveats": _CAVEATS,
            "platforms": [
                {
                    "selector": {"matchLabels": {"os": "linux", "arch": archive.architecture}},
                    "uri": f"{url}/{archive.name}",
                    "sha256": archive.sha256,
                    "bin": PROGRAM,
                }
                for archive in archives
            ],
        },
    }
    return render([manifest])
