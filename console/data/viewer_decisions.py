"""Decisions of viewers on devices: each is one PATCH with the viewer's own credentials, and never with the console's.

The API server decides: authorization, the webhook and the policies of the control plane see the viewer. The
device's pool and approval, as the console has them, must still be those that the viewer has seen.
"""

import hashlib
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Protocol, final

import msgspec

from api.names import DeviceName
from console.console_data import DecisionRefusedError
from console.rows import DecisionAnswer
from inventory.assignment.device_decisions import approval, release
from kube.errors import ApiError, KubeError
from kube.resources import GPU_DEVICES

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from api.kinds.gpudevice import GPUDevice
    from console.console_data import DeviceDecision
    from kube.client import KubeClient
    from reconciler.runtime.device_store import DeviceStore

FIELD_MANAGER: Final = "gpu-console"
_STATUSES: Final = frozenset(HTTPStatus)
"""A proxy before the API server may answer with others."""


class ViewerClients(Protocol):
    """Clients that have the rights of a viewer."""

    def __call__(self, token: str | None) -> "AbstractAsyncContextManager[KubeClient]":
        """Return a client for the viewer's token; None for a viewer whose rights the process has."""


@final
class ViewerDecisions:
    """Implements `console.console_data.DeviceDecisions`."""

    def __init__(self, devices: "DeviceStore", clients: ViewerClients) -> None:
        self._devices = devices
        self._clients = clients

    async def write(self, decision: "DeviceDecision", token: str | None) -> DecisionAnswer:
        device = self._devices.get(DeviceName(decision.device))
        if device is None:
            raise DecisionRefusedError(
                HTTPStatus.NOT_FOUND, f"there is no device {decision.device}"
            )
        pool = decision.pool
        change = release(device) if pool is None else approval(device, pool)
        if isinstance(change, str):
            text = f"GPUDevice {device.name} is left as it is: {change}"
            raise DecisionRefusedError(HTTPStatus.CONFLICT, text)
        version = _version_of(device)
        if decision.version not in {"", version}:
            text = f"GPUDevice {device.name} is left as it is: it, its pool or its approval has changed since: try again"
            raise DecisionRefusedError(HTTPStatus.CONFLICT, text)
        # By its uid: its resourceVersion moves with each write of its status.
        body = {"metadata": {**change.metadata, "uid": device.metadata.uid}}
        try:
            async with self._clients(token) as client:
                await client.merge_patch(
                    GPU_DEVICES,
                    body,
                    name=device.name,
                    field_manager=FIELD_MANAGER,
                    is_dry=decision.is_dry,
                )
        except KubeError as error:
            raise _refusal(device.name, error) from error
        return DecisionAnswer(
            device=device.name,
            node=device.node,
            version=version,
            patch=msgspec.json.encode(body).decode(),
            text=change.text,
            is_dry=decision.is_dry,
        )


def _version_of(device: "GPUDevice") -> str:
    """Return a digest of what a decision rests on: which device it is, its pool and what was decided before."""
    ref = device.status.pool_ref
    facts = (
        device.metadata.uid,
        device.assignment,
        device.is_ignored,
        ref.name if ref is not None else None,
    )
    return hashlib.sha256(msgspec.json.encode(facts)).hexdigest()[:16]


def _refusal(device: str, error: KubeError) -> DecisionRefusedError:
    """Return the API server's refusal with its status and words, or that it gave no answer."""
    if isinstance(error, ApiError) and error.is_definite and error.status in _STATUSES:
        text = f"the API server refuses to change GPUDevice {device}: {error}"
        return DecisionRefusedError(
            HTTPStatus(error.status), text, retry_after_s=error.retry_after_s
        )
    outcome = "nothing was written" if error.is_definite else "it may have been written"
    text = f"the API server gave no answer about GPUDevice {device}, and {outcome}: {error}"
    return DecisionRefusedError(HTTPStatus.BAD_GATEWAY, text)
