"""The scheduler's binder over the API server: one POST, and a read where its end is not known."""

import asyncio
from typing import TYPE_CHECKING, Final, final

from api.annotations import decode_devices
from api.core import Pod
from api.names import DEVICES_ANNOTATION, NodeName
from kube.errors import Conflict, Forbidden, Invalid, KubeError, NotFound
from kube.resources import PODS
from manifests.rbac import Rule
from scheduler.ports import (
    Refused,
    SeenBound,
    SeenGone,
    SeenPending,
    Unknown,
    Unseen,
    Written,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kube.client import KubeClient
    from scheduler.ports import BindOutcome, PodBinding, PodRef, PodSighting


RBAC: Final = (
    Rule(resources=("pods/binding",), verbs=("create",)),
    Rule(resources=("pods",), verbs=("get",)),
)


@final
class KubeBinder:
    """Binds pods by the Binding subresource, with the devices as annotation and the UID as precondition.

    The API server merges the Binding's annotations into the pod in the same write as `nodeName`.
    """

    def __init__(
        self,
        client: "KubeClient",
        timeout_s: float,
        *,
        on_forbidden: "Callable[[], None]" = lambda: None,
    ) -> None:
        """Take the client; `on_forbidden` is called when a policy may have refused a Binding."""
        self._client = client
        self._timeout_s = timeout_s
        self._on_forbidden = on_forbidden

    async def bind(self, binding: "PodBinding") -> "BindOutcome":
        """Send one Binding. A refusal is definite; whatever leaves open what happened is Unknown."""
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {
                "name": binding.name,
                "namespace": binding.namespace,
                "uid": binding.uid,
                "annotations": binding.annotations,
            },
            "target": {"apiVersion": "v1", "kind": "Node", "name": binding.node},
        }
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._client.create(
                    PODS,
                    body,
                    namespace=binding.namespace,
                    name=binding.name,
                    subresource="binding",
                )
        except TimeoutError:
            return Unknown(f"no answer within {self._timeout_s:g} s")
        except KubeError as error:
            # The fence answers 403 to another term, and 422 where there is none.
            if isinstance(error, Forbidden | Invalid):
                self._on_forbidden()
            if error.is_definite:
                return Refused(str(error), is_conflict=isinstance(error, Conflict))
            return Unknown(str(error))
        return Written()

    async def look(self, pod: "PodRef") -> "PodSighting":
        """Read the pod once."""
        try:
            async with asyncio.timeout(self._timeout_s):
                seen = await self._client.get(PODS, Pod, pod.name, namespace=pod.namespace)
        except NotFound:
            return SeenGone()
        except TimeoutError:
            return Unseen(f"no answer within {self._timeout_s:g} s")
        except KubeError as error:
            return Unseen(str(error))
        if seen.metadata.uid != pod.uid:
            return SeenGone()
        if not seen.spec.node_name:
            return SeenPending()
        return SeenBound(
            NodeName(seen.spec.node_name),
            decode_devices(seen.metadata.annotation(DEVICES_ANNOTATION)),
        )
