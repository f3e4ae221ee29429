"""Wire format of the extender: bytes to requests, replies to bytes.

The Go structs of `k8s.io/kube-scheduler/extender/v1` have no json tags: keys are Go field names, which Go reads in
any casing. This codec does so only when a key is missing under its Go name, so requests of kube-scheduler pay
nothing for it. An unreadable request is a `MalformedArgs`, never an exception.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import msgspec

from api.foreign.core import PodContainers
from api.meta import Model
from api.names import NodeName, PodUid
from scheduler.ports import PodRef

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

NODE_NAMES_ONLY: Final = (
    "this extender takes node names only: set nodeCacheCapable: true for it in the "
    "KubeSchedulerConfiguration"
)


class _Unread(msgspec.Struct, frozen=True):
    """An object of which only the presence matters; its content is skipped."""


class PodIdentity(Model, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""


class ExtenderPod(Model, frozen=True):
    """The part of a pod that the verbs read; kube-scheduler sends all of it, up to a megabyte, with each call."""

    metadata: PodIdentity = PodIdentity()
    spec: PodContainers = PodContainers()


class _ExtenderArgs(msgspec.Struct, frozen=True, rename="pascal"):
    pod: ExtenderPod | None = None
    nodes: _Unread | None = None
    node_names: list[NodeName] | None = None


class _BindingArgs(msgspec.Struct, frozen=True, rename="pascal"):
    pod_name: str = ""
    pod_namespace: str = ""
    pod_uid: str = msgspec.field(default="", name="PodUID")
    node: str = ""


class MetaPod(msgspec.Struct, frozen=True):
    """A victim, by uid."""

    uid: PodUid = msgspec.field(default=PodUid(""), name="UID")


class MetaVictims(msgspec.Struct, frozen=True):
    """Pods that would be evicted from a node."""

    pods: list[MetaPod] | None = msgspec.field(default=None, name="Pods")
    pdb_violations: int = msgspec.field(default=0, name="NumPDBViolations")


VictimsByNode = dict[NodeName, MetaVictims]


class _PreemptionArgs(msgspec.Struct, frozen=True, rename="pascal"):
    pod: ExtenderPod | None = None
    node_name_to_victims: _Unread | None = None
    node_name_to_meta_victims: VictimsByNode | None = None


class _FilterResult(msgspec.Struct, frozen=True, rename="pascal"):
    """Reply of filter. `NodeNames` is always a list: null would read as "no node fits, no reason"."""

    nodes: None = None
    node_names: msgspec.Raw = msgspec.Raw(b"[]")
    failed_nodes: dict[NodeName, str] = msgspec.field(default_factory=dict)
    failed_and_unresolvable_nodes: dict[NodeName, str] = msgspec.field(default_factory=dict)
    error: str = ""


_ALL_FIT: Final = (
    b'{"Nodes":null,"NodeNames":%b,"FailedNodes":{},"FailedAndUnresolvableNodes":{},"Error":""}'
)


class HostPriority(msgspec.Struct, frozen=True, rename="pascal", gc=False):
    """An item of prioritize's reply, a top-level array.

    A score is an int of 0..10: kube-scheduler clamps nothing, and a float loses the whole reply.
    """

    host: str
    score: int


class _PreemptionResult(msgspec.Struct, frozen=True, rename="pascal"):
    node_name_to_meta_victims: VictimsByNode


class _BindingResult(msgspec.Struct, frozen=True, rename="pascal"):
    error: str


@dataclass(frozen=True, slots=True)
class MalformedArgs:
    """An unreadable or incomplete request."""

    error: str


@dataclass(frozen=True, slots=True)
class CandidatesRequest:
    """filter and prioritize: a pod, and the nodes it may go to."""

    pod: ExtenderPod
    names: list[NodeName]


@dataclass(frozen=True, slots=True)
class PreemptionRequest:
    """preempt: a pod, and its proposed victims by node."""

    pod: ExtenderPod
    victims_by_node: VictimsByNode


@dataclass(frozen=True, slots=True)
class BindRequest:
    """bind: a pod and its node, none of whose fields is empty."""

    pod: PodRef
    node: NodeName


_encoder = msgspec.json.Encoder()

NODE_NAMES_END: Final = b',"NodeNames":%b}'
"""End of a request of kube-scheduler, around the JSON array of names."""
_NODE_NAMES_MARK: Final = b',"NodeNames":['


class _ArgsBeforeNames(msgspec.Struct, frozen=True, rename="pascal"):
    pod: ExtenderPod | None = None
    nodes: _Unread | None = None


_before_names_decoder = msgspec.json.Decoder(_ArgsBeforeNames)
_names_decoder = msgspec.json.Decoder(list[NodeName])


def decode_candidates(body: bytes) -> CandidatesRequest | MalformedArgs:
    args = _extender_shape.read(body)
    if isinstance(args, MalformedArgs):
        return args
    if args.nodes is not None:
        return MalformedArgs(NODE_NAMES_ONLY)
    if args.pod is None:
        return MalformedArgs("ExtenderArgs: Pod is missing")
    if args.node_names is None:
        return MalformedArgs("ExtenderArgs: both NodeNames and Nodes are missing")
    return CandidatesRequest(args.pod, args.node_names)


def decode_names(body: bytes) -> tuple[bytes, list[NodeName]] | None:
    """Return the array at the body's end, raw and decoded; None without one.

    Whether the array is `NodeNames` of the request itself depends on the bytes before it.
    """
    start = body.find(_NODE_NAMES_MARK) + len(_NODE_NAMES_MARK) - 1
    if start < len(_NODE_NAMES_MARK) or not body.endswith(b"]}"):
        return None
    raw = body[start:-1]
    try:
        return raw, _names_decoder.decode(raw)
    except ValueError:
        return None


def decode_pod_before_names(before: bytes) -> ExtenderPod | None:
    """Return the pod of a request that was split before its `,"NodeNames":`.

    None where the part is no JSON object once it is closed, or lacks more than the names.
    """
    try:
        args = _before_names_decoder.decode(before + b"}")
    except (ValueError, RecursionError):
        return None
    return args.pod if args.nodes is None else None


def decode_preemption(body: bytes) -> PreemptionRequest | MalformedArgs:
    args = _preemption_shape.read(body)
    if isinstance(args, MalformedArgs):
        return args
    if args.node_name_to_victims is not None:
        return MalformedArgs(NODE_NAMES_ONLY)
    if args.pod is None:
        return MalformedArgs("ExtenderPreemptionArgs: Pod is missing")
    victims_by_node = args.node_name_to_meta_victims
    if victims_by_node is None:
        return MalformedArgs("ExtenderPreemptionArgs: NodeNameToMetaVictims is missing")
    for node, victims in victims_by_node.items():
        if any(not pod.uid for pod in victims.pods or ()):
            return MalformedArgs(f"ExtenderPreemptionArgs: a victim on node {node} has no UID")
    return PreemptionRequest(args.pod, victims_by_node)


def decode_bind(body: bytes) -> BindRequest | MalformedArgs:
    args = _binding_shape.read(body)
    if isinstance(args, MalformedArgs):
        return args
    given = {
        "PodNamespace": args.pod_namespace,
        "PodName": args.pod_name,
        "PodUID": args.pod_uid,
        "Node": args.node,
    }
    missing = [key for key, value in given.items() if not value]
    if missing:
        return MalformedArgs(f"ExtenderBindingArgs: {', '.join(missing)} missing or empty")
    return BindRequest(
        PodRef(args.pod_namespace, args.pod_name, PodUid(args.pod_uid)), NodeName(args.node)
    )


def encode_filter_error(error: str) -> bytes:
    return _encoder.encode(_FilterResult(error=error))


def encode_sorted(
    raw_names: bytes, failed: dict[NodeName, str], unresolvable: dict[NodeName, str]
) -> bytes:
    """Return ExtenderFilterResult; `raw_names` is a JSON array."""
    return _encoder.encode(
        _FilterResult(
            node_names=msgspec.Raw(raw_names),
            failed_nodes=failed,
            failed_and_unresolvable_nodes=unresolvable,
        )
    )


def encode_names(names: list[NodeName]) -> bytes:
    return _encoder.encode(names)


def encode_all_fit(raw_names: bytes) -> bytes:
    """Return ExtenderFilterResult in which every name of the request fits, as the request wrote them."""
    return _ALL_FIT % raw_names


def encode_priority(host: str, score: int) -> bytes:
    """Return one item of HostPriorityList."""
    return _encoder.encode(HostPriority(host, score))


def encode_priorities(priorities: list[HostPriority]) -> bytes:
    return _encoder.encode(priorities)


def join_priorities(items: "Iterable[bytes]") -> bytes:
    """Return HostPriorityList of encoded items."""
    return b"[%b]" % b",".join(items)


def encode_preemption(victims_by_node: VictimsByNode) -> bytes:
    """Return ExtenderPreemptionResult, always in its Meta form."""
    return _encoder.encode(_PreemptionResult(victims_by_node))


def encode_bind(error: str) -> bytes:
    return _encoder.encode(_BindingResult(error))


def _in_go_casing(value: Any, model: type[msgspec.Struct]) -> Any:  # noqa: ANN401  # JSON
    """Give an object's own keys the model's casing; nested keys stay."""
    if not isinstance(value, dict):
        return value
    keys = {field.encode_name.lower(): field.encode_name for field in msgspec.structs.fields(model)}
    return {keys.get(key.lower(), key): item for key, item in value.items()}


def _preemption_in_go_casing(value: Any, model: type[msgspec.Struct]) -> object:  # noqa: ANN401  # JSON
    args = _in_go_casing(value, model)
    if isinstance(args, dict) and isinstance(args.get("NodeNameToMetaVictims"), dict):
        by_node = args["NodeNameToMetaVictims"]
        args["NodeNameToMetaVictims"] = {
            node: _victims_in_go_casing(victims) for node, victims in by_node.items()
        }
    return args


def _victims_in_go_casing(value: Any) -> object:  # noqa: ANN401  # JSON
    victims = _in_go_casing(value, MetaVictims)
    if isinstance(victims, dict) and isinstance(victims.get("Pods"), list):
        victims["Pods"] = [_in_go_casing(pod, MetaPod) for pod in victims["Pods"]]
    return victims


def _is_complete_preemption(args: _PreemptionArgs) -> bool:
    if args.pod is None:
        return False
    if args.node_name_to_meta_victims is None:
        return args.node_name_to_victims is not None
    return all(
        victims.pods is not None and all(pod.uid for pod in victims.pods)
        for victims in args.node_name_to_meta_victims.values()
    )


Args = TypeVar("Args", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True)
class _Shape(Generic[Args]):
    """Decoder of one kind of request."""

    model: type[Args]
    decoder: "msgspec.json.Decoder[Args]"
    is_complete: "Callable[[Args], bool]"
    """Whether every field was found under its Go name."""
    in_go_casing: "Callable[[Any, type[msgspec.Struct]], object]" = _in_go_casing

    def read(self, body: bytes) -> Args | MalformedArgs:
        try:
            args = self.decoder.decode(body)
            if self.is_complete(args):
                return args
            renamed = self.in_go_casing(msgspec.json.decode(body), self.model)
            return msgspec.convert(renamed, self.model)
        except RecursionError:
            return MalformedArgs("the request is nested too deeply")
        except ValueError as error:  # msgspec's errors, and text that is not UTF-8
            return MalformedArgs(f"the request cannot be read: {error}")


_extender_shape = _Shape(
    _ExtenderArgs,
    msgspec.json.Decoder(_ExtenderArgs),
    lambda args: not (args.pod is None or (args.node_names is None and args.nodes is None)),
)
_binding_shape = _Shape(
    _BindingArgs,
    msgspec.json.Decoder(_BindingArgs),
    lambda args: bool(args.pod_name and args.pod_namespace and args.pod_uid and args.node),
)
_preemption_shape = _Shape(
    _PreemptionArgs,
    msgspec.json.Decoder(_PreemptionArgs),
    _is_complete_preemption,
    _preemption_in_go_casing,
)
