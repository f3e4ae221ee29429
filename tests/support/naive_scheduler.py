"""kube-scheduler's filters as its documentation describes them, by nothing but objects.

What the control plane weighs is `passes_limits` and `passes_peers`; by which further fields of a pod a node is refused,
`refusing_fields`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tests.support.cluster_objects import Object

ZONES_OF_CLAIMS = {"in-a": "a", "in-b": "b"}
"""Zone of the volume that a claim is bound to."""


def passes_limits(node: Object, pods: list[Object], asked: Object) -> bool:
    """Say whether selectors, taints, CPU, memory and the number of pods allow the node.

    Args:
        node: the Node.
        pods: those that are bound there or will be, since units of it are reserved for them.
        asked: the pod.
    """
    spec = asked["spec"]
    tolerations = spec.get("tolerations") or []
    return (
        all(_is_tolerated(taint, tolerations) for taint in _taints(node))
        and _may_go_to(node, asked)
        and len(pods) < int(node["status"]["allocatable"]["pods"])
        and all(
            _amount(asked, resource) == 0 or _suffices(node, [*pods, asked], resource)
            for resource in ("cpu", "memory")
        )
    )


def refusing_fields(node: Object, here: list[Object], asked: Object) -> Iterator[str]:
    """Yield the fields by which kube-scheduler refuses the node, of those that the control plane does not weigh.

    Args:
        node: the Node.
        here: its pods.
        asked: the pod.
    """
    spec = asked["spec"]
    taken = {port for pod in here for port in _ports(pod)}
    claims = [volume.get("persistentVolumeClaim") for volume in spec.get("volumes") or ()]
    if spec.get("schedulingGates"):
        yield "spec.schedulingGates"
    if not taken.isdisjoint(_ports(asked)):
        yield (
            "spec.hostNetwork" if spec.get("hostNetwork") else "spec.containers[].ports[].hostPort"
        )
    if _amount(asked, "ephemeral-storage") and not _suffices(
        node, [*here, asked], "ephemeral-storage"
    ):
        yield "spec.containers[].resources.requests[ephemeral-storage]"
    if any(claim and ZONES_OF_CLAIMS[claim["claimName"]] != _zone(node) for claim in claims):
        yield "spec.volumes[].persistentVolumeClaim"


def passes_peers(
    node: Object,
    nodes: Iterable[Object],
    of_pool: Iterable[Object],
    pods: Mapping[str, list[Object]],
    asked: Object,
) -> bool:
    """Say whether what the pod and others require of each other allows the node.

    Args:
        node: the Node.
        nodes: all.
        of_pool: those to which admission sends the pod.
        pods: those of each node.
        asked: the pod.
    """
    spec, affinity = asked["spec"], asked["spec"].get("affinity") or {}
    zones = {item["metadata"]["name"]: _zone(item) for item in nodes}
    placed = [(zones[name], pod) for name in pods for pod in pods[name]]
    here = [pod for zone, pod in placed if zone == _zone(node)]
    near = _required(affinity.get("podAffinity") or {})
    alike = [
        zone for zone, pod in placed if near and all(_about(term, asked, pod) for term in near)
    ]
    is_first = not alike and all(_about(term, asked, asked) for term in near)
    if near and not is_first and _zone(node) not in alike:
        return False
    apart = _required(affinity.get("podAntiAffinity") or {})
    if any(_about(term, asked, pod) for term in apart for pod in here):
        return False
    for constraint in spec.get("topologySpreadConstraints") or ():
        counts: Counter[str] = Counter()
        for item in of_pool:
            if _may_go_to(item, asked):
                near_it = pods.get(item["metadata"]["name"]) or []
                counts[_zone(item)] += sum(_about(constraint, asked, pod) for pod in near_it)
        itself = int(_about(constraint, asked, asked))
        skew = counts[_zone(node)] + itself - min(counts.values(), default=0)
        if skew > constraint["maxSkew"]:
            return False
    return not any(
        _about(term, pod, asked)
        for pod in here
        for term in _required((pod["spec"].get("affinity") or {}).get("podAntiAffinity") or {})
    )


def refusing_quotas(objects: Iterable[Object], asked: Object) -> Iterator[str]:
    """Yield the quotas by which the API server refuses a pod, whatever others of its namespace have."""
    resource, namespace = "gpu.deckhouse.io/whole", asked["metadata"]["namespace"]
    for item in objects:
        if item["kind"] == "ResourceQuota" and item["metadata"]["namespace"] == namespace:
            hard = int(item["spec"]["hard"][f"requests.{resource}"])
            if _amount(asked, resource) > hard:
                yield f"ResourceQuota {namespace}/{item['metadata']['name']}"


def selects(term: Object, labels: Mapping[str, str]) -> bool:
    """Say whether the label selector of a rule about pods selects one with these labels."""
    return bool(term["labelSelector"]["matchLabels"].items() <= labels.items())


def _taints(node: Object) -> list[Object]:
    """Return the taints, and those that Kubernetes sets a moment later."""
    taints = list(node["spec"].get("taints") or ())
    if node["spec"].get("unschedulable"):
        taints.append({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"})
    if node["status"]["conditions"][0]["status"] != "True":
        taints.append({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"})
    return taints


def _is_tolerated(taint: Object, tolerations: list[Object]) -> bool:
    return taint["effect"] == "PreferNoSchedule" or any(
        toleration.get("key") in {None, taint["key"]}
        and toleration.get("effect") in {None, taint["effect"]}
        and (
            toleration.get("operator") == "Exists"
            or toleration.get("value", "") == taint.get("value", "")
        )
        for toleration in tolerations
    )


def _affinity_holds(spec: Object, labels: Mapping[str, str], name: str) -> bool:
    required = _required((spec.get("affinity") or {}).get("nodeAffinity") or {})
    if not required:
        return True
    return any(
        bool(term)
        and all(_holds(item, labels) for item in term.get("matchExpressions", ()))
        and all(_holds(item, {"metadata.name": name}) for item in term.get("matchFields", ()))
        for term in required["nodeSelectorTerms"]
    )


def _holds(expression: Object, values: Mapping[str, str]) -> bool:
    value, requested = values.get(expression["key"]), expression.get("values", [])
    match expression["operator"]:
        case "In":
            return value in requested
        case "NotIn":
            return value not in requested
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return value is not None and int(value) > int(requested[0])
        case _:
            return value is not None and int(value) < int(requested[0])


def _required(rules: Object) -> Any:
    return rules.get("requiredDuringSchedulingIgnoredDuringExecution") or []


def _zone(node: Object) -> str:
    return str(node["metadata"]["labels"]["zone"])


def _about(term: Object, owner: Object, pod: Object) -> bool:
    """Say whether a term of one pod is about another: its namespaces are that of its pod."""
    is_alike = owner["metadata"]["namespace"] == pod["metadata"]["namespace"]
    return is_alike and selects(term, pod["metadata"].get("labels") or {})


def _may_go_to(node: Object, asked: Object) -> bool:
    """Say whether selector and required node affinity allow the node."""
    spec, labels = asked["spec"], node["metadata"]["labels"]
    selector = spec.get("nodeSelector") or {}
    is_selected = selector.items() <= labels.items()
    return is_selected and _affinity_holds(spec, labels, node["metadata"]["name"])


def _ports(pod: Object) -> list[int]:
    """Return the ports of the host that the one container takes: all of its ports with the network of the host."""
    (container,) = pod["spec"]["containers"]
    field = "containerPort" if pod["spec"].get("hostNetwork") else "hostPort"
    return [port[field] for port in container.get("ports") or () if port.get(field)]


def _suffices(node: Object, pods: list[Object], resource: str) -> bool:
    has = int(node["status"]["allocatable"][resource].removesuffix("Gi"))
    return sum(_amount(pod, resource) for pod in pods) <= has


def _amount(pod: Object, resource: str) -> int:
    """Return what the one container requests: cores, or GiB."""
    (container,) = pod["spec"]["containers"]
    resources = container["resources"]
    amounts = {**resources.get("limits", {}), **resources.get("requests", {})}
    return int(amounts.get(resource, "0").removesuffix("Gi"))
