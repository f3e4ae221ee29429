"""Parts of a server process, the order in which they start, and the order in which they stop (`server.main`).

Start: port open (live, not ready) → devices, pools, nodes, inventories and namespaces listed → pods listed, which
rebuilds the ledger → Lease acquired → bindings of earlier leaders read → ready. Pods come last: a reservation that is
restored from a pod's annotation must find its devices, and the devices that its node reports of other pods. A
replica that is not synced does not stand for election, since it could not serve.
Stop: Lease handed over → `drain_s` for the Service and open connections, still admitting pods
(`server.shutdown`) → port closed → Events flushed → tasks cancelled.
"""

import asyncio
import socket
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, final

import structlog

from admission.context import AdmissionContext
from api.foreign.core import Pod
from http_edge.reviews.kube_reviews import KubeReviews
from http_edge.reviews.reviewed_tokens import ReviewedTokens
from http_edge.tuning import freeze_garbage_collector, measure_loop_lag
from kernelcache.cache_index import CacheIndex
from kube.event_recorder import EventRecorder
from kube.informer import Informer
from kube.leader_election import LeaderElection, LeaseTimes
from kube.resources import PODS
from manifests import constants
from pool.allocation_state import AllocationState
from pool.catalog import Catalog
from pool.facts import observed_pod
from pool.index.device_index import DeviceIndex
from reconciler.controller_spec import ControllerContext
from reconciler.informer_stores import InformerStores
from reconciler.kernelcache.cache_gauges import forget_kernel_caches
from reconciler.operator_gauges import forget_node_software
from reconciler.pod.reservation_end import record_end
from reconciler.pod.reservation_expiry import ReservationExpiry
from reconciler.pool.gauges import forget_all
from reconciler.scaling.gauges import forget_all_scaling
from reconciler.scaling.report import scaling_report
from reconciler.scaling.view import scaling_view
from reconciler.sinks.inventory import record_mismatch
from reconciler.sinks.pod import PodSink
from scheduler.context import ExtenderContext
from server.allocation_reports import AllocationReports
from server.binder import KubeBinder
from server.configuration.config_follower import ConfigFollower
from server.controllers.all import CONTROLLERS
from server.controllers.manager import ControllerManager
from server.controllers.settings import controller_settings
from server.http.app import Handlers, build_routes
from server.http.authentication import ExtenderAuthentication, WebhookAuthentication
from server.http.readiness import Readiness
from server.http.serving_certificate import ServingCertificate
from server.informers import build_informers
from server.kernelcache.cache_admission import CacheAdmission
from server.leadership.bound_pods import BoundPods
from server.leadership.fence import Fence
from server.leadership.restored_store import RestoredStore
from server.leadership.takeover import Takeover
from server.reservations.ids import ReservationIds
from server.reservations.signer import ReservationSigner
from server.usual_demand import recent_demands
from telemetry.reasons import REPORTING_CONTROLLER

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from api.names import PodUid
    from http_edge.routes import Routes
    from kube.client import KubeClient
    from reconciler.controller_spec import ProcessClock
    from reconciler.scaling.view import ScalingView
    from server.configuration.config_store import PreparedConfig
    from server.settings import Settings

_log = structlog.get_logger()


class _OtherSettingsError(Exception):
    """Settings of controllers changed: they end, and start again with the new ones."""


class _LeaseLostError(Exception):
    """Another replica may lead from now on, or our term is not the current one."""


@final
class ControlPlane:
    """Parts of one server process, built without I/O."""

    def __init__(
        self,
        settings: "Settings",
        client: "KubeClient",
        clock: "ProcessClock",
        *,
        prepared: "PreparedConfig | None" = None,
    ) -> None:
        """Take the settings of the start, and the objects that they come from, which are followed."""
        self.settings = settings
        self.client = client
        self.clock = clock
        self.catalog = Catalog()
        identity = socket.gethostname()
        self.recorder = EventRecorder(
            client,
            clock,
            reporting_controller=REPORTING_CONTROLLER,
            reporting_instance=identity,
            is_muted=True,  # until this replica leads
        )
        self.config = None if prepared is None else ConfigFollower(prepared, client, self.recorder)
        kernel_caches = CacheIndex()
        self.index = DeviceIndex(recent_demands(settings.demand), caches=kernel_caches)
        reports = AllocationReports()
        self.allocation_state = AllocationState(
            self.index,
            on_end=partial(record_end, recorder=self.recorder, catalog=self.catalog),
            on_mismatch=partial(record_mismatch, recorder=self.recorder),
            on_reported=reports.wake,
        )
        self.stores = InformerStores(
            self.allocation_state, self.catalog, kernel_caches, recorder=self.recorder
        )
        self.cache_admission = (
            CacheAdmission(
                settings.kernel_caches,
                client,
                clock,
                namespace=settings.namespace,
                catalog=self.catalog,
            )
            if settings.kernel_caches.enabled
            else None
        )
        self.certificates = ServingCertificate(settings, client, clock)
        self.signer = ReservationSigner(client, settings.namespace)
        bound_pods = BoundPods(client, PodSink(self.allocation_state, clock.instant, self.recorder))
        self.informers = {
            **build_informers(self.stores, client, settings, clock=clock),
            **({} if self.config is None else self.config.informers(clock)),
            PODS.plural: Informer(
                client, PODS, Pod, sink=bound_pods, clock=clock, project=observed_pod
            ),
        }
        self.election = LeaderElection(client, clock, _lease_times(settings), identity=identity)
        restored_store = RestoredStore(
            self.election,
            self.informers.values(),
            allocation_state=self.allocation_state,
            bound_pods=bound_pods,
        )
        self.stores.namespace_sink.changes.subscribe(restored_store.observe_namespace)
        self.takeover = Takeover(
            self.election,
            Fence(client, constants.LEASE_NAME, self.election.identity),
            restored_store.catch_up,
            wait_s=settings.leadership.settle_s,
        )
        self.readiness = Readiness(
            self._checks(), self.takeover.decides if settings.leadership.enabled else None
        )
        self._make_contexts(reports)
        self._scaling: ScalingView | None = None
        # of the term in which this replica leads
        self._lease_lost = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def _make_contexts(self, reports: AllocationReports) -> None:
        """Make what answers admission and the scheduler; both take the next id of a reservation from one source."""
        settings, new_id = self.settings, ReservationIds()
        self.scheduling = ExtenderContext(
            index=self.index,
            reader=self.allocation_state.reader,
            allocation_state=self.allocation_state,
            binder=KubeBinder(self.client, on_forbidden=self.takeover.request_check),
            new_id=new_id,
            now=self.clock.instant,
            is_ready=self.readiness.may_answer,
            leader=self._leader,
            on_restore=self.election.report_restore,
            reports=reports,
        )
        self.admission = AdmissionContext(
            index=self.index,
            reader=self.allocation_state.reader,
            allocation_state=self.allocation_state,
            catalog=self.catalog,
            scheduler_name=settings.scheduler_name or None,
            new_id=new_id,
            now=self.clock.instant,
            is_ready=self.readiness.is_synced,
            may_reserve=self.readiness.leads,
            workloads=settings.workloads.rules,
            sign=self.signer,
            callers_are_known=settings.webhooks.requires_client_certificate,
        )

    def build_routes(self) -> "Routes":
        extender, webhooks = self.settings.extender, self.settings.webhooks
        certificates = self.certificates
        handlers = Handlers(
            admission=self.admission,
            caches=None if self.cache_admission is None else self.cache_admission.context,
            scheduling=self.scheduling,
            extender=ExtenderAuthentication(
                certificates.scheduler_authorities, extender.client_names, extender.token_file
            ),
            webhooks=WebhookAuthentication(
                certificates.api_server_authorities, webhooks.client_names
            )
            if webhooks.requires_client_certificate
            else None,
            readiness=self.readiness,
            scaling=self._scaling_report,
            metrics_readers=ReviewedTokens(
                KubeReviews(self.client, constants.USAGE_METRICS_PATH),
                self.clock,
                lambda user: user.username,
            ),
            clock=self.clock,
        )
        return build_routes(handlers)

    def tasks(self) -> "dict[str, Coroutine[Any, Any, object]]":
        """Return the tasks by name; each runs until cancelled. Those of a leader are `CONTROLLERS`."""
        tasks: dict[str, Coroutine[Any, Any, object]] = {
            f"informer/{name}": self.watch_pods() if name == PODS.plural else informer.run()
            for name, informer in self.informers.items()
        }
        tasks |= {
            "reservation.expiry": ReservationExpiry(
                self.allocation_state, self.clock.instant
            ).run(),
            "certificates": self.certificates.run(),
            "certificates.clients": self.certificates.follow_clients(),
            "reservation.key": self.signer.run(),
            "events": self.recorder.run(),
            "loop lag": measure_loop_lag(self.clock),
        }
        if self.cache_admission is not None:
            tasks |= self.cache_admission.tasks()
        if self.settings.leadership.enabled:
            tasks["leadership"] = self.stand_for_election()
        return tasks | {"acting": self.act()}

    async def watch_pods(self) -> NoReturn:
        """Watch pods once the objects that their reservations refer to are listed."""
        pods = self.informers[PODS.plural]
        for informer in self.informers.values():
            if informer is not pods:
                await informer.synced.wait()
        await pods.run()

    async def stand_for_election(self) -> NoReturn:
        """Stand for election once this replica could serve."""
        await self.informers[PODS.plural].synced.wait()
        await self.election.run(self._lease_lost.clear, self._lease_lost.set)

    async def act(self) -> NoReturn:
        """Run the controllers of one term after the other, while this replica may decide for the cluster.

        Without the Lease it stands by: unready, with watches and allocation state up to date. An unreachable
        API server costs the Lease and must not end the process.
        """
        await self.informers[PODS.plural].synced.wait()
        freeze_garbage_collector()
        while True:
            if self.settings.leadership.enabled:
                await self.takeover.take_over()
            self._idle.clear()
            self.recorder.is_muted = False
            _log.info(
                "serving",
                pools=len(self.catalog.pools),
                devices=sum(1 for _ in self.index.devices.all()),
                reservations=len(self.allocation_state.ledger),
            )
            try:
                while True:
                    await self._act_until_other_settings()
            except* _LeaseLostError:
                if self._lease_lost.is_set() and not self.readiness.is_draining:
                    _log.warning("lease lost: standing by, another replica may lead")
            finally:
                self.recorder.is_muted = True
                self._scaling = None
                forget_all()
                forget_all_scaling()
                forget_kernel_caches()
                forget_node_software()
                self._idle.set()

    async def stop_acting(self) -> None:
        """End the controllers of the current term; returns when their writes have ended."""
        self._lease_lost.set()
        await self._idle.wait()

    def _scaling_report(self) -> bytes | None:
        return None if self._scaling is None else scaling_report(self._scaling, self._pod_name)

    def _pod_name(self, uid: "PodUid") -> str:
        pod = self.allocation_state.reader.pods.get(uid)
        return uid if pod is None else pod.ref

    def _leader(self) -> str | None:
        return self.takeover.token() if self.settings.leadership.enabled else None

    async def _until_overtaken(self) -> NoReturn:
        await self.takeover.until_overtaken()
        raise _LeaseLostError

    async def _until_other_settings(self, config: ConfigFollower, settings: "Settings") -> NoReturn:
        await config.until_other_than(settings)
        raise _OtherSettingsError

    async def _act_until_other_settings(self) -> None:
        try:
            await self._act_while_leading()
        except* _OtherSettingsError:
            _log.info("controllers start again with other settings")

    async def _act_while_leading(self) -> None:
        settings = self.settings if self.config is None else self.config.state.settings
        async with AsyncExitStack() as ending, asyncio.TaskGroup() as group:
            context = ControllerContext(
                client=self.client,
                stores=self.stores,
                recorder=self.recorder,
                scheduling=self.scheduling,
                settings=controller_settings(settings),
                clock=self.clock,
                cache_proof=None if self.cache_admission is None else self.cache_admission.keys,
                ending=ending,
            )
            self._scaling = context.shared(scaling_view)
            await ControllerManager(context, CONTROLLERS).start(group)
            if self.settings.leadership.enabled:
                group.create_task(self._until_overtaken(), name="leadership.term")
            if self.config is not None:
                group.create_task(
                    self._until_other_settings(self.config, settings), name="configuration"
                )
                group.create_task(
                    self.config.report(self.clock.instant), name="configuration.status"
                )
            await self._lease_lost.wait()
            raise _LeaseLostError

    def _checks(self) -> "dict[str, Callable[[], bool]]":
        checks: dict[str, Callable[[], bool]] = {
            f"{name} synced": informer.synced.is_set for name, informer in self.informers.items()
        }
        checks["certificate loaded"] = self.certificates.is_loaded
        checks["reservation key loaded"] = self.signer.is_loaded
        if self.cache_admission is not None:
            checks["cache key loaded"] = self.cache_admission.keys.is_loaded
        return checks


def _lease_times(settings: "Settings") -> LeaseTimes:
    leadership = settings.leadership
    return LeaseTimes(
        namespace=settings.namespace,
        name=constants.LEASE_NAME,
        lease_duration_s=leadership.duration_s,
        renew_deadline_s=0.75 * leadership.duration_s,
        retry_s=leadership.duration_s / 5,
        poll_s=leadership.duration_s / 8,
    )
