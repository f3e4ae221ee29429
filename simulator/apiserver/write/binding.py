"""Binding a pod to a node: `pods/binding` and the older `bindings`.

Node name, annotations, labels and the PodScheduled condition are written in one step, under the
preconditions of the Binding. As on the real server, the node need not exist.
"""

from typing import TYPE_CHECKING, Any, final

import msgspec

from simulator.apiserver import errors, metadata
from simulator.apiserver.resource_types import BINDINGS, PODS
from simulator.apiserver.webhooks.chain import AdmissionAttributes
from simulator.apiserver.write.object_writer import WriteResult

if TYPE_CHECKING:
    from api.clock import Clock
    from simulator.apiserver.store.objects import ObjectStore, Stored
    from simulator.apiserver.webhooks.chain import AdmissionChain
    from simulator.apiserver.write.request_body import Caller, RequestTarget

Json = dict[str, Any]

_BOUND = msgspec.json.encode(
    {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
)


@final
class PodBinder:
    def __init__(self, store: "ObjectStore", admission: "AdmissionChain", clock: "Clock") -> None:
        self._store = store
        self._admission = admission
        self._clock = clock

    async def bind(self, target: "RequestTarget", caller: "Caller", binding: Json) -> WriteResult:
        """Bind the pod that a Binding names.

        Raises:
            StatusError: 400, 404, 409, or what admission says.
        """
        name = (binding.get("metadata") or {}).get("name", "")
        if target.resource is PODS and name != target.name:
            raise errors.bad_request("name in URL does not match name in Binding object")
        is_legacy = target.resource is BINDINGS
        attributes = AdmissionAttributes(
            resource=target.resource,
            operation="CREATE",
            namespace=target.namespace,
            name=name,
            subresource="" if is_legacy else "binding",
            user=caller.user,
            dry_run=caller.dry_run,
            kind=(BINDINGS.group, BINDINGS.version, BINDINGS.kind),
            warnings=caller.warnings,
        )
        binding = {"kind": "Binding", "apiVersion": "v1", **binding}
        binding = await self._admission.mutate(attributes, binding)
        if not (binding.get("target") or {}).get("name"):
            raise errors.failed_without_reason("target.name: Required value")
        await self._admission.validate(attributes, binding)
        collection = self._store.collection(PODS)
        stored = collection.get(target.namespace, name)
        if stored is None:
            raise errors.not_found(PODS, name)
        if not is_legacy:
            _check_preconditions(stored, binding)
        _check_state(stored)
        body = self._assigned(stored, binding)
        if not caller.dry_run:
            collection.replace(PODS, stored, body, ownership=stored.ownership)
        return WriteResult(status=201, encoded=_BOUND)

    def _assigned(self, stored: "Stored", binding: Json) -> Json:
        body = stored.copy()
        body["spec"]["nodeName"] = binding["target"]["name"]
        for key in ("annotations", "labels"):
            if added := binding["metadata"].get(key):
                body["metadata"][key] = {**(body["metadata"].get(key) or {}), **added}
        conditions = body["status"].get("conditions") or []
        scheduled = {
            "type": "PodScheduled",
            "status": "True",
            "lastProbeTime": None,
            "lastTransitionTime": metadata.timestamp(self._clock.utc_now()),
        }
        body["status"]["conditions"] = [
            *(condition for condition in conditions if condition.get("type") != "PodScheduled"),
            scheduled,
        ]
        return body


def _check_preconditions(stored: "Stored", binding: Json) -> None:
    """Refuse a Binding with another uid or version; the older path checks neither."""
    found, name = stored.body["metadata"], stored.key[1]
    requested = binding["metadata"]
    if (uid := requested.get("uid")) and uid != found["uid"]:
        raise errors.other_uid(PODS, name, requested=uid, actual=found["uid"])
    version = requested.get("resourceVersion")
    if version and version != str(stored.version):
        raise errors.conflict(
            "pods",
            name,
            "StorageError: invalid object, Code: 4, AdditionalErrorMsg: Precondition failed: "
            f"ResourceVersion in precondition: {version}, ResourceVersion in object meta: "
            f"{stored.version}",
        )


def _check_state(stored: "Stored") -> None:
    """Refuse a binding that the pod's state forbids."""
    name = stored.key[1]
    if "deletionTimestamp" in stored.body["metadata"]:
        raise _refusal(name, f"pod {name} is being deleted, cannot be assigned to a host")
    if node := stored.body["spec"].get("nodeName"):
        raise _refusal(name, f'pod {name} is already assigned to node "{node}"')
    if stored.body["spec"].get("schedulingGates"):
        raise _refusal(name, f"pod {name} has non-empty .spec.schedulingGates")


def _refusal(name: str, cause: str) -> errors.StatusError:
    return errors.conflict("pods/binding", name, cause)
