"""helm, run as a user would."""

import asyncio
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import yaml

from tests.cluster.environment import binaries

if TYPE_CHECKING:
    from collections.abc import Mapping

Completed = subprocess.CompletedProcess[str]

CHART = binaries.ROOT / "charts" / "gpu-control-plane"


class HelmError(AssertionError):
    """helm ended with another status than 0; the message carries the command and its output."""


@final
class Helm:
    """`directory` keeps its caches and values files; with no `kubeconfig` it reaches no cluster."""

    def __init__(self, program: Path, directory: Path, kubeconfig: Path | None = None) -> None:
        self._program = program
        self._directory = directory
        self._kubeconfig = kubeconfig

    def run(
        self,
        *args: str,
        values: "Mapping[str, Any] | None" = None,
        check: bool = True,
        timeout_s: float = 120,
    ) -> Completed:
        """Run `helm ARGS`; `check=False` returns a failure instead of raising."""
        argv = [str(self._program), *args]
        if values is not None:
            argv += ["--values", "-"]
        done = subprocess.run(
            argv,
            input=yaml.safe_dump(dict(values or {})),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            env={
                **os.environ,
                "KUBECONFIG": str(self._kubeconfig or os.devnull),
                "HELM_CACHE_HOME": str(self._directory / "helm-cache"),
                "HELM_CONFIG_HOME": str(self._directory / "helm-config"),
                "HELM_DATA_HOME": str(self._directory / "helm-data"),
            },
        )
        if check and done.returncode != 0:
            raise HelmError(
                f"helm {' '.join(args)} ended with {done.returncode}\n{done.stdout}{done.stderr}"
            )
        return done

    async def __call__(
        self, *args: str, values: "Mapping[str, Any] | None" = None, check: bool = True
    ) -> Completed:
        """Run it without blocking the loop."""
        return await asyncio.to_thread(self.run, *args, values=values, check=check)

    def template(
        self,
        values: "Mapping[str, Any]",
        *,
        namespace: str,
        kube_version: str = binaries.kubernetes_version(),
    ) -> list[dict[str, Any]]:
        """Return the objects that an installation would have, hooks included."""
        done = self.run(
            *("template", "gpu", str(CHART), "--namespace", namespace),
            *("--kube-version", kube_version),
            values=values,
        )
        return [item for item in yaml.safe_load_all(done.stdout) if item]
