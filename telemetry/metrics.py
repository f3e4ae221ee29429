"""Every metric of the process: name, unit, help, labels, buckets.

Label values are closed sets (verbs, outcomes, reasons) or pool names; never pod names or UIDs.
Gauges of pools, pods and reservations are owned by `reconciler.pool.gauges`, which removes those of a deleted
pool, and all of them where this replica does not lead.
Six gauges end in `_total`, the suffix of counters: docs/install.md promises that names stay.
"""

from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Info,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)

from api.version import REVISION, VERSION
from telemetry.metric_declaration import MetricDeclarations

REGISTRY = CollectorRegistry()
_declarations: Final = MetricDeclarations(REGISTRY)
gauge, counter, histogram = _declarations.gauge, _declarations.counter, _declarations.histogram

# A `_created` sample for every counter and histogram would be a seventh of the page, and no rule reads them.
disable_created_metrics()  # type: ignore[no-untyped-call]  # untyped in the library
ProcessCollector(registry=REGISTRY)
PlatformCollector(registry=REGISTRY)
Info("gpu_build", "Version and revision of the running program.", registry=REGISTRY).info(
    {"version": VERSION, "revision": REVISION}
)

REQUEST_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Half a millisecond is a filter of 1,000 names; five seconds is kube-scheduler's httpTimeout."""

WAIT_BUCKETS = (
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    15.0,
    30.0,
    60.0,
    300.0,
    900.0,
    3600.0,
    4 * 3600.0,
    24 * 3600.0,
)
"""A pod that finds units free is bound within a second; one that waits for others to end may take a day. 30 s is the
bound of an objective."""

NODE_BUCKETS = (1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0)
"""Karpenter answers a signal within a second; a node with drivers takes minutes, and is given up within 47."""

# --- pools and devices -------------------------------------------------------------------------

POOL_CAPACITY_TOTAL = gauge("gpupool_capacity_total", "Units the pool's devices export.", ["pool"])
POOL_CAPACITY_RESERVED = gauge(
    "gpupool_capacity_reserved", "Units held for pods that are not bound yet.", ["pool"]
)
POOL_CAPACITY_USED = gauge("gpupool_capacity_used", "Units of bound pods.", ["pool"])
POOL_CAPACITY_AVAILABLE = gauge(
    "gpupool_capacity_available", "Units free to be given out now.", ["pool"]
)
POOL_LARGEST_FREE = gauge(
    "gpupool_largest_free", "Most units of the pool that are available on one node.", ["pool"]
)
POOL_CAPACITY_UNHEALTHY = gauge(
    "gpupool_capacity_unhealthy",
    "Free units withheld: the device is faulted or leaves the pool, or its MIG instances are not those of the"
    " allocation, its node is missing, not ready or"
    " cordoned, a pod runs there on unknown devices, or the whole pool is in maintenance or"
    " being deleted.",
    ["pool"],
)
POOL_CAPACITY_MISSING = gauge(
    "gpupool_capacity_missing",
    "Units beyond gpupool_capacity_total that the pool's devices should have: their MIG instances are not those of"
    " the allocation.",
    ["pool"],
)
POOL_UNIT_SECONDS = counter(
    "gpupool_unit_seconds_total",
    "Seconds of the pool's units, times their number, by state (used, reserved, free, withheld).",
    ["pool", "state"],
)
DEVICE_INFO = _declarations.label_sets(
    "gpu_device_info",
    "1 for each device with a UUID, with its GPUDevice, node, pool and product; the pool is empty for a device"
    " without one.",
    ["uuid", "device", "node", "pool", "product"],
)
DEVICES_RESERVED = gauge(
    "gpu_device_reserved_total", "Devices of which a live reservation holds some unit.", ["pool"]
)
DEVICES_UNASSIGNED = gauge("gpu_device_unassigned_total", "Devices that belong to no pool.")
RESERVATION_AGE = gauge(
    "gpu_device_reservation_age_seconds",
    "Age of the pool's oldest live reservation; 0 without one.",
    ["pool"],
)
RESERVATIONS = gauge(
    "gpu_reservations",
    "Live reservations that hold units, by phase; committed, doubtful and bound ones are bindings that"
    " the watch has not shown yet.",
    ["phase"],
)
RESERVATIONS_ENDED = counter(
    "gpu_reservations_ended_total",
    "Reservations by how they ended: bound, expired, released, not_observed.",
    ["end"],
)
AGEING_ACCESS = gauge(
    "gpupool_ageing_access",
    "Workloads with pods in the pool whose inherited access is past half of its validity, or over.",
    ["pool"],
)
PODS_WAITING = gauge(
    "gpu_pods_waiting", "Pending pods of the pool that hold nothing and are not gated.", ["pool"]
)
PODS_LONGEST_WAIT = gauge(
    "gpu_pods_longest_wait_seconds",
    "Age of the oldest pending pod of the pool that holds nothing and has no gate of others; 0 without one.",
    ["pool"],
)
POD_WAIT = histogram(
    "gpupool_wait_seconds",
    "Time from a pod's creation to its binding.",
    ["pool"],
    buckets=WAIT_BUCKETS,
)
POD_RESERVED_WAIT = histogram(
    "gpupool_reserved_wait_seconds",
    "Time from the reservation of a pod's units to its binding; pods that got units only when they were bound do not"
    " count.",
    ["pool"],
    buckets=WAIT_BUCKETS,
)
PLACEMENTS = counter(
    "gpupool_placements_total",
    "Pods that were bound, by how their devices are connected (single, one_island, one_numa_node, split, unknown).",
    ["pool", "quality"],
)
POOL_FRAGMENTATION = gauge(
    "gpupool_fragmentation",
    "Share of the pool's free devices that a pod of its recent demand is expected not to be able to use.",
    ["pool"],
)
POOL_PLACEABLE_PODS = gauge(
    "gpupool_placeable_pods",
    "Pods of so many whole devices for which the pool has free ones now: on any devices of a node, or on an aligned set.",
    ["pool", "devices", "topology"],
)
POOL_FITTING_PODS = gauge(
    "gpupool_fitting_pods",
    "Pods of so many units (devices, MIG instances or time slices) for which the pool has free ones now, one size at a"
    " time.",
    ["pool", "units"],
)
POOL_LARGEST_DEMAND = gauge(
    "gpupool_largest_demand",
    "Most whole devices that one pod could get now: any of a node, or an aligned set.",
    ["pool", "topology"],
)
PODS_UNACCOUNTED = gauge(
    "gpu_pods_unaccounted",
    "Bound pods with unknown devices; their nodes take no more pods of their pools.",
)
UNITS_HELD_TWICE = gauge("gpu_units_held_twice", "Units that more than one bound pod has.")
ALLOCATION_MISMATCHES = counter(
    "gpu_allocation_mismatches_total",
    "Pods to which kubelet gave other units than they were bound with, as their node reports; counted by"
    " who leads when that is seen.",
    ["pool"],
)
PODS_NOMINATED = counter(
    "gpu_pods_nominated_total",
    "Waiting pods for which the node of their reservation was named to kube-scheduler.",
)
INDEX_GENERATION = gauge(
    "gpu_index_generation", "Moves with every real change of the device index."
)


INVENTORY_DEVICES = gauge("gpu_inventory_devices_total", "Devices of a node.", ["node"])
INVENTORY_DEVICES_STATE = gauge(
    "gpu_inventory_devices_state",
    "Devices of a node by state; states without a device have no series.",
    ["node", "state"],
)
INVENTORY_CONDITION = gauge(
    "gpu_node_inventory_condition",
    "1 where a condition of the node's inventory is True, else 0.",
    ["node", "condition"],
)
BOOTSTRAP_PHASE = gauge(
    "gpu_bootstrap_node_phase",
    "1 for the phase that the node's GPU software is in; one series a node.",
    ["node", "phase"],
)
BOOTSTRAP_CONDITION = gauge(
    "gpu_bootstrap_condition",
    "1 for each condition of the node's GPU software that is True; others have no series.",
    ["node", "condition"],
)
BOOTSTRAP_READY = gauge(
    "gpu_bootstrap_ready", "1 where the node's devices may be given to pools, else 0.", ["node"]
)
BOOTSTRAP_HANDLER_ERRORS = counter(
    "gpu_bootstrap_handler_errors_total",
    "Objects of operands that the API server refused, by operand; `operands` where a kind cannot be read.",
    ["handler"],
)
OBJECT_CONFLICTS = counter(
    "gpu_object_conflicts_total",
    "Objects of ours that another client changed or deleted, each time they are put back, and those that it has stored"
    " otherwise than they are written.",
    ["kind"],
)
DAEMON_SET_OUTDATED = gauge(
    "gpu_daemonset_outdated_nodes",
    "Nodes on which an available pod of a DaemonSet of ours waits for a roll-out to replace it.",
    ["daemonset"],
)
POOL_ASSIGNMENTS = gauge("gpupool_assignments", "Devices that belong to the pool.", ["pool"])
POOL_NODE_SLOTS = gauge("gpupool_node_slots", "Units of the pool on a node.", ["pool", "node"])
POOL_CONDITION = gauge(
    "gpupool_condition", "1 where a condition of the pool is True, else 0.", ["pool", "condition"]
)
DEVICE_REPAIRS = counter(
    "gpu_device_repairs_total",
    "Steps of repairs of faulted devices, by step (Waiting, Draining, Resetting, Testing, RebootAsked, Repaired, Failed).",
    ["step"],
)
DEVICES_FAULTED = gauge(
    "gpu_device_faulted_total", "Devices that are faulted, by reason.", ["reason"]
)
DEVICES_STALE = gauge("gpu_device_stale_total", "Devices whose source of facts went silent.")
HEALTH_SCRAPES = counter(
    "gpu_health_scrapes_total",
    "Looks at DCGM exporters, by outcome (read, failed, malformed).",
    ["outcome"],
)
BAD_FEATURES = counter(
    "gpu_inventory_bad_features_total",
    "Labels and attributes of nodes with an invalid value, by source; each is skipped.",
    ["source"],
)
EVICTIONS = counter(
    "gpu_evictions_total",
    "Evictions of pods for the maintenance of a pool, by outcome (evicted, gone, refused, failed).",
    ["outcome"],
)

# --- autoscaling -------------------------------------------------------------------------------

SMART_PODS_CREATED = counter(
    "gpu_smart_pods_created_total", "Pods created to make an autoscaler add a node.", ["pool"]
)
SMART_PODS_ACTIVE = gauge(
    "gpu_smart_pods_active", "Pods that exist to make an autoscaler add a node.", ["pool"]
)
NODE_CLAIM_PROVISION = histogram(
    "gpu_nodeclaim_provision_duration_seconds",
    "Time from the request for a node until its devices are in the pool.",
    ["pool"],
    buckets=NODE_BUCKETS,
)
SCALE_DEVICES_WITHIN = gauge(
    "gpu_scale_devices_within_seconds",
    "Time that a registered node of the pool has until its devices are there: 15 minutes, and driverMinutes of the pool.",
    ["pool"],
)
SCALE_RESULTS = counter(
    "gpu_scale_requests_total",
    "Requests for a node by result (ready, failed, cancelled).",
    ["pool", "result"],
)
SCALE_REQUESTS = gauge(
    "gpu_scale_requests_active",
    "Requests for a node that are not over, by phase.",
    ["pool", "phase"],
)
SCALE_PHASE = histogram(
    "gpu_scale_phase_seconds",
    "Time that a request for a node was in a phase.",
    ["phase"],
    buckets=NODE_BUCKETS,
)
SCALE_FAILURES = counter(
    "gpu_scale_failures_total", "Requests for a node that failed, by reason.", ["pool", "reason"]
)
SCALE_WAITING_PODS = gauge(
    "gpu_scale_waiting_pods",
    "Pods that no node comes for, by the reason that none is asked for.",
    ["pool", "reason"],
)
SCALE_INFLIGHT_DEVICES = gauge(
    "gpu_scale_inflight_devices", "Devices of nodes that are on their way.", ["pool"]
)
SCALE_HANDOVER = histogram(
    "gpu_scale_handover_seconds",
    "Time from a node's devices in the pool until its startup taint is gone and its pods lose their gate.",
    buckets=REQUEST_BUCKETS,
)
SCALE_SIGNAL_LEAKS = gauge(
    "gpu_scale_signal_leaks",
    "Pods that ask an autoscaler for a node, more than a minute after nothing needs that node any more.",
)
SCALE_DUPLICATE_NODES = counter(
    "gpu_scale_duplicate_nodes_total",
    "NodeClaims beyond the first one of a request.",
    ["pool"],
)
SCALE_IDLE_DEVICE_SECONDS = counter(
    "gpu_scale_idle_device_seconds_total",
    "Seconds of devices on nodes of scaling pools of which no unit was used, times the number of devices.",
    ["pool"],
)
SCALE_NODE_COST = gauge(
    "gpu_scale_node_cost_per_hour",
    "Price of the pool's devices for an hour by state (busy, idle, inFlight, stranded), where prices are known.",
    ["pool", "state"],
)
SCALE_BUDGET_REMAINING = gauge(
    "gpu_scale_budget_remaining",
    "What is left of the pool's budget, by period.",
    ["pool", "period"],
)

# --- what others ask of us ---------------------------------------------------------------------

ADMISSION_DURATION = histogram(
    "gpu_admission_duration_seconds",
    "Time to answer an AdmissionReview.",
    ["webhook", "outcome"],
    buckets=REQUEST_BUCKETS,
)
EXTENDER_DURATION = histogram(
    "gpu_extender_duration_seconds",
    "Time to answer kube-scheduler.",
    ["verb", "outcome"],
    buckets=REQUEST_BUCKETS,
)
REFUSALS = counter(
    "gpu_refusals_total", "Pods, pools and devices refused at admission, by reason.", ["reason"]
)

# --- what we ask of the API server -------------------------------------------------------------

API_REQUEST_DURATION = histogram(
    "gpu_api_request_duration_seconds",
    "Time of one request to the API server, by HTTP method, resource and status code "
    "(code is the exception's name where there was no answer).",
    ["method", "resource", "code"],
    buckets=REQUEST_BUCKETS,
)
INFORMER_SYNCED = gauge(
    "gpu_informer_synced", "1 once the first full list was applied.", ["resource"]
)
INFORMER_LAG = gauge(
    "gpu_informer_lag_seconds",
    "Time since the watch last said anything (an event or a bookmark).",
    ["resource"],
)
INFORMER_EVENTS = counter(
    "gpu_informer_events_total", "Watch events by type.", ["resource", "type"]
)
INFORMER_RELISTS = counter(
    "gpu_informer_relists_total", "Lists after the first one, by cause.", ["resource", "cause"]
)
INFORMER_FAILURES = counter(
    "gpu_informer_failures_total",
    "Lists and watches that failed and were taken up again, by error.",
    ["resource", "cause"],
)
INFORMER_DECODE_ERRORS = counter(
    "gpu_informer_decode_errors_total",
    "Objects or events that could not be decoded and were skipped.",
    ["resource"],
)
INFORMER_UNREADABLE = gauge(
    "gpu_informer_unreadable_objects",
    "Objects that exist and cannot be decoded by this version; nothing of them is changed.",
    ["resource"],
)
EVENTS_EMITTED = counter(
    "gpu_events_emitted_total",
    "Kubernetes Events by reason and outcome (written, merged, dropped, failed).",
    ["reason", "outcome"],
)

# --- the process itself ------------------------------------------------------------------------

RECONCILES = counter(
    "gpu_reconciles_total",
    "Reconciles by controller and outcome (done, requeued, failed, dropped).",
    ["controller", "outcome"],
)
RECONCILE_DURATION = histogram(
    "gpu_reconcile_duration_seconds",
    "Time of one reconcile.",
    ["controller"],
    buckets=REQUEST_BUCKETS,
)
CONNECTIONS_DROPPED = counter(
    "gpu_connections_dropped_total",
    "Connections to our port that we closed: a handshake that did not succeed, a head that did not"
    " come in time, an answer that was not read, no place left, no file left to open (handshake, head,"
    " answer, limit, files).",
    ["cause"],
)
EVENT_LOOP_LAG = histogram(
    "gpu_event_loop_lag_seconds",
    "How late the event loop came to what was due, measured ten times a second.",
    buckets=REQUEST_BUCKETS,
)
CONFIG_PROBLEM = gauge(
    "gpu_control_plane_config_problem",
    "1 while settings of the GPUControlPlaneConfig are not all in force, by the cause.",
    ["cause"],
)
LEADING = gauge("gpu_leading", "1 while this replica holds the Lease.")
CERTIFICATE_NOT_AFTER = gauge(
    "gpu_certificate_not_after_timestamp_seconds",
    "End of validity of the serving certificate (leaf) and its CA (ca).",
    ["certificate"],
)
CERTIFICATE_ERRORS = counter(
    "gpu_certificate_errors_total",
    "Failures to issue, store, inject or reload a certificate, by step.",
    ["step"],
)
TASK_FAILURES = counter(
    "gpu_task_failures_total",
    "Failures of background tasks and of requests that were caught.",
    ["task"],
)
