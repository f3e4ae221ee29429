"""gpu-feature-discovery: the features of a node's devices, as a NodeFeature or as a file for NFD's worker.

Environment: github.com/NVIDIA/k8s-device-plugin, cmd/gpu-feature-discovery/main.go. Output: internal/lm/output.go.
"""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from agent.nvml.driver import NvmlDriver
from http_edge.system_clock import SystemClock
from tests.cluster.node.environment.nvidia_programs.api_server import call

if TYPE_CHECKING:
    from agent.driver.port import DriverSnapshot

_DRIVER_ROOT = Path("/driver-root")
_OUTPUT = Path("/etc/kubernetes/node-feature-discovery/features.d/gfd")
_FAMILIES = {"7": "volta", "8": "ampere", "9": "hopper"}


def main() -> None:
    """Report again and again; ends where the driver cannot be used and GFD_FAIL_ON_INIT_ERROR is true."""
    # As process 1 of a container it would ignore the signal.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.signal(signal.SIGHUP, lambda *_: os.execv(sys.argv[0], sys.argv))
    interval_s = float(os.environ["GFD_SLEEP_INTERVAL"].removesuffix("s"))
    started = f"{SystemClock().utc_now().timestamp():.0f}"
    while True:
        labels = asyncio.run(_labels()) | {"nvidia.com/gfd.timestamp": started}
        if os.environ["USE_NODE_FEATURE_API"] == "true":
            _publish(labels)
        else:
            _write(_OUTPUT, labels)
        print(f"{len(labels)} labels", flush=True)
        time.sleep(interval_s)


async def _labels() -> dict[str, str]:
    driver = NvmlDriver(SystemClock(), driver_root=_DRIVER_ROOT)
    try:
        snapshot = await driver.read()
    finally:
        await driver.close()
    return {f"nvidia.com/{key}": value for key, value in _features(snapshot).items()}


def _features(snapshot: "DriverSnapshot") -> dict[str, str]:
    device = snapshot.devices[0]
    major, minor = (device.compute_capability or ".").split(".")
    machine = Path("/sys/class/dmi/id/product_name")
    model = machine.read_text(encoding="utf-8").strip() if machine.exists() else "unknown"
    return {
        "cuda.driver-version.full": snapshot.driver_version,
        "cuda.runtime-version.full": snapshot.cuda_version,
        "gpu.compute.major": major,
        "gpu.compute.minor": minor,
        "gpu.count": str(len(snapshot.devices)),
        "gpu.family": _FAMILIES.get(major, "undefined"),
        "gpu.machine": "-".join(model.split()),
        "gpu.memory": str(device.memory_mib),
        "gpu.mode": "compute",
        "gpu.product": "-".join(device.product.split()),
        "gpu.replicas": "1",
        "gpu.sharing-strategy": "none",
        "mig.capable": str(device.is_mig_capable).lower(),
        "mig.strategy": _flags().get("migStrategy", os.environ.get("MIG_STRATEGY", "none")),
    }


def _flags() -> dict[str, str]:
    """Return the flags of the configuration; config-manager links an empty one, or one of several."""
    if "CONFIG_FILE" not in os.environ:
        return {}
    content = yaml.safe_load(Path(os.environ["CONFIG_FILE"]).read_text(encoding="utf-8")) or {}
    flags: dict[str, str] = content.get("flags", {})
    return flags


def _publish(labels: dict[str, str]) -> None:
    node, namespace = os.environ["NODE_NAME"], os.environ["NAMESPACE"]
    name = f"nvidia-features-for-{node}"
    path = f"/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/{namespace}/nodefeatures"
    found = call("GET", f"{path}/{name}")
    metadata: dict[str, Any] = {
        "name": name,
        "labels": {"nfd.node.kubernetes.io/node-name": node},
        "ownerReferences": _owners(namespace),
    }
    expected = {
        "apiVersion": "nfd.k8s-sigs.io/v1alpha1",
        "kind": "NodeFeature",
        "metadata": metadata,
        "spec": {"features": {"attributes": {}, "flags": {}, "instances": {}}, "labels": labels},
    }
    if found is None:
        call("POST", path, expected)
        return
    metadata["resourceVersion"] = found["metadata"]["resourceVersion"]
    call("PUT", f"{path}/{name}", expected)


def _owners(namespace: str) -> list[dict[str, Any]]:
    """Return the DaemonSet, as a GFD does that knows its pod: the NodeFeature goes with it."""
    name = os.environ.get("POD_NAME", "")
    pod = call("GET", f"/api/v1/namespaces/{namespace}/pods/{name}") if name else None
    owners = (pod or {"metadata": {}})["metadata"].get("ownerReferences", [])
    return [
        {key: owner[key] for key in ("apiVersion", "kind", "name", "uid")} | {"controller": True}
        for owner in owners
        if owner["kind"] == "DaemonSet"
    ]


def _write(path: Path, labels: dict[str, str]) -> None:
    text = "".join(f"{key}={value}\n" for key, value in labels.items())
    fresh = path.with_name(f".{path.name}")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)
