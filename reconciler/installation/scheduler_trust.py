"""`scheduler.trust`: kube-scheduler is restarted once for each set of CAs that its Secret holds.

kube-scheduler reads the extender's `caFile` when it starts, and never again. An annotation of the pod template
has the digest of the CAs; a new digest makes the Deployment controller replace the pods, which read the new
file. The server uses certificates by the old CA for a month, so no second counts.
"""

import asyncio
import hashlib
from typing import TYPE_CHECKING, Final, final

import msgspec
import structlog

from api.meta import Model, ObjectMeta
from api.names import TRUST_HASH_ANNOTATION
from kube.errors import Conflict, NotFound
from kube.event_recorder import ObjectReference
from kube.resources import DEPLOYMENTS, SECRETS
from manifests.constants import SCHEDULER_SECRET
from manifests.install.rbac import PolicyRule
from reconciler.controller_spec import ControllerSpec
from telemetry.reasons import EventReason

if TYPE_CHECKING:
    from collections.abc import Callable

    from kube.client import KubeClient
    from kube.event_recorder import EventRecorder
    from manifests.install.server_policy import OwnObjects
    from pool.model import Instant
    from reconciler.settings import SchedulerTerms

ACTION: Final = "RestartScheduler"
"""Of events."""
AUTHORITIES_KEY: Final = "ca.crt"
RESTART_INTERVAL_S: Final = 300.0
"""Between two restarts, whatever happens to the Secret: a rollout has ended by then."""
CONFLICT_RETRY_S: Final = 1.0

_log = structlog.get_logger()


def own_rbac(own: "OwnObjects") -> tuple[PolicyRule, ...]:
    """Return the rights in our namespace: the Secret may be one that cert-manager writes."""
    if not own.scheduler_deployment:
        return ()
    return (
        PolicyRule(
            group=DEPLOYMENTS.group,
            resources=(DEPLOYMENTS.plural,),
            verbs=("get", "patch"),
            names=(own.scheduler_deployment,),
        ),
        PolicyRule(resources=(SECRETS.plural,), verbs=("get",), names=(SCHEDULER_SECRET,)),
    )


class _Template(Model, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


class _DeploymentSpec(Model, frozen=True):
    template: _Template = _Template()


class Deployment(Model, frozen=True):
    """A Deployment, as far as it is read."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _DeploymentSpec = _DeploymentSpec()

    @property
    def trust_hash(self) -> str | None:
        return self.spec.template.metadata.annotation(TRUST_HASH_ANNOTATION)


class _Secret(Model, frozen=True):
    data: dict[str, bytes] = msgspec.field(default_factory=dict)

    def __repr__(self) -> str:
        return "_Secret()"


def hash_of(authorities_pem: bytes) -> str:
    """Return the digest of a file with CAs, whose order counts: the first issues."""
    return hashlib.sha256(authorities_pem.strip()).hexdigest()[:16]


@final
class SchedulerTrust:
    """Restarts kube-scheduler when its CAs changed."""

    def __init__(
        self,
        client: "KubeClient",
        recorder: "EventRecorder",
        *,
        terms: "SchedulerTerms",
        now: "Callable[[], Instant]",
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._terms = terms
        self._now = now
        self._restarted_at: float | None = None
        self._annotated_uid = ""
        self._is_absence_logged = False

    async def reconcile(self, name: str) -> float:
        """Compare the annotation with the CAs; return the seconds until the next look."""
        authorities = await self._authorities()
        if not authorities:
            return self._terms.check_every_s
        try:
            deployment = await self._client.get(
                DEPLOYMENTS, Deployment, name, namespace=self._terms.namespace
            )
        except NotFound:
            self._log_absence(name)
            return self._terms.check_every_s
        self._is_absence_logged = False
        wanted = hash_of(authorities)
        if deployment.trust_hash == wanted:
            return self._terms.check_every_s
        left_s = self._left_s(deployment)
        return left_s if left_s > 0 else await self._restart(deployment, wanted)

    async def _authorities(self) -> bytes:
        """Return the CAs as PEM; nothing where there are none yet."""
        if self._terms.authorities is not None:
            try:
                return await asyncio.to_thread(self._terms.authorities.read_bytes)
            except OSError:
                return b""  # `certs.mounted` reports it
        try:
            secret = await self._client.get(
                SECRETS, _Secret, self._terms.secret, namespace=self._terms.namespace
            )
        except NotFound:
            return b""
        return secret.data.get(AUTHORITIES_KEY, b"")

    def _is_first(self, deployment: Deployment) -> bool:
        """Say whether the Deployment is new: its pods have hardly started."""
        return deployment.trust_hash is None and deployment.metadata.uid != self._annotated_uid

    def _left_s(self, deployment: Deployment) -> float:
        if self._restarted_at is None or self._is_first(deployment):
            return 0.0
        return self._restarted_at + RESTART_INTERVAL_S - self._now().monotonic

    async def _restart(self, deployment: Deployment, wanted: str) -> float:
        meta = deployment.metadata
        annotations = {TRUST_HASH_ANNOTATION: wanted}
        patch = {
            "metadata": {"resourceVersion": meta.resource_version},
            "spec": {"template": {"metadata": {"annotations": annotations}}},
        }
        try:
            await self._client.merge_patch(
                DEPLOYMENTS, patch, name=meta.name, namespace=meta.namespace
            )
        except (Conflict, NotFound):
            return CONFLICT_RETRY_S
        if not self._is_first(deployment):
            self._restarted_at = self._now().monotonic
        self._annotated_uid = meta.uid
        text = "kube-scheduler restarts: it reads the CAs of the GPU control plane when it starts"
        _log.info(text, deployment=meta.name, authorities=wanted)
        self._recorder.normal(
            ObjectReference.to(DEPLOYMENTS, meta),
            EventReason.SCHEDULER_RESTARTED,
            f"{text}, and they are other ones now",
            action=ACTION,
        )
        return self._terms.check_every_s

    def _log_absence(self, name: str) -> None:
        if not self._is_absence_logged:
            _log.info(
                "no Deployment of kube-scheduler: restart kube-scheduler by hand when the CA is replaced",
                deployment=f"{self._terms.namespace}/{name}",
            )
        self._is_absence_logged = True


SPEC: Final = ControllerSpec(
    name="scheduler.trust",
    own_rbac=own_rbac,
    triggers=(),
    initial=lambda context: (context.settings.scheduler.deployment,),
    is_enabled=lambda settings: bool(settings.scheduler.deployment),
    build=lambda context: (
        SchedulerTrust(
            context.client,
            context.recorder,
            terms=context.settings.scheduler,
            now=context.now,
        ).reconcile
    ),
)
