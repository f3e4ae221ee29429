"""Our own server, started the way a user starts it: the installed command and a settings file."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import yaml

from tests.cluster.environment import polling

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.cluster.environment import processes

IMAGE = "registry.test/gpu-control-plane:test"
"""Of DaemonSets, where a test names none; no node of these tests pulls it."""

_READY_S = polling.PATIENCE_S


@final
class ServerProcess:
    """`gpu-control-plane serve --settings FILE` with KUBECONFIG set."""

    def __init__(
        self,
        run: "processes.Run",
        *,
        settings: "Mapping[str, Any]",
        kubeconfig: Path,
        port: int,
        name: str = "gpu-control-plane",
        command: "Sequence[str]" = (),
        has_object: bool = False,
    ) -> None:
        """`settings` get an image, without which it does not start; `port` is the one that they make the server listen on.

        `name` names the log and the settings file; a second server of the same run needs another.
        `command` is what to run instead of the installed command. With `has_object` the settings are those of
        the installation, which the server writes into its GPUControlPlaneConfig.
        """
        self.url = f"https://127.0.0.1:{port}"
        self._settings_path = run.directory / f"{name}.settings.yaml"
        self.configure(settings)
        given = ["--settings", str(self._settings_path)]
        if has_object:
            given = ["--installation", json.dumps(with_image(settings))]
        self.process: processes.ChildProcess = run.child(
            name,
            [*(command or installed_command()), "serve", *given],
            env={"KUBECONFIG": str(kubeconfig), "PYTHONUNBUFFERED": "1"},
        )

    def configure(self, settings: "Mapping[str, Any]") -> None:
        """Replace the settings; a running server takes them up at its next start."""
        text = yaml.safe_dump(with_image(settings), sort_keys=False)
        self._settings_path.write_text(text, encoding="utf-8")

    async def start(self, *, until: str = "/readyz", within: float = _READY_S) -> None:
        """Start it; returns when `until` answers 200.

        A standby is alive and not ready: wait for its liveness path instead.
        """
        self.process.start()
        await self.wait_for(until, within=within)

    async def wait_for(self, path: str, *, within: float = _READY_S) -> None:
        """Return when `path` answers 200; fails when the process ends or the time is up."""
        # The server may make its own CA, which is what other tests look at: any certificate will do.
        probe = polling.https_probe(self.url + path, ca_file=None)
        await self.process.wait_ready(probe, within=within)

    async def until_standing_by(self) -> None:
        """Return when it answers, and says that it does not lead."""
        probe = polling.https_probe(self.url + "/readyz", ca_file=None)

        async def says_so() -> bool:
            why = await probe()
            assert "[-] leading" in (why or "it is ready"), why
            return True

        await polling.eventually(says_so, what=f"{self.process.name} stands by")

    async def terminate(self, *, within: float = 30) -> int:
        """Ask it to end (SIGTERM) and return its exit status; past `within` that is a failure.

        Kubelet kills it after the grace period of its Deployment, which is as long.
        """
        return await self.process.terminate(within=within)

    def kill9(self) -> None:
        self.process.kill9()

    async def restart(self, *, until: str = "/readyz", within: float = _READY_S) -> None:
        """Terminate it where it runs, and start it again."""
        if self.process.running:
            await self.terminate()
        await self.start(until=until, within=within)

    def logs(self) -> list[dict[str, Any]]:
        """Return the log lines of all its lives; what is not a JSON object comes as `unparsed`."""
        return [_parse(line) for line in self.process.logs().splitlines() if line.strip()]


def with_image(settings: "Mapping[str, Any]") -> dict[str, Any]:
    """Return the settings with an image for DaemonSets, if they name none."""
    return {**settings, "device_plugin": {"image": IMAGE, **settings.get("device_plugin", {})}}


def installed_command() -> list[str]:
    command = Path(sys.executable).with_name("gpu-control-plane")
    if not command.exists():
        raise AssertionError(f"{command} is missing: the project is not installed (make install)")
    return [str(command)]


def _parse(line: str) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except ValueError:
        entry = None
    return entry if isinstance(entry, dict) else {"unparsed": line}
