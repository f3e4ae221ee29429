"""The webhooks of pods, workloads, pools, devices and Nodes: bytes in, an `AdmissionResult` out. None of them raises for its input."""

from typing import TYPE_CHECKING, Final

from admission import gpudevices as devices
from admission import gpupools as pools
from admission import nodes
from admission.decision import Admitted, Denied
from admission.pods.mutate import mutate
from admission.pods.request import POD_KIND, PodRequest, pod_decoder
from admission.pods.validate import validate
from admission.review import (
    Malformed,
    Operation,
    decode_review,
    encode_decision,
    encode_malformed,
)
from admission.workloads import mutate as workloads
from api.text import truncate

if TYPE_CHECKING:
    from collections.abc import Callable

    from admission.context import AdmissionContext
    from admission.decision import Decision
    from admission.review import AdmissionRequest, AdmissionResult, GroupVersionKind

_UNTOUCHED: Final = Admitted()


def mutate_pod(body: bytes, context: "AdmissionContext") -> "AdmissionResult":
    """Answer the mutating webhook for pods. A reservation is in the allocation state when this returns."""
    return _answer(body, POD_KIND, lambda request: _on_create(request, context, mutate))


def validate_pod(body: bytes, context: "AdmissionContext") -> "AdmissionResult":
    """Answer the validating webhook for pods; gives the reservation the pod's final name and uid."""
    return _answer(body, POD_KIND, lambda request: _on_create(request, context, validate))


def mutate_workload(body: bytes, context: "AdmissionContext") -> "AdmissionResult":
    """Answer the mutating webhook for kinds with pod templates."""
    request = decode_review(body)
    if isinstance(request, Malformed):
        return encode_malformed(request)
    kind = context.workloads.kinds.get((request.kind.group, request.kind.kind))
    if kind is None:
        text = f"the review is about a {request.kind}, which setting workloads.kinds does not name"
        return encode_malformed(Malformed(text))
    return encode_decision(request.uid, workloads.mutate(request, kind, context), facts_of(request))


def validate_gpupool(body: bytes, context: "AdmissionContext") -> "AdmissionResult":
    return _answer(body, pools.KIND, lambda request: pools.validate(request, context))


def mutate_gpudevice(body: bytes) -> "AdmissionResult":
    return _answer(body, devices.KIND, devices.mutate)


def validate_gpudevice(body: bytes, context: "AdmissionContext") -> "AdmissionResult":
    return _answer(body, devices.KIND, lambda request: devices.validate(request, context))


def validate_node(body: bytes, context: "AdmissionContext") -> "AdmissionResult":
    return _answer(body, nodes.KIND, lambda request: nodes.validate(request, context))


def _on_create(
    request: "AdmissionRequest",
    context: "AdmissionContext",
    decide: "Callable[[PodRequest, AdmissionContext], Decision]",
) -> "Decision":
    if request.operation is not Operation.CREATE:
        return _UNTOUCHED
    pod = pod_decoder.decode(request.object_)
    return pod if isinstance(pod, Denied) else decide(PodRequest(request, pod), context)


def _answer(
    body: bytes, kind: "GroupVersionKind", decide: "Callable[[AdmissionRequest], Decision]"
) -> "AdmissionResult":
    request = decode_review(body, kind)
    if isinstance(request, Malformed):
        return encode_malformed(request)
    return encode_decision(request.uid, decide(request), facts_of(request))


def facts_of(request: "AdmissionRequest") -> dict[str, object]:
    """Return what the log line of a review says of it."""
    facts: dict[str, object] = {
        "object": truncate(
            f"{request.namespace}/{request.name}" if request.namespace else request.name
        ),
        "operation": request.operation,
        "user": truncate(request.user_info.username),
    }
    if request.dry_run:
        facts["dry_run"] = True
    return facts
