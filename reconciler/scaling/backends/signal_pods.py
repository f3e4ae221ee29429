"""Writes of signal pods: each may be repeated, and none touches a pod that is not a signal of the request."""

from typing import TYPE_CHECKING, Final, final

import structlog

from api.foreign.core import Pod
from api.meta import PartialObjectMetadata
from api.names import COMPONENT_LABEL, SCALE_REQUEST_LABEL, SCALE_SIGNAL, SCALING_POOL_LABEL
from kube.errors import AlreadyExists, Conflict, Invalid, NotFound
from kube.resources import PODS
from manifests.install.rbac import PolicyRule
from manifests.scaling.balloon_pod import build_balloon
from manifests.scaling.signal_pod import build_signal, signal_name, unschedulable_patch
from reconciler.scaling.backends.node_autoscaler import ForeignObjectError

if TYPE_CHECKING:
    from collections.abc import Callable

    from api.clock import Instant
    from autoscaling.scaling_model import NodeRequest, RequestId, ScalingParameters, SignalFacts
    from kube.client import KubeClient

NAMESPACED_RBAC: Final = (
    PolicyRule(resources=("pods",), verbs=("create", "delete", "get")),
    PolicyRule(resources=("pods/status",), verbs=("patch",)),
)

_log = structlog.get_logger()


@final
class SignalPods:
    """Creates, marks and deletes the signal pods in the control plane's namespace."""

    def __init__(
        self, client: "KubeClient", *, namespace: str, image: str, now: "Callable[[], Instant]"
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._image = image
        self._now = now

    async def create(self, request: "NodeRequest", parameters: "ScalingParameters") -> bool:
        """Create the signal of a request and write its condition; return whether it is new.

        Raises:
            ForeignObjectError: another pod has its name.
            KubeError: it is not known whether it exists.
        """
        body = build_signal(request, parameters, namespace=self._namespace, image=self._image)
        uid, is_new = await self._created(request, body)
        await self._mark(request.id, uid)
        return is_new

    async def create_balloon(self, request: "NodeRequest", parameters: "ScalingParameters") -> bool:
        """Create the balloon of a request, which kube-scheduler marks; return whether it is new.

        Raises:
            ForeignObjectError: another pod has its name.
            KubeError: it is not known whether it exists.
        """
        body = build_balloon(request, parameters, namespace=self._namespace, image=self._image)
        _, is_new = await self._created(request, body)
        return is_new

    async def _created(self, request: "NodeRequest", body: object) -> tuple[str, bool]:
        """Create the pod of a request; return its uid, and whether it is new."""
        try:
            written = await self._client.create(PODS, body)
        except AlreadyExists:
            return await self._existing(request), False
        _log.info(
            "node requested",
            pool=request.pool,
            request=request.id,
            shape=request.shape.name,
            pods=len(request.pods),
        )
        return written.decode(PartialObjectMetadata).metadata.uid, True

    async def mark(self, signal: "SignalFacts") -> None:
        """Write the condition of a signal again: it was never written, or another client replaced it.

        Raises:
            KubeError: it is not known whether it was written.
        """
        await self._mark(signal.request, signal.uid)

    async def delete(self, signal: "SignalFacts") -> None:
        """Delete a signal; one that is gone, or another pod of its name, is left.

        Raises:
            KubeError: it is not known whether it was deleted.
        """
        try:
            await self._client.delete(
                PODS, signal.name, namespace=self._namespace, uid=signal.uid, grace_period_s=0
            )
        except (NotFound, Conflict):
            return

    async def _mark(self, request: "RequestId", uid: str) -> None:
        patch = unschedulable_patch(request, uid=uid, now=self._now().utc)
        try:
            await self._client.json_patch(
                PODS,
                patch,
                name=signal_name(request),
                namespace=self._namespace,
                subresource="status",
            )
        except (NotFound, Invalid):
            return  # it is gone, or another pod has its name by now; the watch is about to show it

    async def _existing(self, request: "NodeRequest") -> str:
        """Return the uid of the signal that was created before."""
        name = signal_name(request.id)
        pod = await self._client.get(PODS, Pod, name, namespace=self._namespace)
        labels = pod.metadata.labels or {}
        desired = {
            COMPONENT_LABEL: SCALE_SIGNAL,
            SCALING_POOL_LABEL: request.pool,
            SCALE_REQUEST_LABEL: request.id,
        }
        if not desired.items() <= labels.items():
            raise ForeignObjectError(
                f"pod {self._namespace}/{name} is no signal of pool {request.pool}, and has its name:"
                f" kubectl delete pod -n {self._namespace} {name}"
            )
        if pod.metadata.deletion_timestamp is not None:
            raise ForeignObjectError(
                f"pod {self._namespace}/{name} is being deleted and has finalizers"
                f" ({', '.join(pod.metadata.finalizers or ())}): remove them"
            )
        return pod.metadata.uid
