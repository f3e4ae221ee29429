"""`status.upgrade` of ClusterPolicies and NVIDIADrivers, as a field manager of its own: other fields have another writer."""

from typing import TYPE_CHECKING, Final, final

import msgspec
import structlog

from api.text import truncate
from kube.errors import Conflict, KubeError
from kube.resources import CLUSTER_POLICIES, NVIDIA_DRIVERS
from manifests.install.rbac import PolicyRule
from reconciler.runtime.status import StatusWriter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from api.kinds.nvidia.operator_status import NodeUpgradeStatus
    from api.meta import ObjectMeta
    from kube.client import KubeClient
    from reconciler.driver_upgrade.reports import UpgradeReports
    from reconciler.sinks.operator_objects import OperatorObjects

FIELD_MANAGER: Final = "gpu-control-plane/driver-upgrade-status"
RBAC: Final = (
    PolicyRule(
        group=CLUSTER_POLICIES.group,
        resources=(f"{CLUSTER_POLICIES.plural}/status", f"{NVIDIA_DRIVERS.plural}/status"),
        verbs=("patch",),
    ),
)
_MANY_ENTRIES: Final = 500
_SHORT_MESSAGE: Final = 100
"""Characters of a message where there are many: 5,000 entries are to fit an object."""

_log = structlog.get_logger()


@final
class UpgradeStatus:
    """Writes the entries of each object where they differ."""

    def __init__(self, client: "KubeClient") -> None:
        self._policies = StatusWriter(client, CLUSTER_POLICIES, FIELD_MANAGER)
        self._drivers = StatusWriter(client, NVIDIA_DRIVERS, FIELD_MANAGER)
        self._written: dict[str, list[NodeUpgradeStatus]] = {}
        # UID of an object -> what we wrote last

    async def write(self, objects: "OperatorObjects", reports: "UpgradeReports") -> None:
        """Write what the last pass found; an object that cannot be written is tried again after the next one.

        A status without a state is invalid, so that the other writer is the first.
        """
        active = objects.active
        for policy in list(objects.policies.values()):
            entries = reports.entries() if policy is active else ()
            if policy.status.state is not None:
                await self._apply(self._policies, policy.metadata, policy.status.upgrade, entries)
        for name, driver in list(objects.drivers.items()):
            entries = reports.entries(name)
            if driver.status.state is not None:
                await self._apply(self._drivers, driver.metadata, driver.status.upgrade, entries)

    async def _apply(  # noqa: PLR0917  # an object, and both of its states
        self,
        writer: StatusWriter,
        meta: "ObjectMeta",
        current: "Sequence[NodeUpgradeStatus] | None",
        entries: "Sequence[NodeUpgradeStatus]",
    ) -> None:
        desired = _fitting(entries)
        if desired == self._written.get(meta.uid, list(current or ())):
            return
        try:
            await writer.apply(meta.name, {"upgrade": desired} if desired else {}, uid=meta.uid)
        except Conflict:
            return
        except KubeError as error:
            _log.warning("status of upgrades not written", object=meta.name, error=str(error))
            return
        self._written[meta.uid] = desired


def _fitting(entries: "Sequence[NodeUpgradeStatus]") -> "list[NodeUpgradeStatus]":
    if len(entries) <= _MANY_ENTRIES:
        return list(entries)
    return [
        msgspec.structs.replace(entry, message=truncate(entry.message, _SHORT_MESSAGE))
        for entry in entries
    ]
