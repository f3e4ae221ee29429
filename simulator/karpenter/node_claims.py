"""The life of a NodeClaim: created, launched, registered, initialized, terminated; and the time-outs of Karpenter.

Each function returns what is to be written now; the next look comes when that is seen.
"""

import datetime as dt
import hashlib
import json
from typing import TYPE_CHECKING, Final

from api.foreign.karpenter import (
    CAPACITY_TYPE_LABEL,
    DISRUPTED_TAINT,
    INITIALIZED,
    INITIALIZED_LABEL,
    LAUNCHED,
    NODE_POOL_LABEL,
    REGISTERED,
    REGISTERED_LABEL,
    UNREGISTERED_TAINT,
)
from api.status_conditions import format_time
from api.well_known_labels import HOSTNAME_LABEL, INSTANCE_TYPE_LABEL
from kube.resources import NODE_CLAIMS, NODE_POOLS, NODES
from simulator.karpenter.karpenter_writes import (
    AWAITING,
    Report,
    Write,
    delete_claim,
    delete_pod,
    patch_claim,
    patch_node,
    with_conditions,
)
from simulator.karpenter.label_values import LabelRequirements
from simulator.karpenter.observed_cluster import TERMINATION_FINALIZER, SeenClaim, SeenNode

if TYPE_CHECKING:
    from simulator.karpenter.instance_types import InstanceType, Offering
    from simulator.karpenter.karpenter_writes import Action
    from simulator.karpenter.observed_cluster import Look, Memory, SeenNodePool
    from simulator.karpenter.provisioning import NewClaim

HASH_ANNOTATION: Final = "karpenter.sh/nodepool-hash"
PRICE_LABEL: Final = "eks-node-viewer/instance-price"
PROVIDER: Final = "fake://"
LAST_POD_EVENT_EVERY_S: Final = 10.0
_EPHEMERAL: Final = (
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    "node.cloudprovider.kubernetes.io/uninitialized",
)


def hash_of(node_pool: "SeenNodePool") -> str:
    """Return the hash of what of a NodePool's template makes its nodes drift when it changes."""
    spec = {key: item for key, item in node_pool.node_spec.items() if key != "requirements"}
    content = json.dumps([node_pool.spec.template.get("metadata"), spec], sort_keys=True)
    return str(int(hashlib.sha256(content.encode()).hexdigest()[:15], 16))


def create(new: "NewClaim", memory: "Memory") -> Write:
    """Return the creation of a NodeClaim; several pods that share it share its label values, too."""
    memory.created += 1
    pool = new.node_pool
    seed = f"{pool.name}/{memory.created}/{new.pods[0].metadata.uid if new.pods else ''}"
    digest = hashlib.sha256(seed.encode()).hexdigest()
    name = f"{pool.name}-{digest[:5]}"
    template = pool.spec.template.get("metadata") or {}
    labels = dict(new.requirements.custom_labels(str(int(digest[:12], 16))))
    in_types = {"key": INSTANCE_TYPE_LABEL, "operator": "In", "values": [t.name for t in new.types]}
    others = [
        expression
        for expression in new.requirements.expressions()
        if expression["key"] != INSTANCE_TYPE_LABEL
    ]
    if CAPACITY_TYPE_LABEL not in {other["key"] for other in others}:
        offered = {o.capacity_type for type_ in new.types for o in type_.offerings}
        others.append({"key": CAPACITY_TYPE_LABEL, "operator": "In", "values": sorted(offered)})
    owner = {
        "apiVersion": NODE_POOLS.api_version,
        "kind": NODE_POOLS.kind,
        "name": pool.name,
        "uid": pool.metadata.uid,
        "blockOwnerDeletion": True,
    }
    spec = {key: item for key, item in pool.node_spec.items() if key != "requirements"}
    requests = {key: f"{amount}m" for key, amount in new.requests.items()}
    body = {
        "apiVersion": NODE_CLAIMS.api_version,
        "kind": NODE_CLAIMS.kind,
        "metadata": {
            "name": name,
            "labels": {**(template.get("labels") or {}), **labels, NODE_POOL_LABEL: pool.name},
            "annotations": {**(template.get("annotations") or {}), HASH_ANNOTATION: hash_of(pool)},
            "ownerReferences": [owner],
            "finalizers": [TERMINATION_FINALIZER],
        },
        "spec": {**spec, "requirements": [*others, in_types], "resources": {"requests": requests}},
    }
    return Write(verb="create", resource=NODE_CLAIMS, name=name, body=body)


def advance(look: "Look", claim: SeenClaim) -> "list[Action]":
    """Return what is next for one NodeClaim."""
    node = look.sight.node_of(claim)
    if claim.is_going:
        return _terminate(look, claim, node)
    if claim.node_pool not in look.sight.node_pools:
        return [delete_claim(claim)]  # the garbage collector's work
    if claim.condition(LAUNCHED) is None:
        return _begin(look, claim)
    if not claim.is_launched:
        return _launch(look, claim)
    if not claim.is_registered:
        return _register(look, claim, node)
    if node is None or node.metadata.deletion_timestamp is not None:
        return [delete_claim(claim)]  # its instance is gone
    return _initialize(look, claim, node) + _note_pods(look, claim, node)


def _begin(look: "Look", claim: SeenClaim) -> "list[Action]":
    kinds = (LAUNCHED, REGISTERED, INITIALIZED, "Ready")
    awaited = [(kind, "Unknown", AWAITING, "object is awaiting reconciliation") for kind in kinds]
    conditions = with_conditions(claim.status.conditions, look.now, *awaited)
    return [patch_claim(claim, {"status": {"conditions": conditions}}, "status")]


def _launch(look: "Look", claim: SeenClaim) -> "list[Action]":
    memory, now, faults = look.memory, look.now, look.faults
    if look.has_passed(claim.since(LAUNCHED), look.times.launch_timeout_s):
        return [delete_claim(claim)]
    if claim.node_pool in faults.never_launching:
        return []
    begun = memory.launches.setdefault(claim.metadata.uid, now)
    if not look.has_passed(begun, look.times.launch_s):
        return []
    requirements = LabelRequirements.of(claim.spec.get("requirements") or ())
    labels = claim.metadata.labels or {}
    found = [
        (offering.price_milli, type_.name, type_, offering)
        for type_ in look.sight.types.values()
        for offering in type_.offerings
        if requirements.allow({**labels, **type_.all_labels, **offering.labels})
    ]
    there = [
        item
        for item in found
        if not faults.lacks(claim.node_pool, item[1], item[3].zone)
        and memory.unavailable.get(_key(item[2], item[3]), now) <= now
    ]
    if not there:
        for _, name, type_, offering in found:
            if faults.lacks(name, offering.zone):
                memory.unavailable[_key(type_, offering)] = look.after(look.times.offering_cache_s)
        return [_insufficient(claim), delete_claim(claim)]
    _, _, type_, offering = min(there, key=lambda item: item[:2])
    return _launched(look, claim, type_, offering=offering)


def _insufficient(claim: SeenClaim) -> Report:
    note = (
        f"NodeClaim {claim.name} event: insufficient capacity, all requested instance types"
        " were unavailable during launch"
    )
    return Report(
        resource=NODE_CLAIMS,
        regarding=claim.metadata,
        type="Warning",
        reason="InsufficientCapacityError",
        note=note,
    )


def _key(type_: "InstanceType", offering: "Offering") -> tuple[str, str, str]:
    return (type_.name, offering.zone, offering.capacity_type)


def _launched(
    look: "Look", claim: SeenClaim, type_: "InstanceType", *, offering: "Offering"
) -> "list[Action]":
    labels = {
        **type_.all_labels,
        **offering.labels,
        PRICE_LABEL: f"{offering.price_milli / 1000:f}",
        **(claim.metadata.labels or {}),
    }
    conditions = with_conditions(
        claim.status.conditions,
        look.now,
        (LAUNCHED, "True", LAUNCHED, ""),
        (REGISTERED, "Unknown", "NodeNotFound", "Node not registered with cluster"),
        (INITIALIZED, "Unknown", "NodeNotFound", "Node not registered with cluster"),
    )
    resources = dict(type_.resources)
    status = {
        "providerID": f"{PROVIDER}{claim.name}",
        "capacity": resources,
        "allocatable": resources,
        "conditions": conditions,
    }
    return [
        patch_claim(claim, {"metadata": {"labels": labels}}),
        patch_claim(claim, {"status": status}, "status"),
    ]


def _register(look: "Look", claim: SeenClaim, node: SeenNode | None) -> "list[Action]":
    if node is None:
        if look.has_passed(claim.since(REGISTERED), look.times.registration_timeout_s):
            return [delete_claim(claim)]
        launched = look.has_passed(claim.since(LAUNCHED), look.times.registration_s)
        if launched and claim.node_pool not in look.faults.never_registering:
            return _start_kubelet(claim)
        return []
    if not node.metadata.label(REGISTERED_LABEL):
        # The NodeClaim is Registered once this is seen: it fails where another client writes the Node, too.
        return [_sync_node(claim, node)]
    conditions = with_conditions(
        claim.status.conditions,
        look.now,
        (REGISTERED, "True", REGISTERED, ""),
        (INITIALIZED, "Unknown", "NodeNotReady", "Node status is NotReady"),
    )
    status = {"conditions": conditions, "nodeName": node.metadata.name}
    return [patch_claim(claim, {"status": status}, "status")]


def _start_kubelet(claim: SeenClaim) -> "list[Action]":
    """Return the Node as an instance makes it."""
    resources = claim.status.allocatable or {}
    # kubelet knows nothing of a device plugin's resources before the plugin has registered
    own = {key: item for key, item in resources.items() if "/" not in key}
    body = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": claim.name,
            "labels": {**(claim.metadata.labels or {}), HOSTNAME_LABEL: claim.name},
        },
        "spec": {
            "providerID": claim.status.provider_id,
            "taints": [{"key": UNREGISTERED_TAINT, "effect": "NoExecute"}],
        },
    }
    status = {"capacity": own, "allocatable": own}
    return [
        Write(verb="create", resource=NODES, name=claim.name, body=body),
        patch_node(claim.name, {"status": status}, "status"),
    ]


def _sync_node(claim: SeenClaim, node: SeenNode) -> "Action":
    """Give a Node the labels, annotations and taints of its NodeClaim; this ends its registration."""
    shown = [
        {"key": taint.key, "value": taint.value, "effect": taint.effect}
        for taint in node.spec.taints or ()
        if taint.key != UNREGISTERED_TAINT
    ]
    known = {(item["key"], item["effect"]) for item in shown}
    added = [*(claim.spec.get("taints") or ()), *(claim.spec.get("startupTaints") or ())]
    taints = shown + [item for item in added if (item["key"], item.get("effect")) not in known]
    annotations = dict(claim.metadata.annotations or {})
    owner = {
        "apiVersion": NODE_CLAIMS.api_version,
        "kind": NODE_CLAIMS.kind,
        "name": claim.name,
        "uid": claim.metadata.uid,
        "blockOwnerDeletion": True,
    }
    metadata = {
        "resourceVersion": node.metadata.resource_version,
        "labels": {**(claim.metadata.labels or {}), REGISTERED_LABEL: "true"},
        "annotations": annotations,
        "finalizers": sorted({*(node.metadata.finalizers or ()), TERMINATION_FINALIZER}),
        "ownerReferences": [owner],
    }
    return patch_node(node.metadata.name, {"metadata": metadata, "spec": {"taints": taints}})


def _initialize(look: "Look", claim: SeenClaim, node: SeenNode) -> "list[Action]":
    if claim.is_initialized:
        return []
    reason, message = _why_uninitialized(claim, node)
    if reason:
        change = (INITIALIZED, "Unknown", reason, message)
        conditions = with_conditions(claim.status.conditions, look.now, change)
    else:
        changes = ((INITIALIZED, "True", INITIALIZED, ""), ("Ready", "True", "Ready", ""))
        conditions = with_conditions(claim.status.conditions, look.now, *changes)
    if conditions is None:
        return []
    written: list[Action] = [patch_claim(claim, {"status": {"conditions": conditions}}, "status")]
    if not reason:
        label = {"metadata": {"labels": {INITIALIZED_LABEL: "true"}}}
        written.insert(0, patch_node(node.metadata.name, label))
    return written


def _why_uninitialized(claim: SeenClaim, node: SeenNode) -> tuple[str, str]:
    if not node.is_ready:
        return "NodeNotReady", "Node status is NotReady"
    startup = {(item["key"], item.get("effect")) for item in claim.spec.get("startupTaints") or ()}
    for taint in node.spec.taints or ():
        if (taint.key, taint.effect) in startup:
            text = f'StartupTaint "{taint.key}:{taint.effect}" still exists'
            return "StartupTaintsExist", text
        if taint.key in _EPHEMERAL:
            text = f'KnownEphemeralTaint "{taint.key}:{taint.effect}" still exists'
            return "KnownEphemeralTaintsExist", text
    requests = (claim.spec.get("resources") or {}).get("requests") or {}
    for name, amount in sorted(requests.items()):
        if str(amount) not in {"0", "0m"} and not node.allocatable.get(name):
            return "ResourceNotRegistered", f'Resource "{name}" was requested but not registered'
    return "", ""


def _note_pods(look: "Look", claim: SeenClaim, node: SeenNode) -> "list[Action]":
    """Write the time of the last pod event: bound, ending, ended or gone; not more than one in ten seconds."""
    name, memory = node.metadata.name, look.memory
    here = {
        pod.metadata.uid: (name, f"{pod.is_terminal}/{pod.metadata.deletion_timestamp}")
        for pod in look.sight.pods_on(name)
        if not pod.is_of_node
    }
    before = {uid: seen for uid, seen in memory.on_node.items() if seen[0] == name}
    if here == before:
        return []
    for uid in before.keys() - here.keys():
        del memory.on_node[uid]
    memory.on_node |= here
    if here.keys() <= before.keys() and all(here[uid] == before[uid] for uid in here):
        return []  # a pod that is gone was terminating before
    last = claim.status.last_pod_event_time
    if last and not look.has_passed(dt.datetime.fromisoformat(last), LAST_POD_EVENT_EVERY_S):
        return []
    return [patch_claim(claim, {"status": {"lastPodEventTime": format_time(look.now)}}, "status")]


def _terminate(look: "Look", claim: SeenClaim, node: SeenNode | None) -> "list[Action]":
    """Taint and delete the Node, evict its pods, end the instance, let the NodeClaim go."""
    if node is None:
        others = [
            finalizer
            for finalizer in claim.metadata.finalizers or ()
            if finalizer != TERMINATION_FINALIZER
        ]
        return [patch_claim(claim, {"metadata": {"finalizers": others}})]
    meta = node.metadata
    if meta.deletion_timestamp is None:
        return [
            *disrupt_node(node),
            Write(verb="delete", resource=NODES, name=meta.name, uid=meta.uid),
        ]
    drained = [
        pod for pod in look.sight.pods_on(meta.name) if not pod.is_of_node and not pod.is_terminal
    ]
    if drained:
        fresh = (pod for pod in drained if pod.metadata.deletion_timestamp is None)
        return [delete_pod(pod.metadata) for pod in fresh]
    deleted = dt.datetime.fromisoformat(meta.deletion_timestamp)
    if not look.has_passed(deleted, look.times.termination_s):
        return []
    others = [
        finalizer for finalizer in meta.finalizers or () if finalizer != TERMINATION_FINALIZER
    ]
    return [patch_node(meta.name, {"metadata": {"finalizers": others}})]


def disrupt_node(node: SeenNode) -> "list[Action]":
    """Keep new pods away from a node that is about to go."""
    taints = [
        {"key": taint.key, "value": taint.value, "effect": taint.effect}
        for taint in node.spec.taints or ()
    ]
    if any(taint["key"] == DISRUPTED_TAINT for taint in taints):
        return []
    taints.append({"key": DISRUPTED_TAINT, "value": "", "effect": "NoSchedule"})
    version = {"resourceVersion": node.metadata.resource_version}
    return [patch_node(node.metadata.name, {"metadata": version, "spec": {"taints": taints}})]
