"""Binder of the extender: one POST of a Binding, and a read of the pod where the outcome is unknown."""

import asyncio
from typing import TYPE_CHECKING, Final, final

from api.annotations import decode_devices
from api.foreign.core import Pod
from api.names import DEVICES_ANNOTATION, FENCED, FENCED_LABEL, NodeName
from kube.errors import Conflict, Forbidden, Invalid, KubeError, NotFound
from kube.resources import PODS
from manifests.install.rbac import PolicyRule
from scheduler import ports

if TYPE_CHECKING:
    from collections.abc import Callable

    from kube.client import KubeClient


BIND_TIMEOUT_S: Final = 4.0
"""Seconds of a write together with the read that may follow it: below kube-scheduler's httpTimeout of 5 s, so that it
always gets a response."""
RBAC: Final = (
    PolicyRule(resources=("pods/binding",), verbs=("create",)),
    PolicyRule(resources=("pods",), verbs=("get",)),
)


@final
class KubeBinder:
    """Binds pods by the Binding subresource, with the devices as annotation and the UID as precondition.

    The API server merges the Binding's annotations into the pod in the same write as `nodeName`.
    """

    def __init__(
        self,
        client: "KubeClient",
        timeout_s: float = BIND_TIMEOUT_S,
        *,
        on_forbidden: "Callable[[], None]" = lambda: None,
    ) -> None:
        """Prepare.

        Args:
            client: to write with.
            timeout_s: of a write together with the read that may follow it.
            on_forbidden: called when a policy may have refused a Binding.
        """
        self._client = client
        self._timeout_s = timeout_s
        self._on_forbidden = on_forbidden

    async def bind(self, binding: "ports.PodBinding") -> "ports.BindOutcome":
        """Send one Binding. A refusal is definite; without a definite response the outcome is Unknown."""
        fenced = {FENCED_LABEL: FENCED} if binding.is_fenced else {}
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {
                "name": binding.name,
                "namespace": binding.namespace,
                "uid": binding.uid,
                "annotations": binding.annotations,
                "labels": {**binding.labels, **fenced},
            },
            "target": {"apiVersion": "v1", "kind": "Node", "name": binding.node},
        }
        ends_at = asyncio.get_running_loop().time() + self._timeout_s
        try:
            async with asyncio.timeout_at(ends_at):
                await self._client.create(
                    PODS,
                    body,
                    namespace=binding.namespace,
                    name=binding.name,
                    subresource="binding",
                )
        except TimeoutError:
            return ports.BindUnknown(f"no answer within {self._timeout_s:g} s")
        except KubeError as error:
            # The fence answers 403 to another term, and 422 where there is none.
            if isinstance(error, Forbidden | Invalid):
                self._on_forbidden()
            if error.is_definite:
                left_s = ends_at - asyncio.get_running_loop().time()
                return ports.BindRefused(
                    str(error), is_conflict=isinstance(error, Conflict), left_s=left_s
                )
            return ports.BindUnknown(str(error))
        return ports.BindWritten()

    async def read(
        self, pod: "ports.PodRef", *, within_s: float | None = None
    ) -> "ports.PodReading":
        """Read the pod once."""
        limit_s = self._timeout_s if within_s is None else within_s
        try:
            async with asyncio.timeout(limit_s):
                seen = await self._client.get(PODS, Pod, pod.name, namespace=pod.namespace)
        except NotFound:
            return ports.MissingReading()
        except TimeoutError:
            return ports.FailedReading(f"no answer within {limit_s:.3g} s")
        except KubeError as error:
            return ports.FailedReading(str(error))
        if seen.metadata.uid != pod.uid:
            return ports.MissingReading()
        if not seen.spec.node_name:
            return ports.PendingReading()
        return ports.BoundReading(
            NodeName(seen.spec.node_name),
            decode_devices(seen.metadata.annotation(DEVICES_ANNOTATION)),
        )
