"""Programs of the containers on the demo's nodes.

The detector's report, the validator's steps and files, and the check of the container toolkit are the real ones, with
a folder as the root of each node. Without a device there is no driver: the steps `driver` and `cuda` pass.
"""

import asyncio
from typing import TYPE_CHECKING, Final, final

from agent.detection.report import write_report
from agent.driver.pci import PciDevice
from agent.errors import StepFailedError
from agent.validator.checked_node import CheckedNode
from agent.validator.ready_files import ReadyFiles
from agent.validator.step_run import StepTimes, run_step, wait_for_file
from agent.validator.steps import DEFAULT_STEPS, Passed, ValidationStep
from agent.validator.toolkit_check import RUNTIME, ToolkitCheck
from agent.validator.validated_steps import ValidatedSteps
from api.nodefiles.poolconfig import DeviceInjection
from api.vendor import ACCELERATOR, NVIDIA
from manifests import constants
from simulator.node.container_runtime import ContainerFailedError
from simulator.node.node_agent import FakeNodeAgent

if TYPE_CHECKING:
    from pathlib import Path

    from agent.validator.steps import Outcome, StepCheck
    from api.clock import Clock
    from api.foreign.core import Pod
    from demo.fleet import Fleet
    from kube.client import KubeClient

NAME_LABEL: Final = "app.kubernetes.io/name"
VALIDATOR: Final = "gpu-node-validator"
STEP_SUFFIX: Final = "-validation"
"""Suffix of the names of init containers; before it is the name of the step."""
STEP_S: Final = 0.6
"""Duration of a step; a real one takes some seconds."""
_TIMES: Final = StepTimes(deadline_s=0.1, retry_s=0.2)
"""One look. A real step looks every five seconds for a minute."""


@final
class NodePrograms:
    """What runs in the containers of all nodes."""

    def __init__(
        self, client: "KubeClient", clock: "Clock", *, folder: "Path", fleet: "Fleet"
    ) -> None:
        self._client = client
        self._clock = clock
        self._folder = folder
        self._devices_of = fleet.devices_of
        self.agents: dict[str, FakeNodeAgent] = {}
        self._kept: dict[str, ValidatedSteps] = {}
        """Programs of the role `validator`."""
        for node in fleet.nodes:
            self._add(node)

    def _add(self, node: str) -> None:
        """Install what a node's image has."""
        devices = self._devices_of(node)
        self.agents[node] = FakeNodeAgent(self._client, self._clock, node=node, devices=devices)
        self.install_toolkit(node)
        self._kept[node] = ValidatedSteps(
            self._checks(node), self._files(node), clock=self._clock, times=_TIMES
        )

    def install_toolkit(self, node: str) -> None:
        """Put NVIDIA's container runtime on a node."""
        program = self._runtime_program(node)
        program.parent.mkdir(parents=True, exist_ok=True)
        program.touch()

    def remove_toolkit(self, node: str) -> None:
        self._runtime_program(node).unlink()

    async def start(self, pod: "Pod", container: str) -> None:
        """Run a container's program as long as it takes to start.

        Raises:
            ContainerFailedError: a step of the validation has not passed.
        """
        node = pod.spec.node_name
        if node not in self.agents:
            self._add(node)
        try:
            match pod.metadata.label(NAME_LABEL), container:
                case constants.NODE_DETECTOR, _:
                    await self._detect(node)
                case constants.NODE_AGENT, _:
                    await self.agents[node].report()
                case "gpu-node-validator", name if name.endswith(STEP_SUFFIX):
                    await self._validate(node, ValidationStep(name.removesuffix(STEP_SUFFIX)))
                case "gpu-node-validator", _:
                    await self._kept[node].until_valid()
                case _, name if name.endswith(STEP_SUFFIX):
                    step = ValidationStep(name.removesuffix(STEP_SUFFIX))
                    await wait_for_file(step, self._files(node), clock=self._clock, times=_TIMES)
                case _:
                    pass
        except StepFailedError as error:
            raise ContainerFailedError(str(error)) from error

    async def _detect(self, node: str) -> None:
        devices = [
            PciDevice(
                address=item.address,
                vendor=NVIDIA,
                device=item.pci_device,
                class_=ACCELERATOR,
                numa_node=item.numa_node,
                driver="nvidia",
            )
            for item in self._devices_of(node)
        ]
        await write_report(self._client, devices, node=node, namespace=constants.DEFAULT_NAMESPACE)

    async def _validate(self, node: str, step: ValidationStep) -> None:
        await asyncio.sleep(STEP_S)
        check = self._checks(node)[step]
        await run_step(step, check, self._files(node), clock=self._clock, times=_TIMES)

    def _checks(self, node: str) -> "dict[ValidationStep, StepCheck]":
        checks: dict[ValidationStep, StepCheck] = dict.fromkeys(DEFAULT_STEPS, _Passing())
        checked = CheckedNode(driver_root=self._root(node), hand_out=DeviceInjection.ENVIRONMENT)
        return checks | {ValidationStep.TOOLKIT: ToolkitCheck(checked, self._clock)}

    def _files(self, node: str) -> ReadyFiles:
        return ReadyFiles(self._root(node) / "run" / "nvidia" / "validations")

    def _runtime_program(self, node: str) -> "Path":
        return self._root(node) / "usr" / "bin" / RUNTIME

    def _root(self, node: str) -> "Path":
        return self._folder / node


@final
class _Passing:
    """A step that needs a device."""

    async def run(self) -> "Outcome":
        return Passed("not looked at")

    def signature(self) -> object:
        return ()
