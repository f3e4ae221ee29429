"""nfd-master's evaluation of a NodeFeatureRule, as far as ours goes.

Semantics of github.com/kubernetes-sigs/node-feature-discovery: pkg/apis/nfd/nodefeaturerule (matchers, templates)
and getDynamicValue of pkg/nfd-master. Of templates it knows `len` and `range` over the matched instances.
"""

import re
from typing import Any

Json = dict[str, Any]

_RANGE = re.compile(r"\{\{ range \$number, \$device := \.(\S+) \}\}(.*?)\{\{ end \}\}", re.DOTALL)
_LEN = re.compile(r"\{\{ len \.(\S+) \}\}")


def labels_of(
    rule: Json,
    *,
    instances: dict[str, list[dict[str, str]]],
    attributes: dict[str, dict[str, str]],
    flags: dict[str, list[str]],
) -> dict[str, str]:
    """Return the labels that a NodeFeatureRule gives a node with these features."""
    found: dict[str, str] = {}
    for item in rule["spec"]["rules"]:
        features = {**attributes, **{key: dict.fromkeys(names, "") for key, names in flags.items()}}
        features["rule.matched"] = found
        matched: dict[str, list[dict[str, str]]] = {}
        if all(_matches(term, instances, features, matched) for term in item["matchFeatures"]):
            labels = {**_expanded(item.get("labelsTemplate", ""), matched), **item["labels"]}
            found |= {key: _value(text, attributes) for key, text in labels.items()}
    return found


def _matches(
    term: Json,
    instances: dict[str, list[dict[str, str]]],
    features: dict[str, dict[str, str]],
    matched: dict[str, list[dict[str, str]]],
) -> bool:
    feature, expressions = term["feature"], term["matchExpressions"]
    if feature in instances:
        fitting = [instance for instance in instances[feature] if _all_hold(expressions, instance)]
        matched[feature] = fitting
        return bool(fitting)
    return feature in features and _all_hold(expressions, features[feature])


def _all_hold(expressions: Json, elements: dict[str, str]) -> bool:
    return all(_holds(item, elements.get(name)) for name, item in expressions.items())


def _holds(expression: Json, value: str | None) -> bool:
    match expression["op"]:
        case "In":
            return value in expression["value"]
        case "Exists":
            return value is not None
        case "IsTrue":
            return value == "true"
        case op:
            raise NotImplementedError(op)


def _expanded(template: str, matched: dict[str, list[dict[str, str]]]) -> dict[str, str]:
    def one_range(found: re.Match[str]) -> str:
        return "".join(
            re.sub(
                r"\{\{ \$device\.(\w+) \}\}",
                lambda field: device[field.group(1)],  # noqa: B023  # called at once
                found.group(2).replace('{{ printf "%02d" $number }}', f"{number:02d}"),
            )
            for number, device in enumerate(matched[found.group(1)])
        )

    text = _LEN.sub(lambda found: str(len(matched[found.group(1)])), template)
    text = _RANGE.sub(one_range, text)
    assert "{{" not in text, text
    lines = filter(None, map(str.strip, text.splitlines()))
    return dict(line.split("=", 1) for line in lines)


def _value(text: str, attributes: dict[str, dict[str, str]]) -> str:
    if not text.startswith("@"):
        return text
    domain, feature, element = text[1:].split(".", 2)
    return attributes[f"{domain}.{feature}"][element]
