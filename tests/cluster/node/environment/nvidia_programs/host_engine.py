"""nv-hostengine: reads the node's devices for exporters. Its protocol is a JSON document of all values, and the end."""

import argparse
import asyncio
import json
import signal
import sys
from pathlib import Path

from agent.nvml.driver import NvmlDriver
from http_edge.system_clock import SystemClock

_DRIVER_ROOT = Path("/run/nvidia/driver")
_WITHIN_S = 5.0


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(prog="nv-hostengine", allow_abbrev=False)
    parser.add_argument("-n", "--no-daemon", action="store_true", required=True)
    parser.add_argument("-b", "--bind-interface", default="127.0.0.1")
    parser.add_argument("-p", "--port", type=int, default=5555)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    asyncio.run(_serve(options.bind_interface, options.port))


async def _serve(interface: str, port: int) -> None:
    driver = NvmlDriver(SystemClock(), driver_root=_DRIVER_ROOT)

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(json.dumps(await _values(driver)).encode())
            await writer.drain()
        finally:
            writer.close()

    address = "0.0.0.0" if interface == "ALL" else interface
    server = await asyncio.start_server(answer, address, port)
    print(f"Started host engine version 4.2.3 using port number: {port}", flush=True)
    async with server:
        await server.serve_forever()


async def _values(driver: NvmlDriver) -> list[dict[str, object]]:
    # A driver that went away and came back is found by a look.
    await driver.read()
    measured = await driver.measure(_WITHIN_S)
    return [
        {
            "gpu": str(sample.index),
            "UUID": sample.uuid,
            "pci_bus_id": f"0000{sample.address.upper()}",
            "device": f"nvidia{sample.minor}",
            "modelName": sample.product,
            "values": {"DCGM_FI_DEV_XID_ERRORS": 0, "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": 0}
            | {"DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": 0}
            | {field.value.name: value for field, value in sample.values.items()},
        }
        for sample in measured.samples
        if sample.gpu_instance is None
    ]
