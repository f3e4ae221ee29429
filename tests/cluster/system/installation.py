"""Our system in the control plane of the session: rendered, applied, served and scheduled for real.

What a user does by hand is done here by the same commands: `gpu-control-plane render TARGET`, `kubectl
apply`, `gpu-control-plane serve` under the service account that was rendered, and the stock
kube-scheduler with the rendered configuration and the client certificate out of our Secret.
"""

import asyncio
import base64
import contextlib
import io
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import aiohttp
import yaml

from manifests.yaml import render
from simulator.node.nfd import node_feature_crd
from tests.cluster.environment import client, components, nodes, polling, server_process
from tests.cluster.system.objects import POOLS
from tests.support import ports

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.cluster.environment import control_plane as control_planes
    from tests.cluster.environment import kubectl as kubectls
    from tests.cluster.environment import processes

PAGE_S = 1.0
"""How long the server shows all who ask one page of metrics."""
NAMESPACE = "gpu-control-plane"
SERVER_USER = f"system:serviceaccount:{NAMESPACE}:gpu-control-plane"
SECRET = f"/api/v1/namespaces/{NAMESPACE}/secrets/gpu-control-plane-tls"
SCHEDULER_SECRET = f"/api/v1/namespaces/{NAMESPACE}/secrets/gpu-control-plane-scheduler"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/gpu-control-plane"
DEPLOYMENT = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/gpu-scheduler"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
TERM = "/apis/gpu.deckhouse.io/v1alpha1/gpucontrolplaneterms/gpu-control-plane"

NODE_GONE_S = 3
"""Ours in these tests: the devices of a node that is gone go after so long."""
SAMPLE_EVERY_S = 0.5
"""Likewise: a node is ready, and a device well again, after three samples."""

ADVERTISED = "192.0.2.1"
"""Of the servers, where a test installs their Service; nothing connects to it (RFC 5737)."""

GKM = "/apis/gkm.io/v1alpha1"
CLUSTER_POLICIES = "/apis/nvidia.com/v1/clusterpolicies"
NVIDIA_DRIVERS = "/apis/nvidia.com/v1alpha1/nvidiadrivers"
_FINALIZED = (
    *(f"{GKM}/{scope}gkmcache{part}" for scope in ("", "cluster") for part in ("s", "nodes")),
    CLUSTER_POLICIES,
    NVIDIA_DRIVERS,
)
_OPERAND_LABEL = "gpu.deckhouse.io/operand"
_MOUNTED = ("ca.crt", "scheduler.crt", "scheduler.key")
_SCHEDULER_ENVIRONMENT = {
    "HTTP2_READ_IDLE_TIMEOUT_SECONDS": "5",
    "HTTP2_PING_TIMEOUT_SECONDS": "5",
}
"""As docs/operations.md says."""

_SAMPLE = re.compile(r"^(?P<name>\w+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_REFUSED = re.compile(
    rf'(?: "([^"]*)")? is forbidden: User "{SERVER_USER}"'
    r' cannot (\w+) resource "([^"]*)" in API group "([^"]*)"'
)
_PATIENT_LEASE = {"duration_s": 60}
"""Nobody takes over: a busy machine must not cost a test its server."""


async def remove(
    control_plane: "control_planes.ControlPlane", kubectl: "kubectls.Kubectl", manifests: str
) -> None:
    """Delete what was installed and all objects of our kinds, once nobody serves any more.

    Definitions stay until the control plane goes: deleting one and making it again can hang for a minute.
    """
    documents = [item for item in yaml.safe_load_all(manifests) if item]
    others = [document for document in documents if document["kind"] != "CustomResourceDefinition"]
    # Without waiting: the webhooks that object to deletions are among what is deleted.
    options = ("--ignore-not-found", "--wait=false")
    await kubectl("delete", *options, "-f", "-", stdin=render(others))
    async with client.open_client(control_plane.kubeconfig()) as api:
        for pool in (await api.get(POOLS))["items"]:
            path = f"{POOLS}/{pool['metadata']['name']}"
            await api.patch(path, {"metadata": {"finalizers": None}})
        for collection in _FINALIZED:
            await _forget(api, collection)
    kinds = "gpupools,gpudevices,gpunodeinventories,gpucontrolplaneterms"
    await kubectl("delete", *options, "--all", kinds)
    # What the server made for operands and node software, beyond its namespace.
    kinds = "clusterroles,clusterrolebindings,runtimeclasses"
    await kubectl("delete", *options, "-l", _OPERAND_LABEL, kinds)
    async with client.open_client(control_plane.kubeconfig()) as api:
        # Nothing can be made in a namespace that is on its way out.
        await _end_namespace(api)


async def _end_namespace(api: client.ApiClient) -> None:
    """Do the work of the controller of namespaces.

    It begins five seconds after the deletion, and comes back to a namespace with pods after half of their grace. Of a node
    that is gone pods would stay for a minute more.
    """
    path = f"/api/v1/namespaces/{NAMESPACE}"
    if not await api.find(path):
        return
    await _delete(api, path)
    async for version, resource in api.kinds():
        if resource["namespaced"] and "deletecollection" in resource["verbs"]:
            await _delete(api, f"{version}/namespaces/{NAMESPACE}/{resource['name']}")

    async def has_no_pod() -> bool:
        not_real = f"spec.nodeName!={nodes.REAL_PREFIX}1"
        await api.delete(PODS, options={"gracePeriodSeconds": 0}, fieldSelector=not_real)
        left = [pod["metadata"]["name"] for pod in (await api.get(PODS))["items"]]
        assert not left, f"{left}"
        return True

    async def is_gone() -> bool:
        # Both write it, and either may be late.
        with contextlib.suppress(client.ApiRefusedError):
            namespace = await api.get(path)
            await api.replace(f"{path}/finalize", {**namespace, "spec": {"finalizers": []}})
        assert not await api.find(path)
        return True

    await polling.eventually(has_no_pod, what=f"no pod in {NAMESPACE}")
    await polling.eventually(is_gone, what=f"{path} is gone")


async def _delete(api: client.ApiClient, path: str) -> None:
    """Delete what may be gone already."""
    try:
        await api.delete(path)
    except client.ApiRefusedError as refused:
        if refused.status != 404:
            raise


async def _forget(api: client.ApiClient, collection: str) -> None:
    """Delete the objects of a kind, whose finalizers nobody removes any more."""
    group, _, plural = collection.rpartition("/")
    for item in (await api.find(collection)).get("items", ()):
        metadata = item["metadata"]
        place = f"namespaces/{metadata['namespace']}/" if "namespace" in metadata else ""
        path = f"{group}/{place}{plural}/{metadata['name']}"
        with contextlib.suppress(client.ApiRefusedError):
            await api.patch(path, {"metadata": {"finalizers": None}})
            await api.delete(path)


async def until_gone(
    api: client.ApiClient, path: str, *, within: float = polling.PATIENCE_S
) -> None:
    """Return when there is no such object any more."""

    async def is_gone() -> bool:
        assert not await api.find(path)
        return True

    await polling.eventually(is_gone, what=f"{path} is gone", within=within)


@final
class GpuSystem:
    """One server and one scheduler, which tests may kill and start again."""

    def __init__(
        self,
        control_plane: "control_planes.ControlPlane",
        kubectl: "kubectls.Kubectl",
        *,
        prefix: str = "",
        settings: "Mapping[str, Any] | None" = None,
    ) -> None:
        """`prefix` tells the processes of one installation of a run from another's; `settings` are
        the server's, over those that all tests have.
        """
        self._prefix = prefix
        self._settings = dict(settings or {})
        self._control_plane = control_plane
        self._kubectl = kubectl
        self._directory = control_plane.run.directory
        self._port = ports.free_port()
        self.url = f"https://127.0.0.1:{self._port}"
        self._manifests = ""
        self._processes: list[processes.ChildProcess] = []
        self._page_until = 0.0
        """Nobody but these tests reads pages of this server."""
        self.server: server_process.ServerProcess
        self.scheduler: components.KubeScheduler
        self.scheduler_configuration = ""

    async def install(self) -> None:
        """Apply everything and start both processes; returns when both are ready."""
        settings = self._directory / f"{self._prefix}render.settings.yaml"
        settings.write_text(yaml.safe_dump(server_process.with_image(self._settings)))
        targets = [
            ["crds", "--settings", str(settings)],
            ["rbac", "--settings", str(settings)],
            ["webhooks", "--url", self.url],
            ["policy", "--settings", str(settings)],
        ]
        rendered = await asyncio.gather(*(self.render(*target) for target in targets))
        self._manifests = render([node_feature_crd()]) + "".join(rendered)
        await self._kubectl(
            "apply", "--validate=strict", "-f", "-", stdin=self._manifests, timeout_s=120
        )
        self.server = await self.new_server(f"{self._prefix}gpu-control-plane", self._port)
        self._processes.append(self.server.process)
        await self.server.start()
        self.scheduler = await self._new_scheduler()
        self._processes.append(self.scheduler.process)
        await self.scheduler.start()

    async def uninstall(self) -> None:
        """Stop both, and delete what was applied; also after half an installation."""
        for process in reversed(self._processes):
            if process.running:
                await process.terminate()
        await remove(self._control_plane, self._kubectl, self._manifests)

    async def new_server(
        self,
        name: str,
        port: int,
        *,
        drain_s: float = 0.5,
        api_url: str = "",
        has_object: bool = False,
        **leadership: float,
    ) -> server_process.ServerProcess:
        """Return a server that is not started yet; `name` must be new to the run.

        `api_url` is where it finds the API server, if not where everybody does; `has_object` has it follow an object.
        """
        control_plane = self._control_plane
        kubeconfig = await control_plane.service_account_kubeconfig(NAMESPACE, "gpu-control-plane")
        if api_url:
            text = kubeconfig.read_text(encoding="utf-8").replace(control_plane.url, api_url)
            kubeconfig.write_text(text, encoding="utf-8")
        return server_process.ServerProcess(
            control_plane.run,
            settings=self._settings_of(port, drain_s=drain_s, leadership=leadership),
            kubeconfig=kubeconfig,
            port=port,
            name=name,
            has_object=has_object,
        )

    def _settings_of(
        self, port: int, *, drain_s: float = 0.5, leadership: "Mapping[str, float] | None" = None
    ) -> dict[str, Any]:
        return {
            "listen": {
                "host": "127.0.0.1",
                "port": port,
                # For the slice of a Service, which takes no address of the loopback interface.
                "advertised_address": ADVERTISED,
            },
            "tls": {"ip_addresses": ["127.0.0.1"], "check_every_s": 5},
            "drain_s": drain_s,
            "leadership": leadership or _PATIENT_LEASE,
            "inventory": {"node_gone_s": NODE_GONE_S},
            "bootstrap": {"period_s": SAMPLE_EVERY_S},
            "health": {"period_s": SAMPLE_EVERY_S},
            **self._settings,
        }

    async def reconfigure(self, **sections: Any) -> None:
        """Restart the server with other settings than it has."""
        self._settings |= sections
        self.server.configure(self._settings_of(self._port))
        await self.server.restart()

    async def crash_server(self) -> None:
        """Kill the server, and its Lease with it, which would run out after its duration."""
        self.server.kill9()
        await self._forget_lease()

    async def restore(self) -> None:
        """Start again whatever a test has left dead or unready."""
        if not self.server.process.running:
            await self._forget_lease()
            await self.server.start()
        await self.server.wait_for("/readyz")
        if not self.scheduler.process.running:
            await self.scheduler.start()

    async def check_rights(self) -> None:
        """Check that the rendered roles suffice: what we were ever refused, we may do now.

        An API server that has just started knows no roles yet, and refuses what it grants later.
        """
        refused = {
            match.groups(default="")
            for line in self.log()
            for match in _REFUSED.finditer(str(line))
        }
        async with client.open_client(self._control_plane.kubeconfig()) as api:
            shortfall = [right for right in sorted(refused) if not await _granted(api, *right)]
        assert not shortfall, (
            f"the rendered roles lack (name, verb, resource, API group): {shortfall}"
        )

    async def metrics(self) -> "Metrics":
        """Read /metrics of the server, a page that was written after the call."""
        await asyncio.sleep(self._page_until - time.monotonic())
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{self.url}/metrics", ssl=False) as answer,
        ):
            assert answer.status == 200
            self._page_until = time.monotonic() + PAGE_S
            return Metrics(await answer.text())

    def log(self) -> list[dict[str, Any]]:
        """Return what all lives of the server logged."""
        return self.server.logs()

    async def _forget_lease(self) -> None:
        async with client.open_client(self._control_plane.kubeconfig()) as api:
            await _delete(api, LEASE)

    async def refresh_scheduler(self) -> None:
        """Give kube-scheduler's files what our Secret holds now, and restart it to read them."""
        await self.mount_secret()
        await self.scheduler.restart()

    async def mount_secret(self) -> dict[str, Path]:
        """Give kube-scheduler's files what its Secret holds now, as its kubelet does; return them."""
        async with client.open_client(self._control_plane.kubeconfig()) as api:

            async def copied() -> dict[str, str]:
                ours = (await api.find(SECRET)).get("data", {})
                data: dict[str, str] = (await api.find(SCHEDULER_SECRET)).get("data", {})
                assert data == {key: ours.get(key) for key in _MOUNTED}, "the Secrets differ"
                return data

            data = await polling.eventually(copied, what="kube-scheduler's Secret")
        return {key: self._save(key, data[key]) for key in _MOUNTED}

    async def _new_scheduler(self) -> components.KubeScheduler:
        files = await self.mount_secret()
        kubeconfig = await self._control_plane.service_account_kubeconfig(
            NAMESPACE, "gpu-scheduler"
        )
        self.scheduler_configuration = await self.render(
            "scheduler-config",
            *("--url", self.url),
            *("--ca-file", str(files["ca.crt"])),
            *("--client-cert", str(files["scheduler.crt"])),
            *("--client-key", str(files["scheduler.key"])),
            *("--kubeconfig", str(kubeconfig)),
        )
        return components.KubeScheduler(
            self._control_plane,
            configuration=self.scheduler_configuration,
            name=f"{self._prefix}gpu-scheduler",
            environment=_SCHEDULER_ENVIRONMENT,
        )

    def _save(self, name: str, encoded: str) -> Path:
        path = self._directory / f"{self._prefix}extender-{name}"
        path.touch(mode=0o600)
        path.write_bytes(base64.b64decode(encoded))
        return path

    @staticmethod
    async def render(*arguments: str) -> str:
        """Return what `gpu-control-plane render` prints; here, since a process imports for a second before it prints."""
        # The fault run, which imports nothing that it judges, has installations that it does not render here.
        from cli import main as command_line  # noqa: PLC0415

        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            assert command_line.run(["render", *arguments]) == 0
        return printed.getvalue()


@final
class Metrics:
    """Samples of one scrape."""

    def __init__(self, text: str) -> None:
        self._samples = {
            (found["name"], frozenset(_LABEL.findall(found["labels"] or ""))): float(found["value"])
            for found in _SAMPLE.finditer(text)
        }

    def total(self, name: str, **labels: str) -> float:
        """Return the sum of the samples with these labels; 0 where there is none yet."""
        expected = set(labels.items())
        return sum(
            value
            for (found, given), value in self._samples.items()
            if found == name and expected <= given
        )


async def _granted(api: client.ApiClient, name: str, verb: str, resource: str, group: str) -> bool:
    """Say whether the server may do that to the object of the name; some it may do to some only."""
    kind, _, subresource = resource.partition("/")
    attributes = {"verb": verb, "group": group, "resource": kind, "subresource": subresource}
    attributes["name"] = name
    review = await api.create(
        "/apis/authorization.k8s.io/v1/subjectaccessreviews",
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            # Our own namespace, where a Role grants what no ClusterRole does.
            "spec": {
                "user": SERVER_USER,
                "resourceAttributes": {**attributes, "namespace": NAMESPACE},
            },
        },
    )
    return bool(review["status"]["allowed"])
