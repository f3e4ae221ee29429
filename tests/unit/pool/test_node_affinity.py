"""How often the expressions of one pod are compared with nodes."""

from typing import Any

from api.foreign.core import NodeSelectorTerm
from api.meta import SelectorOperator, SelectorRequirement
from pool.node_affinity import MAX_COMPARISONS, RequiredNodeAffinity


class CountedLabels(dict[str, str]):
    """Labels that know how often a value was looked up."""

    found_in_cache = 0

    def get(self, *arguments: Any) -> Any:
        CountedLabels.found_in_cache += 1
        return super().get(*arguments)


def expressions(count: int) -> list[SelectorRequirement]:
    return [
        SelectorRequirement(key="a", operator=SelectorOperator.GT, values=["0"])
        for _ in range(count)
    ]


def impossible(count: int) -> NodeSelectorTerm:
    never = SelectorRequirement(key="b", operator=SelectorOperator.EXISTS)
    return NodeSelectorTerm(match_expressions=[*expressions(count), never])


def test_comparisons_have_an_end_whatever_the_number_of_nodes() -> None:
    affinity, labels = RequiredNodeAffinity([impossible(1_000)]), CountedLabels(a="1")
    CountedLabels.found_in_cache = 0

    accepted = [affinity.accepts(labels, f"n{number}") for number in range(5_000)]

    assert not any(accepted)
    assert affinity.is_exhausted
    assert 0 < CountedLabels.found_in_cache <= MAX_COMPARISONS


def test_alternatives_without_an_expression_count_too() -> None:
    affinity = RequiredNodeAffinity([NodeSelectorTerm() for _ in range(1_000)])

    for number in range(MAX_COMPARISONS // 1_000):
        assert not affinity.accepts({}, f"n{number}")
    assert not affinity.is_exhausted
    assert not affinity.accepts({}, "one more")
    assert affinity.is_exhausted


def test_pods_as_they_are_get_through_a_large_pool() -> None:
    affinity = RequiredNodeAffinity([impossible(2), NodeSelectorTerm(match_fields=expressions(1))])

    assert not any(affinity.accepts({"a": "1"}, f"n{number}") for number in range(8_000))
    assert not affinity.is_exhausted


def test_a_node_that_is_asked_about_again_is_compared_once_until_its_labels_change() -> None:
    affinity = RequiredNodeAffinity([NodeSelectorTerm(match_expressions=expressions(4))])
    labels = {"a": "1"}

    assert all(affinity.accepts(labels, "n1") for _ in range(MAX_COMPARISONS))
    assert not affinity.accepts({"a": "0"}, "n1")
    assert affinity.accepts(labels, "n1")
