"""kubectl, run as a user would."""

import asyncio
import os
import subprocess
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, final

import yaml

from tests.cluster.environment import credentials

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.cluster.environment import kubeconfigs

Completed = subprocess.CompletedProcess[str]


class KubectlError(AssertionError):
    """kubectl ended with another status than 0; the message carries the command and its output."""


@final
class Kubectl:
    def __init__(self, program: "Path", cluster: "kubeconfigs.Cluster", cache: "Path") -> None:
        self._program = program
        self._cluster = cluster
        self._cache = cache

    async def __call__(
        self,
        *args: str,
        user: str = credentials.ADMIN,
        stdin: str | None = None,
        check: bool = True,
        timeout_s: float = 120,
    ) -> Completed:
        """Run `kubectl ARGS` as `user`; `check=False` returns a failure instead of raising."""
        argv = [str(self._program), "--kubeconfig", str(self._cluster.kubeconfig(user)), *args]
        done = await asyncio.to_thread(
            subprocess.run,
            argv,
            input=stdin or "",
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            env={**os.environ, "KUBECACHEDIR": str(self._cache)},
        )
        if check and done.returncode != 0:
            raise KubectlError(
                f"kubectl {' '.join(args)} as {user} ended with {done.returncode}\n"
                f"{done.stdout}{done.stderr}"
            )
        return done

    async def apply_yaml(
        self,
        manifest: "str | Mapping[str, Any] | Iterable[Mapping[str, Any]]",
        *,
        user: str = credentials.ADMIN,
        check: bool = True,
    ) -> Completed:
        """`kubectl apply -f -` of YAML text, of one object, or of several."""
        return await self("apply", "-f", "-", user=user, check=check, stdin=_as_yaml(manifest))


def _as_yaml(manifest: "str | Mapping[str, Any] | Iterable[Mapping[str, Any]]") -> str:
    if isinstance(manifest, str):
        return manifest
    objects = [manifest] if isinstance(manifest, Mapping) else list(manifest)
    return yaml.safe_dump_all([dict(entry) for entry in objects], sort_keys=False)
