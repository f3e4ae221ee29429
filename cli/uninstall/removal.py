"""Carries a plan out, stage by stage, until a survey finds nothing left.

No write is assumed to have happened: after each round the cluster is read again. A conflict or a
failing API server ends the round, and the next one starts with what is left, so that a run that
was cut short at any step is completed by the next run.
"""

import asyncio
from typing import TYPE_CHECKING, Any, Final, final

import msgspec

from api.meta import PartialObjectMetadata
from api.names import GKM_GROUP
from api.text import listed
from cli.uninstall import removal_plan as planning
from cli.uninstall.own_kinds import RemovalOptions, RemovalStage
from cli.uninstall.removal_plan import FoundObject, RemovalAction, RemovalPlan, RemovalSurvey, Step
from cli.uninstall.survey import survey
from kube.backoff import Backoff
from kube.errors import Conflict, Forbidden, KubeError, NotFound
from kube.event_recorder import micro_time
from kube.leader_election import Lease
from kube.resources import LEASES, PODS, SELF_SUBJECT_ACCESS_REVIEWS
from manifests import constants

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from api.clock import Clock
    from kube.client import KubeClient

HOLD_S: Final = 60
"""Seconds for which no replica takes over, even if the uninstall is killed."""
RENEW_S: Final = 20.0
POLL_S: Final = 0.5
PODS_GONE_WITHIN_S: Final = 45.0
"""The server and the agents end within their grace periods; on a node that is down they never do."""
MOST_LINES: Final = 20
"""Steps of a stage with a line each; more of them are counted."""
CONCURRENCY: Final = 16


class RemovalError(Exception):
    """The removal cannot go on; the text is one line."""


@final
class Removal:
    """One run of the command."""

    def __init__(
        self,
        client: "KubeClient",
        clock: "Clock",
        options: RemovalOptions,
        *,
        report: "Callable[[str], None]",
    ) -> None:
        self._client = client
        self._clock = clock
        self._options = options
        self._report = report
        self._deadline = clock.monotonic() + options.timeout_s
        self._held: FoundObject | None = None
        self._held_at = 0.0
        self._elsewhere = ""
        """A server that leads and that no Deployment here runs."""
        self._has_waited = False
        self._done = 0

    async def run(self) -> None:
        """Remove everything, or print what would be removed.

        Raises:
            RemovalError: nothing was removed, or something is left; another run continues.
        """
        found = await self._first_survey()
        self._elsewhere = planning.server_elsewhere(found, self._clock.utc_now())
        self._check_namespace(found)
        users = planning.pods_in_use(found.pods, self._clock.utc_now())
        refusal = planning.refusal_text(users, found.cache_pods)
        if refusal and not self._options.is_forced:
            raise RemovalError(refusal)
        if found.unread and not self._options.is_forced:
            raise RemovalError(planning.unread_text(found.unread))
        plan = self._plan(found)
        await self._check_rights(plan)
        if self._options.is_dry_run:
            for stage in RemovalStage:
                self._list(stage, [f"would {step.text}" for step in plan.of(stage)])
        else:
            found = await self._until_nothing_is_left(found)
            self._report(f"{self._done} objects removed or cleaned")
        if self._elsewhere:
            self._report(
                f"left: server {self._elsewhere}, of no Deployment in this namespace, and its Lease,"
                f" which is held for {HOLD_S} s: stop the server and run the command again"
            )
        for text in planning.left_texts(found):
            self._report(f"left: {text}")

    async def _first_survey(self) -> RemovalSurvey:
        try:
            return await survey(self._client, self._options)
        except Forbidden as error:
            raise RemovalError(f"nothing was removed: {error.message}") from error
        except KubeError as error:
            raise RemovalError(f"nothing was removed: {error}") from error

    def _check_namespace(self, found: RemovalSurvey) -> None:
        """Refuse a wrong --namespace, with which half of a working installation would be removed."""
        elsewhere = sorted(found.served_from - {self._options.own.namespace})
        if elsewhere:
            raise RemovalError(
                f"nothing was removed: the webhooks call a Service in namespace {elsewhere[0]};"
                f" is the control plane there? Then pass --namespace {elsewhere[0]}"
            )

    async def _check_rights(self, plan: RemovalPlan) -> None:
        """Ask the API server before the first write: half a removal is worse than none."""
        missing: list[str] = []
        for right in dict.fromkeys(_right_of(step) for step in plan.steps):
            body = {"spec": {"resourceAttributes": dict(right)}}
            try:
                answer = await self._client.create(SELF_SUBJECT_ACCESS_REVIEWS, body)
            except KubeError:
                # The review is a courtesy: a write that is forbidden says so, too.
                return
            if not answer.decode(dict[str, Any])["status"].get("allowed"):
                missing.append(_right_text(**dict(right)))
        if missing:
            raise RemovalError(f"nothing was removed: no right to {', '.join(missing)}")

    def _plan(self, found: RemovalSurvey) -> RemovalPlan:
        return planning.plan_removal(found, keeps_lease=bool(self._elsewhere))

    def _list(self, stage: RemovalStage, lines: "Sequence[str]") -> None:
        if len(lines) > MOST_LINES:
            self._report(f"{stage.value}: {lines[0]} and {len(lines) - 1} more")
            return
        for line in lines:
            self._report(f"{stage.value}: {line}")

    async def _until_nothing_is_left(self, found: RemovalSurvey) -> RemovalSurvey:
        backoff = Backoff(cap_s=5.0)
        cause = ""
        plan = self._plan(found)
        while plan.steps or plan.being_deleted:
            if self._clock.monotonic() > self._deadline:
                raise RemovalError(self._overdue_text(plan, cause))
            try:
                await self._carry_out(plan)
                await self._await_gone(plan.being_deleted)
                found = await survey(self._client, self._options)
                plan = self._plan(found)
                backoff.succeed()
            except Forbidden as error:
                raise RemovalError(f"not everything was removed: {error.message}") from error
            except KubeError as error:
                cause = str(error)
                if not (error.is_transient or isinstance(error, Conflict)):
                    raise RemovalError(f"not everything was removed: {cause}") from error
                await asyncio.sleep(backoff.fail())
                found, plan = await self._plan_again(found, plan)
        return found

    async def _plan_again(
        self, found: RemovalSurvey, plan: RemovalPlan
    ) -> tuple[RemovalSurvey, RemovalPlan]:
        """Read the cluster after a failure; keep the old plan while it cannot be read."""
        try:
            found = await survey(self._client, self._options)
        except KubeError:
            return found, plan
        return found, self._plan(found)

    def _overdue_text(self, plan: RemovalPlan, cause: str) -> str:
        left = [*(step.target for step in plan.steps), *plan.being_deleted]
        finalizers = sorted({name for item in plan.being_deleted for name in item.finalizers})
        texts = [
            f"{len(left)} objects are left after {self._options.timeout_s:g} s, first {left[0].text}",
            f"finalizers of others hold some back: {', '.join(finalizers)}" if finalizers else "",
            cause,
            "run the command again",
        ]
        return "; ".join(text for text in texts if text)

    async def _carry_out(self, plan: RemovalPlan) -> None:
        for stage in RemovalStage:
            steps = plan.of(stage)
            if steps:
                await self._renew_hold()
                await self._carry_out_stage(stage, steps)
            if stage is RemovalStage.VALIDATION and steps:
                await asyncio.sleep(planning.POLICY_PAUSE_S)
            if stage is RemovalStage.AGENTS:
                await self._await_own_pods_gone()

    async def _carry_out_stage(self, stage: RemovalStage, steps: "Sequence[Step]") -> None:
        is_long = len(steps) > MOST_LINES
        if is_long and stage in _AT_ONCE:
            await self._patch_many(steps)
        else:
            for step in steps:
                await self._take(step)
                if not is_long:
                    self._list(stage, [step.past_text])
        if is_long:
            self._list(stage, [step.past_text for step in steps])

    async def _patch_many(self, steps: "Sequence[Step]") -> None:
        """Patch many at once; one error ends the round, when all patches have been answered."""
        slots = asyncio.Semaphore(CONCURRENCY)
        errors: list[KubeError] = []

        async def patch(step: Step) -> None:
            async with slots:
                try:
                    await self._take(step)
                except KubeError as error:
                    errors.append(error)

        async with asyncio.TaskGroup() as group:
            for step in steps:
                group.create_task(patch(step))
        if errors:
            # A refusal is the more telling one.
            raise min(errors, key=lambda error: error.is_transient)

    async def _take(self, step: Step) -> None:
        target = step.target
        try:
            match step.action:
                case RemovalAction.DELETE:
                    await self._client.delete(
                        target.resource,
                        target.name,
                        namespace=target.namespace,
                        uid=target.uid,
                        propagation="Background",
                    )
                case RemovalAction.PATCH:
                    await self._client.merge_patch(
                        target.resource, step.body, name=target.name, namespace=target.namespace
                    )
                case RemovalAction.SCALE:
                    await self._client.merge_patch(
                        target.resource,
                        {"spec": {"replicas": 0}},
                        name=target.name,
                        namespace=target.namespace,
                        subresource="scale",
                    )
                case RemovalAction.HOLD:  # pragma: no branch  # mypy: none is missing
                    await self._hold(target)
        except NotFound as error:
            if not error.names_object:
                raise
            return
        self._done += step.action is not RemovalAction.HOLD

    async def _hold(self, target: FoundObject) -> None:
        """Write the Lease: its holder stops leading at the next renewal, and no other takes over."""
        lease = await self._client.get(LEASES, Lease, target.name, namespace=target.namespace)
        now = micro_time(self._clock.utc_now())
        spec = msgspec.structs.replace(
            lease.spec,
            holder_identity=planning.HOLDER,
            lease_duration_seconds=HOLD_S,
            acquire_time=now,
            renew_time=now,
            lease_transitions=lease.spec.lease_transitions
            + (lease.spec.holder_identity != planning.HOLDER),
        )
        await self._client.replace(LEASES, msgspec.structs.replace(lease, spec=spec))
        self._held_at = self._clock.monotonic()
        self._held = target

    async def _renew_hold(self) -> None:
        if self._held is None or self._clock.monotonic() < self._held_at + RENEW_S:
            return
        try:
            await self._hold(self._held)
        except NotFound as error:
            if not error.names_object:
                raise
            self._held = None

    async def _await_own_pods_gone(self) -> None:
        """Wait for the server's and the agents' pods, which could write again what is removed."""
        if self._has_waited:
            return
        until = min(self._deadline, self._clock.monotonic() + PODS_GONE_WITHIN_S)
        if names := await self._own_pods():
            self._report(f"server: waiting for {len(names)} pods to end, first {listed(names, 3)}")
        while names and self._clock.monotonic() <= until:
            await asyncio.sleep(POLL_S)
            names = await self._own_pods()
        if names:
            self._report(f"server: {len(names)} pods have not ended, first {listed(names, 3)}")
        self._has_waited = True

    async def _own_pods(self) -> list[str]:
        listing = await self._client.list_(
            PODS,
            PartialObjectMetadata,
            namespace=self._options.own.namespace,
            label_selector=constants.PART_OF_US,
        )
        return [item.metadata.name for item in listing.items]

    async def _await_gone(self, being_deleted: "Sequence[FoundObject]") -> None:
        if being_deleted:
            self._report(f"waiting until {being_deleted[0].text} is gone")
            await asyncio.sleep(POLL_S)


_AT_ONCE: Final = frozenset({RemovalStage.NODES, RemovalStage.FINALIZERS})
"""There may be as many as nodes, or many times as many."""


def _right_of(step: Step) -> tuple[tuple[str, str], ...]:
    """Return the attributes of a review: of all objects of a kind, unless rights may be limited to names."""
    target, resource = step.target, step.target.resource
    # Objects of users are in any namespace.
    namespace = "" if resource.group == GKM_GROUP else target.namespace or ""
    return (
        ("verb", step.action.value[2]),
        ("group", resource.group),
        ("version", resource.version),
        ("resource", resource.plural),
        ("subresource", "scale" if step.action is RemovalAction.SCALE else ""),
        ("namespace", namespace),
        ("name", target.name if target.is_named else ""),
    )


def _right_text(verb: str, resource: str, **attributes: str) -> str:
    plural = "/".join(filter(None, (resource, attributes["subresource"])))
    kind = ".".join(filter(None, (plural, attributes["group"])))
    name = f" {attributes['name']}" if attributes["name"] else ""
    place = f" in namespace {attributes['namespace']}" if attributes["namespace"] else ""
    return f"{verb} {kind}{name}{place}"
