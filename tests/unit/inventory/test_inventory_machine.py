"""Sources come and go, devices are pulled, swapped and put in: what is known is never lost, and never invented.

The model is a list of the devices that are in the node. Sources repeat what is there when they speak; which
of them are there, and up to date, is drawn.
"""

import datetime as dt
from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from api.foreign.nodefeature import NodeFeature
from api.kinds.gpudevice import GPUDevice, GPUDeviceStatus
from api.meta import ObjectMeta
from api.names import DEVICE_NODE_LABEL, DeviceName, NodeName
from inventory.discovery.labels import label_report
from inventory.discovery.merge import merge, merged_labels
from inventory.discovery.plan import addresses_of, device_shows, plan_inventory
from inventory.discovery.sources import feature_report
from inventory.identity import device_name
from tests.support import node_features
from tests.support.builders import EPOCH

N1 = NodeName("n1")
FRESH_FOR = dt.timedelta(minutes=2)
PLACES = 4


def a_feature(name: str, gpus: dict[int, str]) -> dict[str, Any]:
    if name == "agent":
        elements = [
            node_features.agent_device("n1", n) | {"uuid": uuid} for n, uuid in sorted(gpus.items())
        ]
        return node_features.agent_feature("n1", elements, heartbeat=EPOCH)
    elements = [node_features.gpu_instance("n1", n, uuid=uuid) for n, uuid in sorted(gpus.items())]
    feature = node_features.agent_feature("n1", [])
    instances = {"nvidia.com/gpu": {"elements": [{"attributes": element} for element in elements]}}
    feature["spec"] = {"features": {"instances": instances}}
    return feature


class Inventories(RuleBasedStateMachine):
    """A node with up to four devices; the world tells, the plan is carried out at once."""

    def __init__(self) -> None:
        super().__init__()
        self.gpus: dict[int, str] = {0: "GPU-first"}
        self.number = 0
        self.now = EPOCH
        self.features: dict[str, dict[str, Any]] = {}
        self.reported: dict[str, dict[int, str]] = {}
        self.labels: dict[str, str] = {}
        self.devices: dict[DeviceName, GPUDevice] = {}

    # --- the world -------------------------------------------------------------------------------

    @precondition(lambda self: len(self.gpus) < PLACES)
    @rule(data=st.data())
    def put_in(self, data: Any) -> None:
        place = data.draw(st.sampled_from(sorted(set(range(PLACES)) - self.gpus.keys())))
        self.number += 1
        self.gpus[place] = f"GPU-{self.number:04d}"

    @precondition(lambda self: self.gpus)
    @rule(data=st.data())
    def pull(self, data: Any) -> None:
        del self.gpus[data.draw(st.sampled_from(sorted(self.gpus)))]

    @precondition(lambda self: self.gpus)
    @rule(data=st.data())
    def swap(self, data: Any) -> None:
        self.number += 1
        self.gpus[data.draw(st.sampled_from(sorted(self.gpus)))] = f"GPU-{self.number:04d}"

    @rule(source=st.sampled_from(["agent", "instances"]))
    def speak(self, source: str) -> None:
        self.features[source] = a_feature(source, self.gpus)
        self.reported[source] = dict(self.gpus)
        if source == "agent":
            self.now = EPOCH

    @rule(source=st.sampled_from(["agent", "instances"]))
    def withdraw(self, source: str) -> None:
        self.features.pop(source, None)
        self.reported.pop(source, None)

    @rule()
    def agent_goes_silent(self) -> None:
        self.now = EPOCH + FRESH_FOR + dt.timedelta(seconds=1)

    @rule(is_there=st.booleans())
    def label(self, *, is_there: bool) -> None:
        count = len(self.gpus)
        there = node_features.rule_labels(count) | node_features.gfd_labels(count) if count else {}
        self.labels = there if is_there else {}

    # --- what the controller does ----------------------------------------------------------------

    @rule()
    def take_stock(self) -> None:
        before = dict(self.devices)
        merged = self._read()
        plan = plan_inventory(N1, list(self.devices.values()), merged, is_managed=True)
        for device, _ in plan.delete:
            del self.devices[device.name]
        for desired in plan.create:
            self.devices[desired.name] = a_device(desired.name, desired.status)
        for device, desired in plan.keep:
            self._nothing_is_lost(device.status, desired.status)
            self.devices[desired.name] = a_device(desired.name, desired.status)
        self._nobody_goes_unsaid(before)
        self._again_is_no_change()

    def _read(self) -> Any:
        order = sorted(self.features)
        reports = [feature_report(msgspec.convert(self.features[n], NodeFeature)) for n in order]
        return merge(
            label_report(merged_labels(self.labels, reports)),
            reports,
            addresses=addresses_of(list(self.devices.values())),
            now=self.now,
            fresh_for=FRESH_FOR,
        )

    def _fresh(self) -> dict[str, dict[int, str]]:
        is_silent = self.now != EPOCH
        return {
            n: reported for n, reported in self.reported.items() if n != "agent" or not is_silent
        }

    def _nothing_is_lost(self, before: GPUDeviceStatus, after: GPUDeviceStatus) -> None:
        assert after.inventory_id == before.inventory_id
        assert after.uuid == before.uuid or not before.uuid
        for field in ("product", "memory_mib", "compute_capability"):
            earlier = getattr(before, field)
            assert not earlier or getattr(after, field) == earlier
        assert after.pci == before.pci

    def _nobody_goes_unsaid(self, before: dict[DeviceName, GPUDevice]) -> None:
        """A device that is gone was denied by a fresh source; one that is new was told by one."""
        fresh = self._fresh()
        for place in range(PLACES):
            name = device_name(N1, node_features.address_of(place))
            if name in before and name not in self.devices:
                assert any(place not in reported for reported in fresh.values())
            if name in self.devices and name not in before:
                assert any(place in reported for reported in fresh.values())
            if name in before and name in self.devices:
                old, new = before[name].status.uuid, self.devices[name].status.uuid
                assert old == new or any(reported.get(place) == new for reported in fresh.values())

    def _again_is_no_change(self) -> None:
        plan = plan_inventory(N1, list(self.devices.values()), self._read(), is_managed=True)
        assert (plan.create, plan.delete) == ((), ())
        assert all(device_shows(device.status, desired.status) for device, desired in plan.keep)

    @invariant()
    def an_agent_that_speaks_now_is_followed(self) -> None:
        """Once the agent tells the truth, devices are the devices."""
        if self.reported.get("agent") != self.gpus or self.now != EPOCH:
            return
        self.take_stock()
        found = {device.status.pci.address: device.status.uuid for device in self.devices.values()}
        assert found == {node_features.address_of(place): uuid for place, uuid in self.gpus.items()}


def a_device(name: DeviceName, status: GPUDeviceStatus) -> GPUDevice:
    return GPUDevice(metadata=ObjectMeta(name=name, labels={DEVICE_NODE_LABEL: "x"}), status=status)


PROFILE = settings()
Inventories.TestCase.settings = settings(
    max_examples=max(60, PROFILE.max_examples), stateful_step_count=30
)
TestInventories = Inventories.TestCase
