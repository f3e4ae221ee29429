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
from manifests.constants import SCHEDULER_DEPLOYMENT, SCHEDULER_SECRET
from manifests.install.rbac import PolicyRule
from reconciler.controller_spec import ControllerSpec
from telemetry.reasons import EventReason

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from api.clock import Instant
    from kube.client import KubeClient
    from kube.event_recorder import EventRecorder

ACTION: Final = "RestartScheduler"
"""Action of events."""
AUTHORITIES_KEY: Final = "ca.crt"
CHECK_EVERY_S: Final = 5.0
"""Seconds between two reads of the CAs, as often as the server checks its own certificates."""
RESTART_INTERVAL_S: Final = 300.0
"""Seconds between two restarts, whatever happens to the Secret: a rollout has ended by then."""
CONFLICT_RETRY_S: Final = 1.0

_log = structlog.get_logger()


RBAC: Final = (
    PolicyRule(
        group=DEPLOYMENTS.group,
        resources=(DEPLOYMENTS.plural,),
        verbs=("get", "patch"),
        names=(SCHEDULER_DEPLOYMENT,),
    ),
    # The Secret may be one that cert-manager writes.
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
        namespace: str,
        authorities: "Path | None" = None,
        now: "Callable[[], Instant]",
    ) -> None:
        """Take the file of the CAs, where another component than the server issues the certificates."""
        self._client = client
        self._recorder = recorder
        self._namespace = namespace
        self._file = authorities
        self._now = now
        self._restarted_at: float | None = None
        self._annotated_uid = ""
        self._is_absence_logged = False

    async def reconcile(self, name: str) -> float:
        """Compare the annotation with the CAs; return the seconds until the next pass."""
        authorities = await self._authorities()
        if not authorities:
            return CHECK_EVERY_S
        try:
            deployment = await self._client.get(
                DEPLOYMENTS, Deployment, name, namespace=self._namespace
            )
        except NotFound:
            self._log_absence(name)
            return CHECK_EVERY_S
        self._is_absence_logged = False
        desired = hash_of(authorities)
        if deployment.trust_hash == desired:
            return CHECK_EVERY_S
        remaining_s = self._remaining_s(deployment)
        return remaining_s if remaining_s > 0 else await self._restart(deployment, desired)

    async def _authorities(self) -> bytes:
        """Return the CAs as PEM; nothing where there are none yet."""
        if self._file is not None:
            try:
                return await asyncio.to_thread(self._file.read_bytes)
            except OSError:
                return b""  # `certs.mounted` reports it
        try:
            secret = await self._client.get(
                SECRETS, _Secret, SCHEDULER_SECRET, namespace=self._namespace
            )
        except NotFound:
            return b""
        return secret.data.get(AUTHORITIES_KEY, b"")

    def _is_first(self, deployment: Deployment) -> bool:
        """Say whether the Deployment is new: its pods have hardly started."""
        return deployment.trust_hash is None and deployment.metadata.uid != self._annotated_uid

    def _remaining_s(self, deployment: Deployment) -> float:
        if self._restarted_at is None or self._is_first(deployment):
            return 0.0
        return self._restarted_at + RESTART_INTERVAL_S - self._now().monotonic

    async def _restart(self, deployment: Deployment, desired: str) -> float:
        meta = deployment.metadata
        annotations = {TRUST_HASH_ANNOTATION: desired}
        patch = {
            "metadata": {"resourceVersion": meta.resource_version},
            "spec": {"template": {"metadata": {"annotations": annotations}}},
        }
        try:
            await self._client.merge_patch(
                DEPLOYMENTS, patch, name=meta.name, namespace=meta.namespace
            )
        except Conflict:
            return CONFLICT_RETRY_S
        if not self._is_first(deployment):
            self._restarted_at = self._now().monotonic
        self._annotated_uid = meta.uid
        text = "kube-scheduler restarts: it reads the CAs of the GPU control plane when it starts"
        _log.info(text, deployment=meta.name, authorities=desired)
        self._recorder.normal(
            ObjectReference.to(DEPLOYMENTS, meta),
            EventReason.SCHEDULER_RESTARTED,
            f"{text}, and they are other ones now",
            action=ACTION,
        )
        return CHECK_EVERY_S

    def _log_absence(self, name: str) -> None:
        if not self._is_absence_logged:
            _log.info(
                "no Deployment of kube-scheduler: restart kube-scheduler by hand when the CA is replaced",
                deployment=f"{self._namespace}/{name}",
            )
        self._is_absence_logged = True


SPEC: Final = ControllerSpec(
    name="scheduler.trust",
    namespaced_rbac=RBAC,
    triggers=(),
    initial=lambda _: (SCHEDULER_DEPLOYMENT,),
    build=lambda context: (
        SchedulerTrust(
            context.client,
            context.recorder,
            namespace=context.settings.workloads.namespace,
            authorities=context.settings.scheduler_authorities,
            now=context.now,
        ).reconcile
    ),
)
