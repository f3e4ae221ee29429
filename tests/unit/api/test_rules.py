"""Rules speak of fields that exist, and tell what to do."""

import msgspec
import pytest

from api.crd import cel as rules
from api.kinds.gpupool import GPUPool, PoolResource
from api.names import MAX_POOL_NAME_LENGTH, RESERVED_POOL_NAMES, pool_name_fault

ALL = [(model, rule) for model, declared in rules.RULES.items() for rule in declared]


def wire_names(model: type) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(model)}


def attributes(model: type) -> set[str]:
    return {field.name for field in msgspec.structs.fields(model)}


def test_rule_points_at_a_field_of_its_model():
    assert len(ALL) > 50
    assert [
        (model.__name__, rule.field)
        for model, rule in ALL
        if rule.field and rule.field.split(".")[0] not in wire_names(model)
    ] == []


def test_message_is_one_line_that_kubectl_can_print():
    messages = [rule.message for _, rule in ALL]
    assert [
        text for text in messages if "\n" in text or text.endswith(".") or len(text) >= 300
    ] == []


def test_limits_are_about_attributes_of_models():
    for model, attribute in [*rules.LIMITS, *rules.ATOMIC_LISTS]:
        assert attribute in attributes(model), model


def test_keys_of_lists_and_required_fields_are_fields():
    for model, keys in [*rules.LIST_KEYS.items(), *rules.REQUIRED.items()]:
        assert set(keys) <= wire_names(model), model


@pytest.mark.parametrize("word", sorted(RESERVED_POOL_NAMES))
def test_reserved_word_is_no_name_of_a_pool_and_no_resource(word):
    assert pool_name_fault(word)
    assert any(f"'{word}'" in rule.expression for rule in rules.RULES[GPUPool])
    [rule] = rules.RULES[PoolResource]
    assert f"'gpu.deckhouse.io/{word}'" in rule.expression


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        pytest.param("a" * MAX_POOL_NAME_LENGTH, None, id="longest"),
        pytest.param("a" * (MAX_POOL_NAME_LENGTH + 1), "47 characters", id="too long"),
        pytest.param("a-1", None, id="digits and a dash"),
        pytest.param("-a", "no '-' at either end", id="dash first"),
        pytest.param("a.b", "only lower-case letters", id="dot"),
        pytest.param("A", "only lower-case letters", id="upper case"),
        pytest.param("pool", "reserved word", id="reserved"),
    ],
)
def test_name_of_a_pool_is_judged_in_words(name, fault):
    found = pool_name_fault(name)
    if fault is None:
        assert found is None
    else:
        assert found is not None
        assert fault in found
