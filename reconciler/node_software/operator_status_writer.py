"""Status of ClusterPolicies and NVIDIADrivers, written where it differs, and their finalizers."""

from typing import TYPE_CHECKING, Any, TypeAlias, final

from api.names import POLICY_FINALIZER
from kube.errors import NotFound
from operands.nvidia.policy_status import operator_conditions
from reconciler.runtime.expectations import Expectations
from reconciler.runtime.status import StatusWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from enum import Enum

    from api.clock import Instant
    from api.kinds.nvidia.clusterpolicy import ClusterPolicy
    from api.kinds.nvidia.nvidiadriver import NVIDIADriver
    from api.kinds.nvidia.operator_status import StateStatus
    from kube.client import KubeClient
    from kube.resources import Resource
    from operands.nvidia.policy_status import OverallReadiness

    OperatorObject: TypeAlias = ClusterPolicy | NVIDIADriver

Json = dict[str, Any]


@final
class OperatorStatusWriter:
    """Writes the objects of one kind as one field manager; `status.upgrade` is another controller's."""

    def __init__(
        self,
        client: "KubeClient",
        resource: "Resource",
        *,
        field_manager: str,
        namespace: str,
        now: "Callable[[], Instant]",
    ) -> None:
        self._client = client
        self._resource = resource
        self._namespace = namespace
        self._now = now
        self._writer = StatusWriter(client, resource, field_manager)
        self._expected: Expectations[str, Json] = Expectations(now)

    def current_states(self, item: "OperatorObject") -> "Sequence[StateStatus]":
        """Return the states at the API server, with a write that the watch has not delivered yet."""
        current = self._expected.unseen(item.metadata.name, item.metadata) or _current(item)
        states: Sequence[StateStatus] = current["states"]
        return states

    async def write(
        self,
        item: "OperatorObject",
        *,
        state: "Enum",
        overall: "OverallReadiness",
        states: "Sequence[StateStatus]",
    ) -> None:
        """Write the status where it differs.

        Raises:
            Conflict: the object was deleted and created again.
            KubeError: it is not known whether the status was written.
        """
        meta = item.metadata
        before = self._expected.unseen(meta.name, meta) or _current(item)
        status = {
            "state": state,
            "namespace": self._namespace,
            "conditions": operator_conditions(
                overall,
                current=before["conditions"],
                generation=meta.generation,
                now=self._now().utc,
            ),
            "states": list(states),
        }
        if status == before:
            return
        content = {key: value for key, value in status.items() if value}
        written = await self._writer.apply(meta.name, content, uid=meta.uid)
        if written is not None:
            self._expected.expect(meta.name, status, written)

    @staticmethod
    def has_finalizer(item: "OperatorObject") -> bool:
        return POLICY_FINALIZER in (item.metadata.finalizers or ())

    async def add_finalizer(self, item: "OperatorObject") -> None:
        """Add our finalizer if it is not there.

        Raises:
            Conflict: the object changed.
            KubeError: it is not known whether it was written.
        """
        if not self.has_finalizer(item):
            await self._write_finalizers(
                item, [*(item.metadata.finalizers or ()), POLICY_FINALIZER]
            )

    async def remove_finalizer(self, item: "OperatorObject") -> None:
        """Let the object go.

        Raises:
            Conflict: the object changed.
            KubeError: it is not known whether it was written.
        """
        kept = [
            finalizer
            for finalizer in item.metadata.finalizers or ()
            if finalizer != POLICY_FINALIZER
        ]
        await self._write_finalizers(item, kept)

    async def _write_finalizers(self, item: "OperatorObject", finalizers: list[str]) -> None:
        """Write the list whole, and only over the list that was read."""
        meta = item.metadata
        body = {
            "uid": meta.uid,
            "resourceVersion": meta.resource_version,
            "finalizers": finalizers or None,
        }
        try:
            await self._client.merge_patch(self._resource, {"metadata": body}, name=meta.name)
        except NotFound:
            return


def _current(item: "OperatorObject") -> Json:
    status = item.status
    return {
        "state": status.state,
        "namespace": status.namespace,
        "conditions": status.conditions or [],
        "states": status.states or [],
    }
