"""KubeSchedulerConfiguration: the stock kube-scheduler with our extender.

Two variants: a scheduler of our own, whose one profile pods of pools name; or the cluster's
scheduler, to whose configuration an entry is added.
"""

import base64
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final

from api.names import DEFAULT_SCHEDULER_NAME
from manifests import constants

if TYPE_CHECKING:
    from collections.abc import Sequence

EXTENDER_WEIGHT: Final = 200
"""One point of the extender counts 10 x weight = 2000. All scores of the default plugins together are at
most 1500 (their weights sum up to 15, each score to 100). So the pool's strategy and the reservation
decide, and the scheduler's own scores decide among equals."""

NODES_TO_SCORE_PERCENT: Final = 100
"""Share of nodes that are scored, in percent: by default, kube-scheduler stops at 420 of 1,000 nodes that fit, and
most often none of them has the pod's reservation (measured: 44 % of pods were bound to their reserved units; 100 % with
this value). It costs the filters of kube-scheduler's own plugins for the other nodes, and saves all scores of pods with a
reservation: docs/design/0003-nominating.md."""

HTTP_TIMEOUT: Final = "5s"
"""Time-out of one call. It is kube-scheduler's default made explicit: the deadline of a bind is below it."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderTls:
    """Files on the scheduler's side, or PEM data for a self-contained configuration."""

    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    ca_data: bytes = b""
    cert_data: bytes = b""
    key_data: bytes = field(default=b"", repr=False)

    def __post_init__(self) -> None:
        if bool(self.ca_file) == bool(self.ca_data):
            # Without a CA kube-scheduler verifies nothing, and says nothing.
            raise ValueError("give either ca_file or ca_data, so that the extender is verified")
        if bool(self.cert_file) != bool(self.key_file):
            raise ValueError("cert_file and key_file belong together")
        if bool(self.cert_data) != bool(self.key_data):
            raise ValueError("cert_data and key_data belong together")

    def build(self) -> dict[str, str]:
        files = {"caFile": self.ca_file, "certFile": self.cert_file, "keyFile": self.key_file}
        data = {"caData": self.ca_data, "certData": self.cert_data, "keyData": self.key_data}
        encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
        return {key: value for key, value in (files | encoded).items() if value}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderEndpoint:
    """Address of the extender; `base_url` is `https://host[:port]`, or http without TLS."""

    base_url: str
    tls: ExtenderTls | None = None
    weight: int = EXTENDER_WEIGHT
    http_timeout: str = HTTP_TIMEOUT

    def __post_init__(self) -> None:
        if self.base_url.startswith("https://") != (self.tls is not None):
            raise ValueError(f"{self.base_url}: https needs tls, and http takes none")

    def build(self, managed_resources: "Sequence[str]" = ()) -> dict[str, Any]:
        """Return the entry of `extenders`; without resources, it is called for every pod."""
        entry: dict[str, Any] = {
            "urlPrefix": self.base_url.rstrip("/") + constants.EXTENDER_PREFIX,
            "filterVerb": constants.FILTER_VERB,
            "prioritizeVerb": constants.PRIORITIZE_VERB,
            "preemptVerb": constants.PREEMPT_VERB,
            "bindVerb": constants.BIND_VERB,
            "weight": self.weight,
            "enableHTTPS": self.tls is not None,
            "httpTimeout": self.http_timeout,
            "nodeCacheCapable": True,  # names of nodes go to and fro, not nodes
            "ignorable": False,  # the scheduler's own binder would bind without devices
        }
        if self.tls is not None:
            entry["tlsConfig"] = self.tls.build()
        if managed_resources:
            # Counted by the scheduler as well, so that preemption and autoscaling keep working.
            entry["managedResources"] = [
                {"name": name, "ignoredByScheduler": False}
                for name in sorted(set(managed_resources))
            ]
        return entry


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerLeaderElection:
    """The Lease with which replicas of our scheduler elect a leader."""

    namespace: str = constants.DEFAULT_NAMESPACE
    name: str = constants.SCHEDULER_LEASE_NAME
    lease_duration: str = "15s"
    renew_deadline: str = "10s"
    retry_period: str = "2s"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ApiConnection:
    """The scheduler's connection to the API server; no kubeconfig means its service account.

    A pod costs an Event and sometimes a status; the default of 50 a second would be the bottleneck.
    """

    kubeconfig: str = ""
    qps: int = 500
    burst: int = 1000


def build_scheduler_configuration(
    extender: ExtenderEndpoint,
    *,
    leader_election: SchedulerLeaderElection | None = None,
    connection: ApiConnection | None = None,
    scheduler_name: str = DEFAULT_SCHEDULER_NAME,
    percentage_of_nodes_to_score: int | None = NODES_TO_SCORE_PERCENT,
) -> dict[str, Any]:
    """Return the configuration of our scheduler; no `leader_election` means one replica.

    Its extender names no resources: pools come and go, and only pods that name the profile reach
    it. `percentage_of_nodes_to_score` None leaves it to kube-scheduler, which samples large
    clusters.
    """
    connection = connection or ApiConnection()
    profile: dict[str, Any] = {"schedulerName": scheduler_name}
    if percentage_of_nodes_to_score is not None:
        profile["percentageOfNodesToScore"] = percentage_of_nodes_to_score
    client: dict[str, Any] = {"qps": connection.qps, "burst": connection.burst}
    if connection.kubeconfig:
        client["kubeconfig"] = connection.kubeconfig
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": client,
        "enableProfiling": False,
        "enableContentionProfiling": False,
        "leaderElection": _leader_election(leader_election),
        "profiles": [profile],
        "extenders": [extender.build()],
    }


def build_extender_snippet(
    extender: ExtenderEndpoint, resources: "Sequence[str]"
) -> dict[str, Any]:
    """Return the addition to the configuration of the cluster's own scheduler.

    `resources` are those of all pools; the scheduler must be restarted when a pool is added.

    Raises:
        ValueError: there are no resources, and every pod of the cluster would depend on us.
    """
    if not resources:
        raise ValueError("name the pools' resources, or every pod of the cluster depends on us")
    return {"extenders": [extender.build(resources)]}


def _leader_election(election: SchedulerLeaderElection | None) -> dict[str, Any]:
    if election is None:
        return {"leaderElect": False}
    return {
        "leaderElect": True,
        "resourceLock": "leases",
        "resourceNamespace": election.namespace,
        "resourceName": election.name,
        "leaseDuration": election.lease_duration,
        "renewDeadline": election.renew_deadline,
        "retryPeriod": election.retry_period,
    }
