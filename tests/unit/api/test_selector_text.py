"""Label selectors in the API's text form."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.meta import LabelSelector, SelectorOperator, SelectorRequirement
from api.selector_text import label_selector_text, parse_label_selector


@pytest.mark.parametrize(
    ("text", "fitting", "other"),
    [
        ("app=web", {"app": "web"}, {"app": "api"}),
        ("app==web", {"app": "web"}, {}),
        ("app!=web", {}, {"app": "web"}),
        ("app", {"app": ""}, {}),
        ("!app", {}, {"app": ""}),
        ("app in (web, api)", {"app": "api"}, {"app": "db"}),
        ("app notin (web,api)", {}, {"app": "api"}),
        ("app=,tier", {"app": "", "tier": "x"}, {"app": "x", "tier": "x"}),
        (
            " app in (a,b) , example.com/tier = front ",
            {"app": "b", "example.com/tier": "front"},
            {"app": "b"},
        ),
    ],
)
def test_a_selector_selects(text, fitting, other):
    selector = parse_label_selector(text)
    assert selector.matches(fitting)
    assert not selector.matches(other)


def test_an_empty_selector_selects_everything():
    assert parse_label_selector("").matches({})
    assert parse_label_selector(" , ").matches({"app": "web"})


@pytest.mark.parametrize(
    "text", ["a=b=c", "a in b", "a in (b", "=", "a b", "app=web,tier=(x)", "a>b"]
)
def test_a_text_that_is_no_selector_is_refused_with_the_part_that_is_none(text):
    with pytest.raises(ValueError, match="is no requirement of a selector, such as app=web"):
        parse_label_selector(text)


KEYS, VALUES = st.sampled_from(["app", "example.com/tier"]), st.sampled_from(["", "web", "api"])
OPERATORS = st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"])


@st.composite
def selectors(draw: st.DrawFn) -> LabelSelector:
    requirements = [
        SelectorRequirement(
            key=draw(KEYS),
            operator=SelectorOperator(draw(OPERATORS)),
            values=draw(st.lists(VALUES, min_size=1, max_size=2)),
        )
        for _ in range(draw(st.integers(0, 3)))
    ]
    labels = draw(st.dictionaries(KEYS, VALUES))
    return LabelSelector(match_labels=labels, match_expressions=requirements)


@given(selectors(), st.dictionaries(KEYS, VALUES))
def test_the_text_of_a_selector_selects_the_same(selector, labels):
    found = parse_label_selector(label_selector_text(selector))
    assert found.matches(labels) == selector.matches(labels)
