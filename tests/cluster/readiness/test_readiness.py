"""A node's readiness and its devices' health on the real API server: watched, judged, written, left alone."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from api.kinds.gpudevice import GPUDevice
from api.kinds.gpunodeinventory import GPUNodeInventory
from api.names import API_VERSION
from http_edge.system_clock import SystemClock
from inventory.debounce import DebounceLimits
from inventory.health.device import HealthDebounceLimits
from inventory.readiness.software import BootstrapParameters
from kube.client import KubeClient
from kube.config.discovery import load_configuration
from kube.informer import Informer, Selection
from kube.resources import GPU_DEVICES, GPU_NODE_INVENTORIES, PODS
from manifests.install.crds import build_crds
from manifests.yaml import render
from reconciler.controller_spec import ControllerContext
from reconciler.dcgm import scraper
from reconciler.device import health
from reconciler.readiness import controller as readiness
from reconciler.sinks.device import observe_device
from reconciler.sinks.operand_pod import OperandParameters, OperandPodObject, projection
from server.controllers.manager import ControllerManager
from server.controllers.settings import controller_settings
from server.kernelcache.mutation_key_secret import MutationKeySecret
from server.settings import Settings
from tests.cluster.environment import client, definitions, polling
from tests.cluster.environment.nodes import KWOK_PREFIX
from tests.support.controllers import new_stores
from tests.support.dcgm import Exporter, an_exporter, device_lines
from tests.support.operands import an_operand_pod
from tests.support.recorded_events import RecordedEvents

INVENTORIES = "/apis/gpu.deckhouse.io/v1alpha1/gpunodeinventories"
DEVICES = "/apis/gpu.deckhouse.io/v1alpha1/gpudevices"
PERIOD_S = 0.2


class Recorder(RecordedEvents):
    @property
    def reasons(self) -> list[str]:
        return [event.reason for event in self.events if event.regarding.kind == "GPUDevice"]


@dataclass
class Setup:
    """A node with one device, whose exporter a test speaks for."""

    api: client.ApiClient
    namespace: str
    node: str
    exporter: Exporter
    recorder: Recorder

    @property
    def uuid(self) -> str:
        return f"GPU-{self.node}"

    async def condition(self, path: str, type_: str) -> tuple[str, str] | None:
        seen = (await self.api.conditions(f"{path}/{self.node}")).get(type_)
        return None if seen is None else (seen["status"], seen["reason"])

    async def becomes(self, path: str, type_: str, wanted: tuple[str, str]) -> None:
        async def is_so() -> bool:
            seen = await self.condition(path, type_)
            assert seen == wanted, f"{type_} is {seen}"
            return True

        await polling.eventually(is_so, what=f"{type_} of {self.node} is {wanted}")

    async def run_operand(self, app: str, *, ready: bool = True, **changes: Any) -> None:
        name = f"{app}-{self.node}"
        body = an_operand_pod(
            app, name=name, namespace=self.namespace, node=self.node, ready=ready, **changes
        )
        status = body.pop("status")
        pods = f"/api/v1/namespaces/{self.namespace}/pods"
        with contextlib.suppress(client.ApiRefusedError):
            await self.api.create(pods, body)
        # The kind of patch that kubelet sends.
        await self.api.patch(f"{pods}/{name}/status", {"status": status}, kind="strategic")

    async def versions(self) -> list[str]:
        seen = [await self.api.get(f"{path}/{self.node}") for path in (INVENTORIES, DEVICES)]
        return [item["metadata"]["resourceVersion"] for item in seen]

    async def idle(self) -> list[str]:
        """Return the versions once none has changed for some periods: conditions are several writes."""

        async def unchanged() -> list[str]:
            before = await self.versions()
            await asyncio.sleep(PERIOD_S * 3)
            assert await self.versions() == before
            return before

        return await polling.eventually(unchanged, what="no write")


@pytest.fixture(scope="module", name="_kinds")
def _install_kinds(kubectl):
    """Our kinds; they stay until the control plane goes (tests/cluster/manifests/conftest.py)."""
    crds = build_crds()
    asyncio.run(kubectl("apply", "-f", "-", stdin=render(crds)))
    asyncio.run(definitions.until_served(kubectl, crds))


@pytest.fixture
async def setup(control_plane, api, namespace, _kinds) -> AsyncIterator[Setup]:
    # The kubelet double leaves it alone: it would report what runs there as ready.
    node = f"{KWOK_PREFIX}ready-{secrets.token_hex(3)}"
    await api.create("/api/v1/nodes", {"metadata": {"name": node}})
    await _add_device(api, node)
    recorder = Recorder()
    async with an_exporter(device_lines(f"GPU-{node}")) as exporter, asyncio.TaskGroup() as group:
        setup = Setup(api, namespace, node, exporter, recorder)
        following = group.create_task(_follow(str(control_plane.kubeconfig()), setup))
        yield setup
        following.cancel()
    for path in (f"{INVENTORIES}/{node}", f"{DEVICES}/{node}", f"/api/v1/nodes/{node}"):
        await api.delete(path)


async def _add_device(api: client.ApiClient, node: str) -> None:
    """Write what the inventory writes."""
    statuses = {
        (INVENTORIES, "GPUNodeInventory"): {"managed": True, "devices": [node]},
        (DEVICES, "GPUDevice"): {
            "nodeName": node,
            "uuid": f"GPU-{node}",
            "pci": {"address": "0000:17:00.0"},
        },
    }
    for (path, kind), status in statuses.items():
        body = {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": node}}
        await api.create(path, body)
        await api.patch(
            f"{path}/{node}/status",
            {**body, "status": status},
            kind="apply",
            fieldManager="inventory",
        )


async def _follow(kubeconfig: str, setup: Setup) -> None:
    """Do what the server does for readiness and health."""
    clock, stores = SystemClock(), new_stores()
    settings = replace(
        controller_settings(Settings()),
        bootstrap=BootstrapParameters(debounce=DebounceLimits(period_s=PERIOD_S)),
        health=HealthDebounceLimits(period_s=PERIOD_S / 2),
        scrape_period_s=PERIOD_S,
    )
    parameters = OperandParameters(namespaces=frozenset({setup.namespace}))
    configuration = await load_configuration(clock, kubeconfig=kubeconfig)
    async with KubeClient(configuration, clock) as kube:
        informers: list[Informer[Any]] = [
            Informer(
                kube,
                GPU_DEVICES,
                GPUDevice,
                sink=stores.device_sink,
                clock=clock,
                project=observe_device,
            ),
            Informer(
                kube,
                GPU_NODE_INVENTORIES,
                GPUNodeInventory,
                sink=stores.inventories,
                clock=clock,
            ),
            Informer(
                kube,
                PODS,
                OperandPodObject,
                sink=stores.operands,
                clock=clock,
                project=projection(parameters),
                selection=Selection(label_selector=parameters.label_selector),
            ),
        ]
        async with asyncio.TaskGroup() as group:
            for informer in informers:
                group.create_task(informer.run())
            for informer in informers:
                await informer.synced.wait()
            async with contextlib.AsyncExitStack() as ending:
                context = ControllerContext(
                    client=kube,
                    stores=stores,
                    recorder=setup.recorder,
                    scheduling=None,  # type: ignore[arg-type]  # not of these controllers
                    settings=settings,
                    clock=clock,
                    cache_proof=MutationKeySecret(kube, settings.workloads.namespace),
                    ending=ending,
                )
                specs = (readiness.SPEC, health.SPEC, scraper.SPEC)
                await ControllerManager(context, specs).start(group)
                await asyncio.Event().wait()


async def test_a_fresh_node_is_ready_and_follows_its_operands(setup: Setup):
    """Lesson 1: with default requirements nothing that does not exist is waited for."""
    await setup.becomes(INVENTORIES, "ReadyForPooling", ("True", "Ready"))
    await setup.run_operand("gpu-feature-discovery", ready=False)
    await setup.becomes(INVENTORIES, "ReadyForPooling", ("False", "GFDNotReady"))
    await setup.becomes(INVENTORIES, "InfraDegraded", ("True", "NotReady"))
    await setup.run_operand("gpu-feature-discovery")
    await setup.becomes(INVENTORIES, "ReadyForPooling", ("True", "Ready"))


async def test_pods_of_a_pool_are_no_operands_for_the_api_server_either(setup: Setup):
    """Lesson 20."""
    await setup.becomes(INVENTORIES, "ReadyForPooling", ("True", "Ready"))
    before = await setup.idle()
    of_a_pool = {"gpu.deckhouse.io/pool": "a100"}
    await setup.run_operand("nvidia-operator-validator", ready=False, labels=of_a_pool)
    await asyncio.sleep(PERIOD_S * 5)
    assert await setup.versions() == before


async def test_a_device_fails_and_comes_back_and_nothing_is_written_in_between(setup: Setup):
    ports = [{"name": "metrics", "containerPort": setup.exporter.port}]
    await setup.run_operand("nvidia-dcgm-exporter", ip=setup.exporter.host, ports=ports)
    await setup.becomes(DEVICES, "Healthy", ("True", "Healthy"))
    await setup.becomes(INVENTORIES, "MonitoringMissing", ("False", "Ready"))
    await setup.becomes(INVENTORIES, "ReadyForPooling", ("True", "Ready"))
    setup.exporter.page = device_lines(setup.uuid, xid=79)
    await setup.becomes(DEVICES, "Healthy", ("False", "XIDError"))
    await setup.becomes(INVENTORIES, "ReadyForPooling", ("False", "DevicesFaulted"))
    before, asked = await setup.idle(), setup.exporter.asked
    await polling.eventually(lambda: setup.exporter.asked > asked + 5, what="five more pages")
    assert await setup.versions() == before
    setup.exporter.page = device_lines(setup.uuid)
    await setup.becomes(DEVICES, "Healthy", ("True", "Healthy"))
    # An Event follows the write that it tells of.
    await polling.eventually(lambda: len(setup.recorder.reasons) > 1, what="two Events")
    assert setup.recorder.reasons == ["GPUDeviceFaulted", "GPUDeviceRecovered"]
