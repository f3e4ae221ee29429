"""Label selectors in the API's text form."""

import pytest

from api.selector_text import parse_label_selector


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
