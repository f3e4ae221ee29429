"""Where a pod's volumes and other pods allow its node to be, as requirements on labels that a node can be asked for with.

kube-scheduler judges by objects that a request for a node cannot name: it stands for several pods, in another namespace.
So what they say is translated for each plan. Labels that no autoscaler knows are named, and left to kube-scheduler.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from msgspec import structs

from api.foreign.core import NodeSelectorTerm
from api.meta import SelectorOperator, SelectorRequirement
from api.well_known_labels import HOSTNAME_LABEL, ZONE_LABEL
from autoscaling.node_selections import is_well_known
from pool.model import PodSelection
from pool.peer_rules import PeerKind

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from api.foreign.storage import TopologyTerm
    from pool.peer_rules import PeerRule

_ZONES_OF_DRIVERS: Final = frozenset(
    {
        "failure-domain.beta.kubernetes.io/zone",
        "topology.ebs.csi.aws.com/zone",
        "topology.disk.csi.azure.com/zone",
        "topology.gke.io/zone",
    }
)
"""Labels of volumes whose values are those of `ZONE_LABEL`."""
_MOST_TERMS: Final = 64
"""Most terms of one pod: the alternatives of several volumes multiply."""


@final
@dataclass(frozen=True, slots=True)
class Place:
    """What one volume, or one rule about other pods, says of the node."""

    terms: tuple[NodeSelectorTerm, ...] = ()
    """Terms of which one must hold; none: it may be anywhere."""
    omitted: str = ""
    """What labels do not say; empty where they say all."""
    undecided: str = ""
    """Why no node can be the right one yet."""


def place_of_volume(claim: str, terms: "Sequence[NodeSelectorTerm]") -> Place:
    """Return the place of a volume by the node affinity that it has."""
    supported = [_with_supported_keys(term) for term in terms]
    is_whole = all(
        found == term for found, term in zip(supported, map(_with_zones, terms), strict=True)
    )
    return Place(
        tuple(supported) if all(term.match_expressions for term in supported) else (),
        "" if is_whole else f"a part of the place of claim {claim}",
    )


def place_of_class(claim: str, topologies: "Iterable[TopologyTerm]") -> Place:
    """Return the place of a volume that is made where the pod is, within what its storage class allows."""
    return place_of_volume(
        claim,
        [
            NodeSelectorTerm(
                match_expressions=[
                    _requirement(expression.key, SelectorOperator.IN, expression.values or ())
                    for expression in topology.match_label_expressions or ()
                ]
            )
            for topology in topologies
        ],
    )


def place_by_peers(
    rule: "PeerRule", counts: "Mapping[str, int]", domains: "Collection[str]"
) -> Place:
    """Return where a rule about other pods allows the node.

    Args:
        rule: the rule.
        counts: value of the rule's label -> the other pods on nodes that have it.
        domains: the values on nodes that the pod may go to.
    """
    match rule.kind:
        case PeerKind.AFFINITY if not counts:
            # The first of pods that want to be near each other goes anywhere.
            where = f"{rule} wants a node near other pods, of which none is bound yet"
            return Place() if rule.counts_itself else Place(undecided=where)
        case PeerKind.AFFINITY if not _can_be_asked_for(rule.key):
            return Place(omitted=str(rule))
        case PeerKind.AFFINITY:
            return _place(rule.key, SelectorOperator.IN, counts)
        case PeerKind.ANTI_AFFINITY:
            return _place(rule.key, SelectorOperator.NOT_IN, counts)
        case PeerKind.SPREAD:
            figures = {value: counts.get(value, 0) for value in domains}
            least = min(figures.values(), default=0) if len(figures) >= rule.min_domains else 0
            most = rule.max_skew + least - rule.counts_itself
            full = [value for value, count in figures.items() if count > most]
            return _place(rule.key, SelectorOperator.NOT_IN, full)


def placed(selection: PodSelection, places: "Iterable[Place]") -> PodSelection:
    """Return the selection with what its volumes and other pods say of the node.

    Of the rules those are left that keep pods of one plan apart.
    """
    omitted: list[str] = []
    undecided = ""
    for place in places:
        narrowed = with_terms(selection, place.terms)
        if len(narrowed.affinity) <= _MOST_TERMS:
            selection = narrowed
        else:
            omitted.append("places of volumes that are too many")
        omitted += [place.omitted] if place.omitted else []
        undecided = undecided or place.undecided
    return structs.replace(
        selection,
        claims=(),
        peers=tuple(rule for rule in selection.peers if rule.forbids_two_on_a_node),
        omitted=(*selection.omitted, *dict.fromkeys(omitted)),
        undecided=undecided,
    )


def with_terms(selection: PodSelection, terms: "Sequence[NodeSelectorTerm]") -> PodSelection:
    """Return the selection with a second list of terms, of which one must hold too; none demands nothing."""
    if not terms:
        return selection
    both = [
        structs.replace(
            own,
            match_expressions=[*(own.match_expressions or ()), *(other.match_expressions or ())],
        )
        for own in selection.affinity or (NodeSelectorTerm(),)
        for other in terms
        if not selection.affinity or own.match_expressions or own.match_fields
    ]
    # A term without expressions selects no node, and stays so.
    return structs.replace(selection, affinity=tuple(both) or selection.affinity)


def _place(key: str, operator: SelectorOperator, values: "Collection[str]") -> Place:
    if not values:
        return Place()
    return Place((NodeSelectorTerm(match_expressions=[_requirement(key, operator, values)]),))


def _with_supported_keys(term: NodeSelectorTerm) -> NodeSelectorTerm:
    """Return what an autoscaler can be asked for of a term."""
    supported = [
        expression
        for expression in _with_zones(term).match_expressions or ()
        if _can_be_asked_for(expression.key)
    ]
    return NodeSelectorTerm(match_expressions=supported)


def _with_zones(term: NodeSelectorTerm) -> NodeSelectorTerm:
    """Return a term with the one label of zones."""
    expressions = [
        structs.replace(expression, key=ZONE_LABEL)
        if expression.key in _ZONES_OF_DRIVERS
        else expression
        for expression in term.match_expressions or ()
    ]
    return NodeSelectorTerm(match_expressions=expressions, match_fields=term.match_fields)


def _can_be_asked_for(key: str) -> bool:
    return key == HOSTNAME_LABEL or is_well_known(key)


def _requirement(
    key: str, operator: SelectorOperator, values: "Iterable[str]"
) -> SelectorRequirement:
    return SelectorRequirement(key=key, operator=operator, values=sorted(values))
