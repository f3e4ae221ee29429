"""The nodes of `tests/data/nodes.yaml`: their labels and NodeFeatures as Node Feature Discovery and
gpu-feature-discovery write them, and what their devices are.

NFD: github.com/kubernetes-sigs/node-feature-discovery, source/pci and source/system. GFD: github.com/NVIDIA/k8s-device-plugin,
internal/lm, and its predecessor github.com/NVIDIA/gpu-feature-discovery.
"""

import datetime as dt
import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml

from api.foreign.nodefeature import GPU_INSTANCES
from api.kinds.gpudevice import GPUDeviceStatus
from api.mig.profile import label_form
from api.vendor import NVIDIA
from inventory.products import display_product, product_by_id
from manifests.install.node_feature_rule import build_node_feature_rule
from tests.support.nfd_master import labels_of
from tests.support.node_features import a_node_feature, agent_feature, uuid_of
from tests.support.source_trees import ROOT

Json = dict[str, Any]

GPU: Final = "nvidia.com/gpu"
_AUDIO: Final = {"class": "0403", "vendor": "10de", "device": "1aef"}
_MIG_CAPABLE: Final = re.compile(r"MOCK|A100|A800|A30|H\d|GH|B\d00|GB\d00|RTX PRO 6000")
_FAMILIES: Final = {"6": "pascal", "7": "turing", "8": "ampere", "9": "hopper"}
_INSTANCE: Final = re.compile(r"(\d+)g\.(\d+)gb")


@dataclass(frozen=True, slots=True)
class DescribedDevice:
    """A device of such a node, and what is true of it."""

    address: str
    name: str
    """As NVML writes it."""
    device: str
    memory_mib: int
    capability: str
    subclass: str = "0302"

    @property
    def is_mig_capable(self) -> bool:
        is_virtual = "GRID" in self.name or re.search(r"-\d+[CQ]$", self.name)
        return bool(_MIG_CAPABLE.search(self.name)) and not is_virtual


@dataclass(frozen=True, slots=True)
class DescribedNode:
    """A node of the file, with the fields that its comment explains."""

    name: str
    fields: Json

    @property
    def devices(self) -> list[DescribedDevice]:
        domain = self.fields.get("domain", "0000")
        names = [name for name, count in self.fields["gpus"].items() for _ in range(count)]
        return [
            DescribedDevice(f"{domain}:{number + 1:02x}:00.0", name, *models()[name])
            for number, name in enumerate(names)
        ]

    @property
    def versions(self) -> tuple[str, str]:
        """Return those of the driver and of CUDA."""
        return self.fields.get("driver", "570.86.15"), self.fields.get("cuda", "12.8")

    @property
    def mig(self) -> tuple[str, Mapping[str, int]]:
        """Return the strategy of GFD, or that its layout is invalid, and the instances of the whole node."""
        ((strategy, instances),) = self.fields.get("mig", {"none": {}}).items()
        return strategy, instances

    def nfd_labels(self) -> dict[str, str]:
        """Return what nfd-worker finds."""
        prefix = "feature.node.kubernetes.io/"
        labels = {
            f"{prefix}kernel-version.full": "5.15.0-134-generic",
            f"{prefix}system-os_release.ID": "ubuntu",
            f"{prefix}system-os_release.VERSION_ID": "22.04",
        }
        for item in self.devices:
            by_class = self.fields.get("pci") == "class"
            key = f"{item.subclass}_10de" if by_class else "10de"
            labels[f"{prefix}pci-{key}.present"] = "true"
        return labels

    def rule_labels(self) -> dict[str, str]:
        """Return what nfd-master makes of our NodeFeatureRule."""
        return labels_of(
            build_node_feature_rule(),
            instances={"pci.device": self._on_bus()},
            attributes={},
            flags={},
        )

    def gfd_labels(self) -> dict[str, str]:
        """Return what GFD publishes; of several models, those of the last one stay."""
        if self.fields["gfd"] == "none":
            return {}
        labels = {"nvidia.com/gfd.timestamp": "1763740800", f"{GPU}.machine": "Standard-PC"}
        labels |= self._version_labels() | self._whole_labels() | self._mig_labels()
        if "vgpu" in self.fields:
            branch = self.fields["vgpu"]
            labels |= {
                "nvidia.com/vgpu.present": "true",
                "nvidia.com/vgpu.host-driver-version": "580.126.08",
                "nvidia.com/vgpu.host-driver-branch": branch,
            }
        if self.fields.get("clique"):
            labels[f"{GPU}.clique"] = "7b968a6d-c8aa-45e1-9e07-e1e51be99c31.1"
        return labels

    def labels(self) -> dict[str, str]:
        """Return the labels of the Node."""
        return self.nfd_labels() | self.gfd_labels()

    def features(self, labels: Mapping[str, str]) -> list[Json]:
        """Return the NodeFeatures of nfd-worker and GFD, which ask for these labels; none of an NFD that has no such API."""
        if self.fields["nfd"] == "labels":
            return []
        of_gfd = {key: value for key, value in labels.items() if key.startswith("nvidia.com/")}
        of_nfd = {key: value for key, value in labels.items() if key not in of_gfd}
        found = [
            a_node_feature(
                self.name, self.name, labels=of_nfd, instances={"pci.device": self._on_bus()}
            )
        ]
        if of_gfd:
            found.append(
                a_node_feature(f"nvidia-features-for-{self.name}", self.name, labels=of_gfd)
            )
        return found

    def on_bus(self, *, heartbeat: dt.datetime) -> Json:
        """Return the NodeFeature of our agent on a node without a driver."""
        devices = [
            {
                "pci.address": item.address,
                "pci.vendor": "10de",
                "pci.device": item.device,
                "pci.class": item.subclass,
            }
            for item in self.devices
        ]
        feature = agent_feature(self.name, devices, heartbeat=heartbeat)
        feature["spec"]["features"]["attributes"] = {}
        return feature

    def by_driver(self, *, heartbeat: dt.datetime) -> Json:
        """Return the NodeFeature of our agent on a node with a driver."""
        feature = self.on_bus(heartbeat=heartbeat)
        (listed,) = feature["spec"]["features"]["instances"].values()
        for number, (item, element) in enumerate(
            zip(self.devices, listed["elements"], strict=True)
        ):
            element["attributes"] |= self._by_nvml(number, item) | {
                "memory.mib": str(item.memory_mib) if item.memory_mib else "",
                "compute.capability": item.capability,
            }
        return feature

    def by_instances(self) -> Json:
        """Return the NodeFeature of another source that lists devices as NVML numbers them."""
        elements = [
            self._by_nvml(number, item)
            | {
                "pci.address": f"0000{item.address.upper()}",
                "pci.vendor": "10DE",
                "pci.device": item.device.upper(),
                "compute.major": item.capability.partition(".")[0],
                "compute.minor": item.capability.partition(".")[2],
            }
            | ({"memory.total": f"{item.memory_mib} MiB"} if item.memory_mib else {})
            for number, item in enumerate(self.devices)
        ]
        return a_node_feature(
            f"devices-of-{self.name}", self.name, instances={GPU_INSTANCES: elements}
        )

    def _by_nvml(self, number: int, item: DescribedDevice) -> dict[str, str]:
        return {
            "uuid": uuid_of(self.name, number),
            "product": item.name,
            "mig.capable": str(item.is_mig_capable).lower(),
        }

    def _on_bus(self) -> list[dict[str, str]]:
        listed = [
            {"class": item.subclass, "vendor": "10de", "device": item.device}
            for item in self.devices
        ]
        return listed + ([_AUDIO] * len(listed) if self.fields.get("audio") else [])

    def _version_labels(self) -> dict[str, str]:
        driver, cuda = self.versions
        parts = [*driver.split("."), ""][:3]
        major, _, minor = cuda.partition(".")
        found = {
            "nvidia.com/cuda.driver.major": parts[0],
            "nvidia.com/cuda.driver.minor": parts[1],
            "nvidia.com/cuda.driver.rev": parts[2],
            "nvidia.com/cuda.runtime.major": major,
            "nvidia.com/cuda.runtime.minor": minor,
        }
        if self.fields["gfd"] == "new":
            found |= {
                "nvidia.com/cuda.driver-version.full": driver,
                "nvidia.com/cuda.driver-version.major": parts[0],
                "nvidia.com/cuda.runtime-version.full": cuda,
                "nvidia.com/cuda.runtime-version.major": major,
                f"{GPU}.mode": "compute",
                "nvidia.com/mps.capable": "false",
                "nvidia.com/mig.capable": str(
                    any(item.is_mig_capable for item in self.devices)
                ).lower(),
            }
        return found

    def _whole_labels(self) -> dict[str, str]:
        found: dict[str, str] = {}
        replicas = self.fields.get("replicas", 1)
        is_whole = self.mig[0] == "none"
        for item in self.devices:
            shared = "-SHARED" if replicas > 1 and is_whole else ""
            major, _, minor = item.capability.partition(".")
            found |= {
                f"{GPU}.product": item.name.replace(" ", "-") + shared,
                f"{GPU}.count": str(self.fields["gpus"][item.name]),
                f"{GPU}.replicas": str(replicas if is_whole else 0),
                f"{GPU}.family": _FAMILIES.get(major, "blackwell"),
                f"{GPU}.compute.major": major,
                f"{GPU}.compute.minor": minor,
                **({f"{GPU}.memory": str(item.memory_mib)} if item.memory_mib else {}),
            }
        if self.fields["gfd"] == "new":
            found[f"{GPU}.sharing-strategy"] = "time-slicing" if replicas > 1 else "none"
        return found

    def _mig_labels(self) -> dict[str, str]:
        strategy, instances = self.mig
        name = self.devices[-1].name.replace(" ", "-")
        if strategy == "none":
            return {"nvidia.com/mig.strategy": "single"}
        if strategy == "invalid":
            return {
                "nvidia.com/mig.strategy": "single",
                f"{GPU}.product": f"{name}-MIG-INVALID",
                **dict.fromkeys((f"{GPU}.count", f"{GPU}.replicas", f"{GPU}.memory"), "0"),
            }
        found = {"nvidia.com/mig.strategy": strategy}
        shared = "-SHARED" if self.fields.get("replicas", 1) > 1 else ""
        for profile, count in instances.items():
            form = label_form(profile)
            resource = GPU if strategy == "single" else f"nvidia.com/mig-{form}"
            slices, size = _INSTANCE.match(profile).groups()  # type: ignore[union-attr]
            found |= {
                f"{resource}.product": f"{name}-MIG-{form}{shared}",
                f"{resource}.count": str(count),
                f"{resource}.replicas": str(self.fields.get("replicas", 1)),
                f"{resource}.memory": str(int(size) * 1024 - 256),
                f"{resource}.multiprocessors": str(int(slices) * 14),
                f"{resource}.slices.gi": slices,
                f"{resource}.slices.ci": slices,
                f"{resource}.engines.copy": slices,
                f"{resource}.engines.decoder": "0",
            }
        return found


def wrong_facts(node: DescribedNode, devices: Iterable[GPUDeviceStatus]) -> Iterator[str]:
    """Yield the facts of devices that are neither right nor absent."""
    by_address = {item.pci.address: item for item in devices}
    for item in node.devices:
        status = by_address.pop(item.address, GPUDeviceStatus())
        products = {"", display_product(item.name), product_by_id(NVIDIA, item.device)}
        if status.product not in products:
            yield f"{item.address}: product {status.product}"
        if status.memory_mib not in {0, item.memory_mib}:
            yield f"{item.address}: memory {status.memory_mib}"
        if status.compute_capability not in {"", item.capability}:
            yield f"{item.address}: capability {status.compute_capability}"
        if status.mig.capable and not item.is_mig_capable:
            yield f"{item.address}: MIG"
        if not {*(status.mig.profiles or ())} <= node.mig[1].keys():
            yield f"{item.address}: profiles {status.mig.profiles}"
    yield from by_address


@functools.cache
def _file() -> Json:
    text = (ROOT / "tests/data/nodes.yaml").read_text(encoding="utf-8")
    found: Json = yaml.safe_load(text)
    return found


@functools.cache
def models() -> dict[str, list[Any]]:
    """Return the fields of a device after its name, by the name."""
    listed: dict[str, list[Any]] = _file()["models"]
    return {name: [str(fields[0]), *fields[1:]] for name, fields in listed.items()}


def described_nodes() -> list[DescribedNode]:
    return [DescribedNode(name, fields) for name, fields in _file()["nodes"].items()]
