"""Reservations follow what a pod requires and prefers by nodes and by other pods, as kube-scheduler does."""

import math
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import pytest

from admission.webhooks import mutate_pod
from api.annotations import decode_reservation, encode_devices
from api.foreign.core import NodeTaint, Pod
from api.names import DEVICES_ANNOTATION, PodUid, UnitId
from pool.facts import observed_pod
from pool.model import UnitlessPod
from tests.support.reviews import AdmissionSetup, a_pod_object, stored

Object = dict[str, Any]
HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
WEB = {"app": "web"}


def a_setup(nodes: int = 3, devices: int = 4, **scheduling: Any) -> AdmissionSetup:
    """Nodes n0, n1 and so on, in the zones z0 and z1 by turns."""
    setup = AdmissionSetup()
    setup.add_pool(scheduling=scheduling)
    for number in range(nodes):
        name = f"n{number}"
        setup.add_node(name, devices, labels={HOST: name, ZONE: f"z{number % 2}"})
    return setup


def a_pod(labels: Mapping[str, str] = WEB, namespace: str = "team-a", **spec: Any) -> Object:
    pod = a_pod_object(spec=spec)
    pod["metadata"] |= {"labels": dict(labels), "namespace": namespace}
    return pod


def a_term(key: str = HOST, selected: Mapping[str, str] = WEB, **more: Any) -> Object:
    return {"topologyKey": key, "labelSelector": {"matchLabels": dict(selected)}, **more}


def apart(*terms: Object) -> Object:
    return {"affinity": {"podAntiAffinity": {REQUIRED: list(terms)}}}


def near(*terms: Object) -> Object:
    return {"affinity": {"podAffinity": {REQUIRED: list(terms)}}}


def weighted(kind: str, *terms: Object) -> Object:
    return {kind: {PREFERRED: [{"weight": 10, "podAffinityTerm": term} for term in terms]}}


def soft(key: str = HOST, **more: Any) -> Object:
    term = a_term(key, whenUnsatisfiable="ScheduleAnyway", maxSkew=1, **more)
    return {"topologySpreadConstraints": [term]}


def preferring(node: str, weight: int = 1) -> Object:
    expression = {"key": HOST, "operator": "In", "values": [node]}
    term = {"weight": weight, "preference": {"matchExpressions": [expression]}}
    return {"affinity": {"nodeAffinity": {PREFERRED: [term]}}}


def reserved(setup: AdmissionSetup, pod: Object) -> tuple[str | None, Object]:
    """The node of the pod's reservation, and the pod as it is stored."""
    namespace = pod["metadata"]["namespace"]
    mutated = setup.ask(mutate_pod, pod, namespace=namespace).applied_to(pod)
    note = decode_reservation(mutated["metadata"]["annotations"]["gpu.deckhouse.io/reservation"])
    assert note is not None
    return note.node or None, mutated


def create(setup: AdmissionSetup, pod: Object) -> str | None:
    """Admit the pod and let the watch show it."""
    node, mutated = reserved(setup, pod)
    observe(setup, stored(mutated, uid=f"uid-{len(setup.allocation_state.reader.pods)}"))
    return node


def observe(setup: AdmissionSetup, pod: Object) -> None:
    found = observed_pod(msgspec.convert({"status": {}, **pod}, Pod))
    assert found is not None
    if isinstance(found, UnitlessPod):
        setup.allocation_state.observe_unitless(found)
    else:
        setup.allocation_state.observe_pod(found, setup.now)


def running(setup: AdmissionSetup, node: str, uid: str = "other", **of: Any) -> None:
    """A pod without units that runs on the node."""
    pod = a_pod(nodeName=node, **of)
    pod["spec"]["containers"][0]["resources"] = {}
    observe(setup, stored(pod, uid=uid))


@pytest.mark.parametrize("strategy", ["LeastFragmentation", "BinPack", "Spread"])
def test_pods_go_to_the_node_that_they_prefer_while_it_has_units(strategy: str):
    setup = a_setup(devices=6, strategy=strategy)
    nodes = [create(setup, a_pod(**preferring("n2"))) for _ in range(7)]
    assert nodes[:6] == ["n2"] * 6
    assert nodes[6] in {"n0", "n1"}


@pytest.mark.parametrize(
    "terms",
    [soft(), soft(ZONE), {"affinity": weighted("podAntiAffinity", a_term())}],
    ids=["spread by node", "spread by zone", "apart"],
)
def test_replicas_that_prefer_to_be_apart_are_apart(terms: Object):
    setup = a_setup(nodes=2)
    assert {create(setup, a_pod(**terms)) for _ in range(2)} == {"n0", "n1"}
    assert create(setup, a_pod({"app": "other"}, **terms)) is not None


def test_pods_that_prefer_to_be_near_others_are_near_them():
    setup = a_setup()
    running(setup, "n2")
    affinity = weighted("podAffinity", a_term())
    assert create(setup, a_pod({}, affinity=affinity)) == "n2"


def test_a_pod_that_must_be_apart_has_no_reservation_where_it_cannot_run():
    setup = a_setup(nodes=2)
    pods = [a_pod(**apart(a_term())) for _ in range(3)]
    assert [create(setup, pod) for pod in pods] == ["n0", "n1", None]


def test_a_reservation_counts_before_the_watch_shows_its_pod():
    setup = a_setup(nodes=2)
    first, _ = reserved(setup, a_pod(**apart(a_term())))
    assert first == "n0"
    assert create(setup, a_pod(**apart(a_term()))) == "n1"


def test_a_pod_that_has_ended_keeps_nobody_away():
    setup = a_setup(nodes=1)
    running(setup, "n0")
    assert reserved(setup, a_pod(**apart(a_term())))[0] is None
    setup.allocation_state.discard_unitless(PodUid("other"))
    assert reserved(setup, a_pod(**apart(a_term())))[0] == "n0"


def test_a_bound_pod_with_units_keeps_others_away_by_its_labels_of_now():
    setup = a_setup(nodes=1)
    bound = stored(a_pod(nodeName="n0"), uid="bound")
    devices = encode_devices({"main": (UnitId("GPU-n0-0"),)})
    bound["metadata"]["annotations"] = {DEVICES_ANNOTATION: devices}
    observe(setup, bound)
    assert reserved(setup, a_pod(**apart(a_term())))[0] is None
    bound["metadata"]["labels"] = {"app": "other"}
    observe(setup, bound)
    assert create(setup, a_pod({}, **apart(a_term()))) == "n0"
    bound["metadata"]["labels"] = {"app": "web"}
    observe(setup, bound)
    setup.allocation_state.discard_pod(PodUid("bound"))
    assert create(setup, a_pod({}, **apart(a_term()))) == "n0"


def test_a_reservation_that_ends_keeps_nobody_away():
    setup = a_setup(nodes=1)
    create(setup, a_pod(**apart(a_term())))
    (reservation,) = setup.allocation_state.ledger.all()
    assert reservation.uid is not None
    setup.allocation_state.discard_pod(reservation.uid)
    assert len(setup.allocation_state.index.peers) == 0
    assert create(setup, a_pod(**apart(a_term()))) == "n0"


def test_a_pod_that_others_keep_away_has_no_reservation_beside_them():
    """Their rule counts, though its own spec says nothing."""
    setup = a_setup(nodes=2)
    running(setup, "n0", labels={"app": "alone"}, **apart(a_term()))
    assert [create(setup, a_pod()), create(setup, a_pod({"app": "x"}))] == ["n1", "n1"]
    running(setup, "n1", uid="more", labels={"app": "alone"}, **apart(a_term()))
    assert create(setup, a_pod()) is None


@pytest.mark.parametrize(
    ("term", "node"),
    [
        (a_term(), "n1"),
        (a_term(ZONE), "n1"),
        (a_term(namespaces=["team-b"]), None),
        (a_term(namespaceSelector={}), "n1"),
        (a_term(namespaceSelector={"matchLabels": {"a": "b"}}), None),
        (a_term(selected={}, matchLabelKeys=["app"]), "n1"),
        (a_term(selected={}, mismatchLabelKeys=["app"]), None),
        (a_term("rack"), None),
        ({"topologyKey": HOST}, None),
    ],
)
def test_a_pod_that_must_be_near_others_is_reserved_for_beside_them_alone(
    term: Object, node: str | None
):
    setup = a_setup(nodes=2)
    running(setup, "n1")
    assert reserved(setup, a_pod(**near(term)))[0] == node


def test_the_first_pod_of_a_group_that_must_be_together_may_go_anywhere():
    setup = a_setup()
    first = create(setup, a_pod(**near(a_term(ZONE))))
    assert first == "n0"
    assert {create(setup, a_pod(**near(a_term(ZONE)))) for _ in range(5)} == {"n0", "n2"}


def test_no_pod_is_the_first_of_a_group_that_may_be_in_namespaces_that_labels_select():
    """Where the pods of such a namespace are, if there are any, is unknown; so the pod waits without a reservation."""
    setup = a_setup()
    term = a_term(namespaces=["team-a"], namespaceSelector={"matchLabels": {"a": "b"}})
    assert reserved(setup, a_pod(**near(term)))[0] is None
    running(setup, "n1")
    assert reserved(setup, a_pod(**near(term)))[0] == "n1"


def test_a_strict_constraint_on_spreading_is_kept():
    setup = a_setup(nodes=2)
    strict = a_term(whenUnsatisfiable="DoNotSchedule", maxSkew=1)
    nodes = [create(setup, a_pod(topologySpreadConstraints=[strict])) for _ in range(4)]
    assert Counter(nodes) == {"n0": 2, "n1": 2}


def strict(key: str = HOST, **more: Any) -> Object:
    term = a_term(key, whenUnsatisfiable="DoNotSchedule", maxSkew=1, **more)
    return {"topologySpreadConstraints": [term]}


@pytest.mark.parametrize(
    ("constraint", "spec", "nodes"),
    [
        pytest.param(strict(minDomains=3), {}, ["n0", "n1", None], id="too few domains"),
        pytest.param(strict(), {"nodeSelector": {ZONE: "z0"}}, ["n0", "n0"], id="selected nodes"),
        pytest.param(strict(), {"nodeSelector": {}}, ["n0", "n1"], id="all nodes"),
    ],
)
def test_spreading_counts_the_domains_that_the_pod_may_go_to(
    constraint: Object, spec: Object, nodes: list[str | None]
):
    setup = a_setup(nodes=2)
    assert [create(setup, a_pod(**constraint, **spec)) for _ in nodes] == nodes


@pytest.mark.parametrize(("policy", "second"), [("Honor", "n0"), ("Ignore", None)])
def test_a_node_whose_taints_keep_the_pod_away_limits_spreading_unless_taints_are_honoured(
    policy: str, second: str | None
):
    setup = a_setup(nodes=1)
    taint = NodeTaint(key="example.com/team", effect="NoSchedule")
    setup.add_node("n1", 4, labels={HOST: "n1", ZONE: "z1"}, taints=(taint,))
    pod = a_pod(**strict(nodeTaintsPolicy=policy))
    assert [create(setup, pod), create(setup, pod)] == ["n0", second]


@pytest.mark.parametrize("terms", [strict(ZONE), soft(ZONE)], ids=["strict", "soft"])
def test_spreading_by_a_label_passes_over_nodes_without_it(terms: Object):
    setup = a_setup(nodes=0)
    setup.add_node("n0", 4, labels={HOST: "n0"})
    setup.add_node("n1", 4, labels={HOST: "n1", ZONE: "z1"})
    assert reserved(setup, a_pod(**terms))[0] == "n1"


def test_a_pod_is_near_pods_that_all_of_its_terms_select():
    setup = a_setup()
    running(setup, "n0", uid="web")
    running(setup, "n1", uid="both", labels={"app": "web", "tier": "a"})
    assert reserved(setup, a_pod(**near(a_term(), a_term(selected={"tier": "a"}))))[0] == "n1"


def test_each_rule_of_another_pod_keeps_pods_away():
    setup = a_setup(nodes=1)
    rules = apart(a_term(selected={"app": "x"}), a_term())
    running(setup, "n0", labels={"app": "alone"}, **rules)
    assert reserved(setup, a_pod())[0] is None


def test_a_pod_that_kept_others_away_and_is_gone_is_forgotten():
    setup = a_setup(nodes=1)
    running(setup, "n0", labels={"app": "alone"}, **apart(a_term()))
    setup.allocation_state.discard_unitless(PodUid("other"))
    assert list(setup.allocation_state.index.peers.with_anti_affinity) == []
    assert reserved(setup, a_pod())[0] == "n0"


def test_a_preference_that_selects_namespaces_by_labels_does_not_count():
    setup = a_setup(nodes=2)
    running(setup, "n0", namespace="team-b")
    term = a_term(namespaceSelector={"matchLabels": {"a": "b"}})
    assert reserved(setup, a_pod(affinity=weighted("podAntiAffinity", term)))[0] == "n0"
    everywhere = a_term(namespaceSelector={})
    assert reserved(setup, a_pod(affinity=weighted("podAntiAffinity", everywhere)))[0] == "n1"


def test_rules_that_are_too_many_to_compare_reserve_nothing_and_preferences_are_left_out():
    setup = a_setup()
    many = {"matchExpressions": [{"key": f"k{i}", "operator": "Exists"} for i in range(1500)]}
    for number in range(40):
        running(setup, "n0", uid=str(number), labels={"app": "web", "number": str(number)})
    term = {"topologyKey": HOST, "labelSelector": many}
    assert reserved(setup, a_pod(**apart(term)))[0] is None
    assert reserved(setup, a_pod(affinity=weighted("podAffinity", term)))[0] is not None


class Naive:
    """kube-scheduler's filters and scores, by nothing but pods and nodes; all weights are its defaults."""

    def __init__(self, nodes: Mapping[str, Mapping[str, str]], free: Mapping[str, int]) -> None:
        self.nodes, self.free = nodes, dict(free)
        self.placed: list[tuple[str, Object]] = []

    def best(self, pod: Object) -> set[str]:
        fitting = [name for name in self.nodes if self.free[name] and self.allows(name, pod)]
        scores = self.scores(pod, fitting)
        return {name for name in fitting if scores[name] == max(scores.values())}

    def allows(self, node: str, pod: Object) -> bool:
        affinity = pod["spec"].get("affinity", {})
        together = affinity.get("podAffinity", {}).get(REQUIRED, [])
        alike = [
            (where, other)
            for where, other in self.placed
            if all(self.selects(term, pod, other) for term in together)
        ]
        is_first = not alike and all(self.selects(term, pod, pod) for term in together)
        for term in together:
            key = term["topologyKey"]
            if not is_first and not self.among(node, key, [where for where, _ in alike]):
                return False
        for term in affinity.get("podAntiAffinity", {}).get(REQUIRED, []):
            places = [w for w, other in self.placed if self.selects(term, pod, other)]
            if self.among(node, term["topologyKey"], places):
                return False
        return not any(
            self.selects(term, other, pod) and self.among(node, term["topologyKey"], [where])
            for where, other in self.placed
            for term in other["spec"]
            .get("affinity", {})
            .get("podAntiAffinity", {})
            .get(REQUIRED, [])
        )

    def among(self, node: str, key: str, places: Iterable[str]) -> bool:
        return self.nodes[node][key] in {self.nodes[place][key] for place in places}

    def selects(self, term: Object, owner: Object, other: Object) -> bool:
        namespaces = term.get("namespaces") or [owner["metadata"]["namespace"]]
        return (
            other["metadata"]["namespace"] in namespaces
            and term["labelSelector"]["matchLabels"].items() <= other["metadata"]["labels"].items()
        )

    def scores(self, pod: Object, fitting: Sequence[str]) -> dict[str, int]:
        affinity = pod["spec"].get("affinity", {})
        by_label = {
            name: sum(
                item["weight"]
                for item in affinity.get("nodeAffinity", {}).get(PREFERRED, [])
                if name in item["preference"]["matchExpressions"][0]["values"]
            )
            for name in fitting
        }
        by_peers = dict.fromkeys(fitting, 0)
        for kind, sign in (("podAffinity", 1), ("podAntiAffinity", -1)):
            for item in affinity.get(kind, {}).get(PREFERRED, []):
                term = item["podAffinityTerm"]
                for where, other in self.placed:
                    for name in fitting:
                        if self.selects(term, pod, other) and self.among(
                            name, term["topologyKey"], [where]
                        ):
                            by_peers[name] += sign * item["weight"]
        total = Counter(_to_100(by_label)) + Counter(_from_least_to_100(by_peers))
        constraints = pod["spec"].get("topologySpreadConstraints", [])
        costs = dict.fromkeys(fitting, 0.0)
        for constraint in constraints:
            key = constraint["topologyKey"]
            size = len({self.nodes[name][key] for name in fitting})
            for name in fitting:
                count = sum(
                    self.selects(constraint, pod, other) and self.among(name, key, [where])
                    for where, other in self.placed
                )
                costs[name] += count * math.log(size + 2) + constraint["maxSkew"] - 1
        rounded = {name: math.floor(cost + 0.5) for name, cost in costs.items()}
        for name in fitting if constraints else ():
            most, least = max(rounded.values()), min(rounded.values())
            total[name] += 100 * (most + least - rounded[name]) // most if most else 100
        return {name: total[name] for name in fitting}


def _to_100(sums: Mapping[str, int]) -> dict[str, int]:
    most = max(sums.values(), default=0)
    return {name: 100 * value // most for name, value in sums.items() if most}


def _from_least_to_100(sums: Mapping[str, int]) -> dict[str, int]:
    least, most = min(sums.values(), default=0), max(sums.values(), default=0)
    return {
        name: int(100 * ((value - least) / (most - least)))
        for name, value in sums.items()
        if most > least
    }


def a_random_pod(rng: random.Random) -> Object:
    def term() -> Object:
        found = a_term(rng.choice([HOST, ZONE]), {"app": rng.choice("ab")})
        return {**found, "namespaces": ["x", "y"]} if rng.random() < 0.3 else found

    affinity: Object = {}
    for kind in ("podAffinity", "podAntiAffinity"):
        rules: Object = {}
        if rng.random() < 0.25:
            rules[REQUIRED] = [term()]
        if rng.random() < 0.4:
            terms = [term() for _ in range(rng.randint(1, 2))]
            rules[PREFERRED] = [
                {"weight": rng.randint(1, 100), "podAffinityTerm": term} for term in terms
            ]
        affinity |= {kind: rules} if rules else {}
    if rng.random() < 0.4:
        affinity |= preferring(f"n{rng.randrange(4)}", rng.randint(1, 100))["affinity"]
    spec: Object = {"affinity": affinity} if affinity else {}
    if rng.random() < 0.5:
        spec["topologySpreadConstraints"] = [
            {
                **a_term(key, {"app": rng.choice("ab")}),
                "maxSkew": rng.randint(1, 3),
                "whenUnsatisfiable": "ScheduleAnyway",
            }
            for key in rng.choice([[HOST], [ZONE], [HOST, ZONE]])
        ]
    return a_pod({"app": rng.choice("ab")}, rng.choice("xy"), **spec)


@pytest.mark.parametrize("seed", range(60))
def test_reservations_are_where_kube_scheduler_would_place_the_pods(seed: int):
    rng = random.Random(seed)
    setup = a_setup(nodes=5, devices=3)
    nodes = setup.allocation_state.index.nodes
    naive = Naive({name: facts.labels for name, facts in nodes.items()}, dict.fromkeys(nodes, 3))
    for _ in range(12):
        pod = a_random_pod(rng)
        best, node = naive.best(pod), create(setup, pod)
        assert (node in best) if best else node is None
        if node is not None:
            naive.free[node] -= 1
            naive.placed.append((node, pod))
