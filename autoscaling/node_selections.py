"""What pods demand of a node's labels, against what is known of a node that does not exist yet.

A label is *known* where each node of a shape has it: by the shape's requirements, or by the NodePool. Labels that the
autoscaler knows for each cloud (`_WELL_KNOWN`) can have any value that nothing excludes. A pod that demands any other
label gets no node: the autoscaler could not make one, or would make one that the pod does not go to.
"""

from typing import TYPE_CHECKING, Final, final

import msgspec
from msgspec import structs

from api.foreign.core import Affinity, NodeAffinity, NodeSelector
from api.foreign.karpenter import CAPACITY_TYPE_LABEL, NODE_POOL_LABEL
from api.meta import SelectorOperator, SelectorRequirement
from api.well_known_labels import (
    ARCH_LABEL,
    HOSTNAME_LABEL,
    INSTANCE_TYPE_LABEL,
    OS_LABEL,
    REGION_LABEL,
    ZONE_LABEL,
)
from pool.model import Constraints, PodSelection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from api.foreign.core import NodeSelectorTerm
    from autoscaling.scaling_model import NodePoolFacts, ShapeParameters

_WELL_KNOWN: Final = frozenset(
    {
        ZONE_LABEL,
        INSTANCE_TYPE_LABEL,
        CAPACITY_TYPE_LABEL,
        REGION_LABEL,
        ARCH_LABEL,
        OS_LABEL,
        "node.kubernetes.io/windows-build",
    }
)
_PROVIDER_PREFIXES: Final = ("karpenter.k8s.", "karpenter.azure.com/", "karpenter.kwok.sh/")
_NOTHING: Final = PodSelection()
_encode: Final = msgspec.json.Encoder().encode


@final
class NodeSelection:
    """Node selector, required affinity and tolerations that pods have in common."""

    __slots__ = ("anti_affinity", "constraints", "labels", "node_key", "terms")

    def __init__(self, selection: PodSelection) -> None:
        self.labels: Mapping[str, str] = dict(selection.node_selector)
        self.terms = _of_new_nodes(selection.affinity)
        """Terms of nodes that do not exist yet."""
        self.node_key = selection_key(PodSelection(selection.node_selector, self.terms))
        """What pods have in common for which equal nodes can be asked for."""
        node_affinity = NodeAffinity(NodeSelector(list(selection.affinity)))
        self.constraints = Constraints(
            node_selector=self.labels,
            affinity=Affinity(node_affinity) if selection.affinity else None,
            tolerations=selection.tolerations,
        )
        """Constraints for nodes that exist."""
        self.anti_affinity = frozenset(
            rule for rule in selection.peers if rule.forbids_two_on_a_node
        )
        """Rules that keep two of the pods from one node."""

    @property
    def is_pinned(self) -> bool:
        """Whether it names single nodes, none of which can be added."""
        return HOSTNAME_LABEL in self.labels or (
            bool(self.terms) and all(map(_names_nodes, self.terms))
        )

    @property
    def zone(self) -> str:
        """The only zone that it allows; empty where there is none such."""
        if ZONE_LABEL in self.labels:
            return self.labels[ZONE_LABEL]
        found = {
            tuple(item.values or ())
            for term in self.terms
            for item in [_in(term, ZONE_LABEL)]
            if item is not None
        }
        only = next(iter(found), ())
        has_each = all(_in(term, ZONE_LABEL) is not None for term in self.terms)
        return only[0] if len(found) == 1 and len(only) == 1 and has_each else ""

    def without(self, labels: "Mapping[str, str]") -> "dict[str, str]":
        """Return the node selector without what these labels satisfy."""
        return {key: value for key, value in self.labels.items() if labels.get(key) != value}

    def holds_on(self, labels: "Mapping[str, str]") -> bool:
        """Say whether a node of which these labels are known satisfies it, whatever other labels it has."""
        return self.labels.items() <= labels.items() and (
            not self.terms or any(_holds(term, labels) for term in self.terms)
        )


def selection_key(selection: PodSelection | None) -> bytes:
    """Return what equal selections have in common; by which claims they are as they are is no matter."""
    if selection is None:
        return b""
    selection = structs.replace(selection, claims=(), omitted=(), unweighed=())
    return b"" if selection == _NOTHING else _encode(selection)


@final
class ShapeLabels:
    """What is known, and what is possible, of the labels of a shape's nodes."""

    def __init__(
        self,
        shape: "ShapeParameters",
        node_pool: "NodePoolFacts | None",
        *,
        zones: "frozenset[str]" = frozenset(),
    ) -> None:
        """Take what is known.

        Args:
            shape: the shape.
            node_pool: its NodePool; None while that is not known.
            zones: of the cluster's nodes and volumes. Where there are some, and neither shape nor NodePool names zones, no other zone
                can be asked for: pods may demand zones that do not exist.
        """
        self._zones = zones
        self._shape = shape.name
        self._node_pool = shape.node_pool
        self._rules: dict[str, list[_Rule]] = {}
        for item in shape.requirements:
            self._add(item.key, item.operator, item.values)
        for requirement in node_pool.requirements if node_pool is not None else ():
            self._add(requirement.key, SelectorOperator(requirement.operator), requirement.values)
        node_pool_labels = dict(node_pool.labels) if node_pool is not None else {}
        for key, value in node_pool_labels.items():
            self._add(key, SelectorOperator.IN, [value])
        self.labels_by_key: Mapping[str, str] = (
            {NODE_POOL_LABEL: shape.node_pool}
            | node_pool_labels
            | dict(shape.labels)
            | {
                key: next(iter(values))
                for key in self._rules
                for values in [self._possible(key)]
                if values is not None and len(values) == 1
            }
        )
        """Labels that each node of the shape has."""
        self._add(NODE_POOL_LABEL, SelectorOperator.IN, [shape.node_pool])

    def mismatch(self, selection: NodeSelection) -> str:
        """Return what no node of the shape can satisfy, with the cure; empty where one can be asked for."""
        for key, value in sorted(selection.labels.items()):
            if not self._allows(key, value):
                return self._text(key, f"{key}={value}")
        faults = [self._fault_of(term) for term in selection.terms]
        return faults[0] if faults and all(faults) else ""

    def _fault_of(self, term: "NodeSelectorTerm") -> str:
        if not (term.match_expressions or term.match_fields):
            return "a required node affinity term of the pod is empty and matches no node: give it an expression"
        if term.match_fields:
            return f"the pod's required node affinity names nodes, and a node of shape {self._shape} would be another one"
        return next(
            (
                self._text(
                    expression.key,
                    f"{expression.operator.value} {expression.key} {','.join(expression.values or ())}",
                )
                for expression in term.match_expressions or ()
                if not self._is_possible(expression)
            ),
            "",
        )

    def _is_possible(self, requirement: "SelectorRequirement") -> bool:
        is_known = requirement.key in self._rules or is_well_known(requirement.key)
        values = self._possible(requirement.key)
        if values is not None:
            return any(map(requirement.test(), values))
        match requirement.operator:
            case SelectorOperator.IN:
                return any(
                    self._allows(requirement.key, value) for value in requirement.values or ()
                )
            case SelectorOperator.NOT_IN:
                return True
            case SelectorOperator.UNKNOWN:
                return False
            case SelectorOperator.DOES_NOT_EXIST:
                return not is_known
            case _:
                return is_known

    def _allows(self, key: str, value: str) -> bool:
        rules = self._rules.get(key)
        if rules is None:
            is_unknown_zone = key == ZONE_LABEL and self._zones and value not in self._zones
            return is_well_known(key) and not is_unknown_zone
        return all(accepts(value) for accepts, _ in rules)

    def _possible(self, key: str) -> "list[str] | None":
        """Return the values that the label can have; None where they are not listed."""
        listed = [values for _, values in self._rules.get(key, ()) if values is not None]
        if not listed:
            return None
        return [value for value in listed[0] if self._allows(key, value)]

    def _add(self, key: str, operator: SelectorOperator, values: "list[str] | None") -> None:
        """Add a requirement; one with an unknown operator leaves all values."""
        is_listed = operator is SelectorOperator.IN
        test = SelectorRequirement(key, operator, values).test()
        accepts = _leaves_all if operator is SelectorOperator.UNKNOWN else test
        self._rules.setdefault(key, []).append((accepts, list(values or ()) if is_listed else None))

    def _text(self, key: str, demanded: str) -> str:
        if key in self._rules:
            return (
                f"the pod demands {demanded[:128]}, which nodes of shape {self._shape} do not have: "
                f"change the pod's node selector, or the requirements of the shape or of NodePool {self._node_pool}"
            )
        return (
            f"the pod demands {demanded[:128]}, of which shape {self._shape} says nothing: add the label to NodePool "
            f"{self._node_pool}, or to the requirements of the shape, or take it from the pod"
        )


def _of_new_nodes(terms: "tuple[NodeSelectorTerm, ...]") -> "tuple[NodeSelectorTerm, ...]":
    """Return terms without the nodes that they exclude by name, none of which is a new one."""
    found: list[NodeSelectorTerm] = []
    for term in terms:
        left = [
            expression
            for expression in term.match_expressions or ()
            if not _excludes_nodes(expression)
        ]
        if len(left) == len(term.match_expressions or ()):
            found.append(term)
        elif left or term.match_fields:
            found.append(structs.replace(term, match_expressions=left or None))
        else:
            return ()
    return tuple(found)


def _excludes_nodes(requirement: "SelectorRequirement") -> bool:
    return requirement.key == HOSTNAME_LABEL and requirement.operator is SelectorOperator.NOT_IN


def is_well_known(key: str) -> bool:
    return key in _WELL_KNOWN or key.startswith(_PROVIDER_PREFIXES)


def _names_nodes(term: "NodeSelectorTerm") -> bool:
    return bool(term.match_fields) or _in(term, HOSTNAME_LABEL) is not None


def _in(term: "NodeSelectorTerm", key: str) -> "SelectorRequirement | None":
    expressions: Iterable[SelectorRequirement] = term.match_expressions or ()
    return next(
        (
            expression
            for expression in expressions
            if expression.key == key and expression.operator is SelectorOperator.IN
        ),
        None,
    )


def _holds(term: "NodeSelectorTerm", labels: "Mapping[str, str]") -> bool:
    """Say whether a term holds by known labels alone: a label that is not known may have any value."""
    expressions = term.match_expressions or ()
    return (
        bool(expressions)
        and not term.match_fields
        and all(
            expression.key in labels and expression.matches(labels) for expression in expressions
        )
    )


def _leaves_all(_value: str) -> bool:
    return True


if TYPE_CHECKING:
    _Rule = tuple[Callable[[str], bool], list[str] | None]
    """A predicate on values, and the values that it lists."""
