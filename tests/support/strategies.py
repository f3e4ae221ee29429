"""Hypothesis strategies for what the outside world sends."""

from typing import Any

from hypothesis import strategies as st

from tests.support.reviews import a_pod_object

POOLS = ("whole", "slices")
CAPACITY, QUEUE = {"name": "gpu.deckhouse.io/capacity"}, {"name": "queue"}
KEYS = ("zone", "pool.gpu.deckhouse.io/whole", "pool.gpu.deckhouse.io/slices", "example.com/x")


def json_values() -> st.SearchStrategy[Any]:
    """Any JSON value, with keys of Kubernetes objects among them."""
    leaves = (
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text()
    )
    keys = st.sampled_from(
        ["metadata", "spec", "status", "name", "namespace", "annotations", "labels", "containers"]
    ) | st.text(max_size=5)
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
        max_leaves=12,
    )


def _maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


def _expressions() -> st.SearchStrategy[list[dict[str, Any]]]:
    one = st.fixed_dictionaries(
        {
            "key": st.sampled_from(KEYS),
            "operator": st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]),
        },
        optional={"values": st.lists(st.sampled_from(["", "a", "b", "1"]), max_size=2)},
    )
    return st.lists(one, max_size=3)


def affinities() -> st.SearchStrategy[dict[str, Any]]:
    """Pod affinities, with empty parts and fields that we do not know."""
    term = st.fixed_dictionaries(
        {},
        optional={
            "matchExpressions": _maybe(_expressions()),
            "matchFields": _maybe(
                st.just([{"key": "metadata.name", "operator": "In", "values": ["n1"]}])
            ),
        },
    )
    required = st.fixed_dictionaries(
        {}, optional={"nodeSelectorTerms": _maybe(st.lists(term, max_size=3)), "future": st.just(1)}
    )
    node_affinity = st.fixed_dictionaries(
        {},
        optional={
            "requiredDuringSchedulingIgnoredDuringExecution": _maybe(required),
            "preferredDuringSchedulingIgnoredDuringExecution": st.just([{"weight": 1}]),
        },
    )
    return st.fixed_dictionaries(
        {},
        optional={
            "nodeAffinity": _maybe(node_affinity),
            "podAntiAffinity": st.just({"future": [1, 2]}),
        },
    )


def _containers(pool: str) -> st.SearchStrategy[list[dict[str, Any]]]:
    amounts = st.sampled_from(["0", "1", "2", "3"])
    resources = st.fixed_dictionaries(
        {},
        optional={
            "limits": _maybe(
                st.fixed_dictionaries(
                    {"cpu": st.just("1")}, optional={f"gpu.deckhouse.io/{pool}": amounts}
                )
            ),
            "claims": st.just([{"name": "x"}]),
        },
    )
    container = st.fixed_dictionaries(
        {"image": st.just("busybox")}, optional={"resources": _maybe(resources)}
    )
    return st.lists(container, min_size=1, max_size=3).map(
        lambda found: [{"name": f"c{n}", **item} for n, item in enumerate(found)]
    )


def _annotations() -> st.SearchStrategy[dict[str, str]]:
    return st.dictionaries(
        st.sampled_from(
            [
                "gpu.deckhouse.io/reservation",
                "gpu.deckhouse.io/devices",
                "gpu.deckhouse.io/woken",
                "gpu.deckhouse.io/else",
                "a~b/c",
            ]
        ),
        st.sampled_from(["", "x", '{"id":"r0","pool":"whole"}', '{"id":"dry-run","pool":"whole"}']),
        max_size=4,
    )


@st.composite
def pod_objects(draw: st.DrawFn) -> dict[str, Any]:
    """Pods as users write them, most of which ask for a pool; some contradict it."""
    pool = draw(st.sampled_from(POOLS))
    metadata = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "annotations": _maybe(_annotations()),
                "labels": _maybe(
                    st.dictionaries(st.sampled_from(["app", "a/b"]), st.just("x"), max_size=2)
                ),
                "futureField": st.just({"a": [1]}),
            },
        )
    )
    spec = draw(
        st.fixed_dictionaries(
            {"containers": _containers(pool), "tolerations": _maybe(_tolerations())},
            optional={
                "initContainers": _maybe(_containers(pool)),
                "affinity": _maybe(affinities()),
                "nodeSelector": st.sampled_from([None, {}, {"zone": "a"}]),
                "schedulerName": st.sampled_from(["", "default-scheduler", "volcano"]),
                "topologySpreadConstraints": _maybe(_constraints()),
                "schedulingGates": st.sampled_from(
                    [None, [], [QUEUE], [CAPACITY], [CAPACITY, QUEUE], [QUEUE, CAPACITY]]
                ),
                "futureField": st.just(["kept"]),
            },
        )
    )
    return a_pod_object(None, metadata=metadata, spec=spec)


def _tolerations() -> st.SearchStrategy[list[dict[str, Any]]]:
    one = st.fixed_dictionaries(
        {},
        optional={
            "key": st.sampled_from(["gpu", "team"]),
            "operator": st.sampled_from(["Exists", "Equal"]),
            "value": st.sampled_from(["a", "b"]),
            "effect": st.sampled_from(["NoSchedule", "NoExecute"]),
            "tolerationSeconds": st.just(300),
        },
    )
    return st.lists(one, max_size=3)


def _constraints() -> st.SearchStrategy[list[dict[str, Any]]]:
    one = st.fixed_dictionaries(
        {"maxSkew": st.just(2), "topologyKey": st.sampled_from(["zone", "rack"])},
        optional={"future": st.just({"a": None})},
    )
    return st.lists(one, max_size=2)
