"""What a PromQL expression asks for: its selectors, and the labels that each part of it has.

An aggregation, a matcher or a join by a label that its operand does not have is a mistake that Prometheus accepts: the
result is empty, or one series too few.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

import promql_parser as promql

GRAFANA: Final = {"$__rate_interval": "5m", "$__range": "1h", "$price": "2"}
"""Variables that stand outside of quotes."""
_SETS: Final = {"and", "or", "unless"}
_COMPARISONS: Final = {"==", "!=", ">", "<", ">=", "<="}
_KEEPING: Final = {"topk", "bottomk"}
"""Aggregations whose series keep all their labels."""

Labels = frozenset[str]
NONE: Final[Labels] = frozenset()


class UnknownNameError(Exception):
    """The expression names a series or a label that nothing exports."""


def filled(expression: str, variables: Mapping[str, str]) -> str:
    """Return the expression with the variables of Grafana replaced, the longest names first."""
    for name in sorted(variables, key=len, reverse=True):
        expression = expression.replace(name, variables[name])
    return expression


def parsed(expression: str, variables: Mapping[str, str] = GRAFANA) -> promql.Expr:
    """Parse an expression; a variable in quotes stays."""
    text = filled(expression, variables)
    unknown = re.sub(r'"[^"]*"', "", text)
    assert "$" not in unknown, f"variable outside of quotes: {unknown}"
    return promql.parse(text)


def selectors(expression: promql.Expr) -> list[promql.VectorSelector]:
    found: list[promql.VectorSelector] = []

    def collect(one: promql.Expr) -> None:
        if isinstance(one, promql.MatrixSelector):
            found.append(one.vector_selector)
        elif isinstance(one, promql.VectorSelector):
            found.append(one)

    promql.walk(expression, collect)
    return found


def labels_in(expression: promql.Expr, labels_by_series: Mapping[str, Labels]) -> Labels:
    """Return the labels that the result may have.

    Args:
        expression: of any kind.
        labels_by_series: name of a series -> its labels.

    Raises:
        UnknownNameError: it asks for a series that is not known, or for a label that is not there.
    """
    match expression:
        case promql.NumberLiteral() | promql.StringLiteral():
            return NONE
        case promql.VectorSelector():
            return _of_selector(expression, labels_by_series)
        case promql.MatrixSelector():
            return _of_selector(expression.vector_selector, labels_by_series)
        case promql.ParenExpr() | promql.UnaryExpr() | promql.SubqueryExpr():
            return labels_in(expression.expr, labels_by_series)
        case promql.AggregateExpr():
            return _of_aggregation(expression, labels_by_series)
        case promql.Call():
            return _of_call(expression, labels_by_series)
        case promql.BinaryExpr():
            return _of_operation(expression, labels_by_series)
        case _:
            raise NotImplementedError(f"{type(expression)}: {expression}")


def measured(expression: promql.Expr) -> Iterator[promql.Expr]:
    """Yield the parts that give values, without the comparisons that choose among them."""
    if isinstance(expression, promql.ParenExpr):
        yield from measured(expression.expr)
    elif isinstance(expression, promql.BinaryExpr) and str(expression.op) in {
        *_SETS,
        *_COMPARISONS,
    }:
        yield from measured(expression.lhs)
        yield from measured(expression.rhs)
    elif isinstance(expression, promql.Call) and expression.func.name == "absent":
        yield from measured(expression.args[0])
    elif selectors(expression):
        yield expression


def groupings(expression: promql.Expr) -> list[tuple[str, Labels]]:
    """Return the labels by which aggregations group, and joins match where they name labels, with their text."""
    found: list[tuple[str, Labels]] = []

    def add(part: promql.Expr) -> None:
        if isinstance(part, promql.AggregateExpr):
            found.append((str(part), frozenset(part.modifier.labels if part.modifier else ())))
        elif isinstance(part, promql.BinaryExpr) and part.modifier and part.modifier.matching:
            found.append((str(part), frozenset(part.modifier.matching.labels)))

    promql.walk(expression, add)
    return found


def _of_selector(selector: promql.VectorSelector, labels_by_series: Mapping[str, Labels]) -> Labels:
    name = selector.name or ""
    if name not in labels_by_series:
        raise UnknownNameError(f"no series {name}")
    _check(
        {matcher.name for matcher in selector.matchers.matchers}, labels_by_series[name], selector
    )
    return labels_by_series[name]


def _of_aggregation(
    aggregation: promql.AggregateExpr, labels_by_series: Mapping[str, Labels]
) -> Labels:
    inner = labels_in(aggregation.expr, labels_by_series)
    by = frozenset(aggregation.modifier.labels) if aggregation.modifier else NONE
    if aggregation.modifier is not None:
        assert aggregation.modifier.type == promql.AggModifierType.By, "`without` is not checked"
    _check(by, inner, aggregation)
    return inner if str(aggregation.op) in _KEEPING else by


def _of_call(call: promql.Call, labels_by_series: Mapping[str, Labels]) -> Labels:
    inner = NONE.union(*(labels_in(arg, labels_by_series) for arg in call.args))
    match call.func.name:
        case "histogram_quantile":
            _check({"le"}, inner, call)
            return inner - {"le"}
        case "label_replace":
            target, source = (str(call.args[place].val) for place in (1, 3))
            _check({source}, inner, call)
            return inner | {target}
        case _:
            return inner


def _of_operation(operation: promql.BinaryExpr, labels_by_series: Mapping[str, Labels]) -> Labels:
    left, right = (labels_in(item, labels_by_series) for item in (operation.lhs, operation.rhs))
    modifier = operation.modifier
    if modifier is None or modifier.matching is None:
        return left | right
    assert modifier.matching.type == promql.LabelModifierType.Include, "`ignoring` is not checked"
    on = frozenset(modifier.matching.labels)
    _check(on, left, operation)
    _check(on, right, operation)
    grouped = frozenset(modifier.group_labels or ())
    if modifier.card == promql.VectorMatchCardinality.ManyToOne:
        _check(grouped, right, operation)
        return left | grouped
    return left if str(operation.op) in _SETS else on


def _check(asked: "set[str] | Labels", labels_by_series: Labels, where: promql.Expr) -> None:
    if not asked <= labels_by_series:
        raise UnknownNameError(f"no label {', '.join(sorted(asked - labels_by_series))} in {where}")
