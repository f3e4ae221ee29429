"""Every metric of the process: name, unit, help, labels, buckets.

Label values are closed sets (verbs, outcomes, reasons) or pool names; never pod names or UIDs.
Gauges of pools, pods and reservations are owned by `reconciler.pool.gauges`, which removes those of a deleted
pool, and all of them where this replica does not lead.
"""

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)

from api.version import REVISION, VERSION

REGISTRY = CollectorRegistry()

# A `_created` sample for every counter and histogram would be a seventh of the page, and no rule reads them.
disable_created_metrics()  # type: ignore[no-untyped-call]  # untyped in the library
ProcessCollector(registry=REGISTRY)
PlatformCollector(registry=REGISTRY)
Info("gpu_build", "Version and revision of the running program.", registry=REGISTRY).info(
    {"version": VERSION, "revision": REVISION}
)

REQUEST_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Half a millisecond is a filter of 1,000 names; five seconds is kube-scheduler's httpTimeout."""

# --- pools and devices -------------------------------------------------------------------------

POOL_CAPACITY_TOTAL = Gauge(
    "gpupool_capacity_total", "Units the pool's devices export.", ["pool"], registry=REGISTRY
)
POOL_CAPACITY_RESERVED = Gauge(
    "gpupool_capacity_reserved",
    "Units held for pods that are not bound yet.",
    ["pool"],
    registry=REGISTRY,
)
POOL_CAPACITY_USED = Gauge(
    "gpupool_capacity_used", "Units of bound pods.", ["pool"], registry=REGISTRY
)
POOL_CAPACITY_AVAILABLE = Gauge(
    "gpupool_capacity_available", "Units free to be given out now.", ["pool"], registry=REGISTRY
)
POOL_LARGEST_FREE = Gauge(
    "gpupool_largest_free",
    "Most units of the pool that are available on one node.",
    ["pool"],
    registry=REGISTRY,
)
POOL_CAPACITY_UNHEALTHY = Gauge(
    "gpupool_capacity_unhealthy",
    "Free units withheld: the device is faulted or leaves the pool, its node is missing, not ready or"
    " cordoned, a pod runs there on unknown devices, or the whole pool is in maintenance or"
    " being deleted.",
    ["pool"],
    registry=REGISTRY,
)
DEVICES_RESERVED = Gauge(
    "gpu_device_reserved_total",
    "Devices of which a live reservation holds some unit.",
    ["pool"],
    registry=REGISTRY,
)
DEVICES_UNASSIGNED = Gauge(
    "gpu_device_unassigned_total", "Devices that belong to no pool.", registry=REGISTRY
)
RESERVATION_AGE = Gauge(
    "gpu_device_reservation_age_seconds",
    "Age of the pool's oldest live reservation; 0 without one.",
    ["pool"],
    registry=REGISTRY,
)
RESERVATIONS = Gauge(
    "gpu_reservations",
    "Live reservations that hold units, by phase; committed, doubtful and bound ones are bindings that"
    " the watch has not shown yet.",
    ["phase"],
    registry=REGISTRY,
)
RESERVATIONS_ENDED = Counter(
    "gpu_reservations_ended_total",
    "Reservations by how they ended: bound, expired, released, not_observed.",
    ["end"],
    registry=REGISTRY,
)
PODS_WAITING = Gauge(
    "gpu_pods_waiting",
    "Pending pods of the pool that hold nothing and are not gated.",
    ["pool"],
    registry=REGISTRY,
)
PODS_LONGEST_WAIT = Gauge(
    "gpu_pods_longest_wait_seconds",
    "Age of the oldest pending pod of the pool that holds nothing and is not gated; 0 without one.",
    ["pool"],
    registry=REGISTRY,
)
PODS_UNACCOUNTED = Gauge(
    "gpu_pods_unaccounted",
    "Bound pods with unknown devices; their nodes take no more pods of their pools.",
    registry=REGISTRY,
)
UNITS_HELD_TWICE = Gauge(
    "gpu_units_held_twice", "Units that more than one bound pod has.", registry=REGISTRY
)
ALLOCATION_MISMATCHES = Counter(
    "gpu_allocation_mismatches_total",
    "Pods to which kubelet gave other units than they were bound with, as their node reports; counted by"
    " who leads when that is seen.",
    ["pool"],
    registry=REGISTRY,
)
PODS_NOMINATED = Counter(
    "gpu_pods_nominated_total",
    "Waiting pods for which the node of their hold was named to kube-scheduler.",
    registry=REGISTRY,
)
INDEX_GENERATION = Gauge(
    "gpu_index_generation", "Moves with every real change of the device index.", registry=REGISTRY
)


INVENTORY_DEVICES = Gauge(
    "gpu_inventory_devices_total", "Devices of a node.", ["node"], registry=REGISTRY
)
INVENTORY_DEVICES_STATE = Gauge(
    "gpu_inventory_devices_state",
    "Devices of a node by state; states without a device have no series.",
    ["node", "state"],
    registry=REGISTRY,
)
INVENTORY_CONDITION = Gauge(
    "gpu_node_inventory_condition",
    "1 where a condition of the node's inventory is True, else 0.",
    ["node", "condition"],
    registry=REGISTRY,
)
BOOTSTRAP_PHASE = Gauge(
    "gpu_bootstrap_node_phase",
    "1 for the phase that the node's GPU software is in; one series a node.",
    ["node", "phase"],
    registry=REGISTRY,
)
BOOTSTRAP_CONDITION = Gauge(
    "gpu_bootstrap_condition",
    "1 for each condition of the node's GPU software that is True; others have no series.",
    ["node", "condition"],
    registry=REGISTRY,
)
BOOTSTRAP_READY = Gauge(
    "gpu_bootstrap_ready",
    "1 where the node's devices may be given to pools, else 0.",
    ["node"],
    registry=REGISTRY,
)
POOL_ASSIGNMENTS = Gauge(
    "gpupool_assignments", "Devices that belong to the pool.", ["pool"], registry=REGISTRY
)
POOL_NODE_SLOTS = Gauge(
    "gpupool_node_slots",
    "Units of the pool on a node.",
    ["pool", "node"],
    registry=REGISTRY,
)
POOL_CONDITION = Gauge(
    "gpupool_condition",
    "1 where a condition of the pool is True, else 0.",
    ["pool", "condition"],
    registry=REGISTRY,
)
DEVICES_FAULTED = Gauge(
    "gpu_device_faulted_total",
    "Devices that are faulted, by reason.",
    ["reason"],
    registry=REGISTRY,
)
DEVICES_STALE = Gauge(
    "gpu_device_stale_total", "Devices whose source of facts went silent.", registry=REGISTRY
)
HEALTH_SCRAPES = Counter(
    "gpu_health_scrapes_total",
    "Looks at DCGM exporters, by outcome (read, failed, malformed).",
    ["outcome"],
    registry=REGISTRY,
)
BAD_FEATURES = Counter(
    "gpu_inventory_bad_features_total",
    "Labels and attributes of nodes with an invalid value, by source; each is skipped.",
    ["source"],
    registry=REGISTRY,
)
EVICTIONS = Counter(
    "gpu_evictions_total",
    "Evictions of pods for the maintenance of a pool, by outcome (evicted, gone, refused, failed).",
    ["outcome"],
    registry=REGISTRY,
)

# --- what others ask of us ---------------------------------------------------------------------

ADMISSION_DURATION = Histogram(
    "gpu_admission_duration_seconds",
    "Time to answer an AdmissionReview.",
    ["webhook", "outcome"],
    buckets=REQUEST_BUCKETS,
    registry=REGISTRY,
)
EXTENDER_DURATION = Histogram(
    "gpu_extender_duration_seconds",
    "Time to answer kube-scheduler.",
    ["verb", "outcome"],
    buckets=REQUEST_BUCKETS,
    registry=REGISTRY,
)
REFUSALS = Counter(
    "gpu_refusals_total",
    "Pods, pools and devices refused at admission, by reason.",
    ["reason"],
    registry=REGISTRY,
)

# --- what we ask of the API server -------------------------------------------------------------

API_REQUEST_DURATION = Histogram(
    "gpu_api_request_duration_seconds",
    "Time of one request to the API server, by HTTP method, resource and status code "
    "(code is the exception's name where there was no answer).",
    ["method", "resource", "code"],
    buckets=REQUEST_BUCKETS,
    registry=REGISTRY,
)
INFORMER_SYNCED = Gauge(
    "gpu_informer_synced",
    "1 once the first full list was applied.",
    ["resource"],
    registry=REGISTRY,
)
INFORMER_LAG = Gauge(
    "gpu_informer_lag_seconds",
    "Time since the watch last said anything (an event or a bookmark).",
    ["resource"],
    registry=REGISTRY,
)
INFORMER_EVENTS = Counter(
    "gpu_informer_events_total", "Watch events by type.", ["resource", "type"], registry=REGISTRY
)
INFORMER_RELISTS = Counter(
    "gpu_informer_relists_total",
    "Lists after the first one, by cause.",
    ["resource", "cause"],
    registry=REGISTRY,
)
INFORMER_FAILURES = Counter(
    "gpu_informer_failures_total",
    "Lists and watches that failed and were taken up again, by error.",
    ["resource", "cause"],
    registry=REGISTRY,
)
INFORMER_DECODE_ERRORS = Counter(
    "gpu_informer_decode_errors_total",
    "Objects or events that could not be decoded and were skipped.",
    ["resource"],
    registry=REGISTRY,
)
EVENTS_EMITTED = Counter(
    "gpu_events_emitted_total",
    "Kubernetes Events by reason and outcome (written, merged, dropped, failed).",
    ["reason", "outcome"],
    registry=REGISTRY,
)

# --- the process itself ------------------------------------------------------------------------

RECONCILES = Counter(
    "gpu_reconciles_total",
    "Reconciles by controller and outcome (done, requeued, failed, dropped).",
    ["controller", "outcome"],
    registry=REGISTRY,
)
RECONCILE_DURATION = Histogram(
    "gpu_reconcile_duration_seconds",
    "Time of one reconcile.",
    ["controller"],
    buckets=REQUEST_BUCKETS,
    registry=REGISTRY,
)
CONNECTIONS_DROPPED = Counter(
    "gpu_connections_dropped_total",
    "Connections to our port that we closed: a handshake that did not succeed, a head that did not"
    " come in time, an answer that was not read, no place left, no file left to open (handshake, head,"
    " answer, limit, files).",
    ["cause"],
    registry=REGISTRY,
)
EVENT_LOOP_LAG = Histogram(
    "gpu_event_loop_lag_seconds",
    "How late the event loop came to what was due, looked at ten times a second.",
    buckets=REQUEST_BUCKETS,
    registry=REGISTRY,
)
LEADING = Gauge("gpu_leading", "1 while this replica holds the Lease.", registry=REGISTRY)
CERTIFICATE_NOT_AFTER = Gauge(
    "gpu_certificate_not_after_timestamp_seconds",
    "End of validity of the serving certificate (leaf) and its CA (ca).",
    ["certificate"],
    registry=REGISTRY,
)
CERTIFICATE_ERRORS = Counter(
    "gpu_certificate_errors_total",
    "Failures to issue, store, inject or reload a certificate, by step.",
    ["step"],
    registry=REGISTRY,
)
TASK_FAILURES = Counter(
    "gpu_task_failures_total",
    "Failures of background tasks and of requests that were caught.",
    ["task"],
    registry=REGISTRY,
)
