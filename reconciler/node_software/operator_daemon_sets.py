"""DaemonSets that NVIDIA's GPU Operator made: those that are ours to take over go step by step, and beside others nothing starts.

What is taken over, and how, is pure (`operands.nvidia.adoption`). No step ends a pod.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, final

from api.names import OPERAND_LABEL, OPERANDS_LABEL
from api.text import listed
from kube.errors import ApiError, Conflict
from kube.resources import DAEMON_SETS
from manifests.constants import NAME
from operands.nvidia.adoption import (
    APP,
    is_finished,
    is_operators,
    nodes_to_lose,
    running_duplicate,
    successors,
    taken_over,
)
from operands.nvidia.policy_status import StateReason
from operands.transforms import pod_spec_of
from reconciler.node_software.state_outcomes import refusal_text, unobserved
from reconciler.runtime.object_applier import Refusal, first_difference

if TYPE_CHECKING:
    from collections.abc import Callable

    from kube.client import KubeClient
    from reconciler.node_software.state_outcomes import DesiredState, StateOutcome
    from reconciler.runtime.object_applier import ObjectApplier

Json = dict[str, Any]


@final
class OperatorDaemonSets:
    """Takes over the operator's DaemonSets of one namespace."""

    def __init__(self, client: "KubeClient", applier: "ObjectApplier", namespace: str) -> None:
        self._client = client
        self._applier = applier
        self._namespace = namespace

    async def without_running_duplicates(
        self, desired: "Sequence[DesiredState]", nodes: Mapping[str, Mapping[str, str]]
    ) -> "list[DesiredState]":
        """Leave out the objects of states whose component a DaemonSet of another client, of any namespace, runs on the same nodes.

        While the API server refuses the list, states with a DaemonSet stay as they are, and say so.

        Raises:
            KubeError: the API server gives no answer.
        """
        try:
            listing = await self._client.list_(
                DAEMON_SETS, Json, label_selector=f"{APP},!{OPERAND_LABEL}"
            )
        except ApiError as error:
            text = refusal_text(Refusal("", "DaemonSet", "", error))
            fault = StateReason.OBJECT_NOT_APPLIED, f"those of all namespaces: {text}"
            return [
                replace(item, objects=(), fault=item.fault or fault)
                if any(body["kind"] == "DaemonSet" for body in item.objects)
                else item
                for item in desired
            ]
        return [
            item
            if (found := running_duplicate(item.objects, listing.items, nodes)) is None
            else replace(item, objects=(), fault=(StateReason.ALREADY_RUNS, _already_runs(*found)))
            for item in desired
        ]

    async def take_over(
        self,
        state: "DesiredState",
        found: "Sequence[Json]",
        outcome: "StateOutcome",
        *,
        nodes: Mapping[str, Mapping[str, str]],
        owners: "Callable[[Json], list[Json]]",
    ) -> tuple[set[str], list[Json]]:
        """Take the next step with each that is the operator's; return their names, and the objects to apply as usual.

        Args:
            state: what it is to have.
            found: DaemonSets with its label.
            outcome: of the state.
            nodes: labels of the nodes with a GPU.
            owners: returns those of a DaemonSet, which are the operator's policy alone until then.

        Raises:
            KubeError: it is not known whether a step was taken.
        """
        old = {item["metadata"]["name"]: item for item in found if is_operators(item)}
        desired = [item for item in state.objects if item["kind"] == "DaemonSet"]
        taken = successors(old.values(), desired, nodes)
        held = list(taken.values())
        for name, successor in taken.items():
            body = taken_over(old[name], successor, desired=desired, labels_by_node=nodes)
            body["metadata"]["ownerReferences"] = owners(body)
            lost = nodes_to_lose(old[name], desired, nodes)
            if lost and _node_selector(body) != _node_selector(old[name]):
                text = f"DaemonSet {name} stays as it is until nodes {listed(lost)} have the labels by which ours selects them"
                outcome.fault = outcome.fault or (StateReason.ADOPTION_WAITS, text)
                held = desired
                continue
            is_over = is_finished(old[name], successor)
            refusal = await self._step(
                state.name, body, found=old[name], is_over=is_over, outcome=outcome
            )
            if refusal is not None:
                outcome.note(refusal)
        return set(taken), [item for item in state.objects if item not in held]

    async def _step(
        self, state: str, body: Json, *, found: Json, is_over: bool, outcome: "StateOutcome"
    ) -> Refusal | None:
        name = "DaemonSet", body["metadata"]["name"]
        is_leaving = bool(found["metadata"].get("deletionTimestamp"))
        if not is_leaving and first_difference(body, found):
            try:
                await self._replace(body)
            except Conflict:
                raise
            except ApiError as error:
                return Refusal(state, *name, error)
            found = unobserved(body, found)
        elif is_leaving or is_over:
            outcome.left.append(" ".join(name))
            return await self._applier.delete(state, name, found, propagation="Orphan")
        outcome.objects += 1
        outcome.daemon_sets.append(found)
        return None

    async def _replace(self, body: Json) -> None:
        """Write all of it: an apply would leave what the operator's template has besides."""
        await self._client.json_patch(
            DAEMON_SETS,
            [
                {"op": "replace", "path": f"/{part}", "value": body[part]}
                for part in ("metadata", "spec")
            ],
            name=body["metadata"]["name"],
            namespace=self._namespace,
        )


def _node_selector(daemon_set: Json) -> Json | None:
    found: Json | None = pod_spec_of(daemon_set).get("nodeSelector")
    return found


def _already_runs(found: Json, where: str) -> str:
    meta = found["metadata"]
    return (
        f"DaemonSet {meta['namespace']}/{meta['name']} of another client does the same on {where}, so that nothing is"
        f" started beside it: `{NAME} operands adopt --dry-run` says how to hand it over, and label {OPERANDS_LABEL}=false"
        " leaves it a node"
    )
