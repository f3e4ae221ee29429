"""Every metric of the node agent, besides those of `telemetry.metrics` that its parts share with the server.

A file of its own, so that the server's page has none of them. Label values are closed sets, resources and
pools of one node.
"""

from telemetry.metrics import REQUEST_BUCKETS, counter, gauge, histogram

TRANSFER_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""A cache of some MiB is pulled and extracted within a second; many GiB on a slow disk take minutes."""

DEVICES = gauge(
    "gpu_agent_cards", "Devices of the node by health (Healthy, Unhealthy, Lost).", ["health"]
)
DRIVER_CALL_DURATION = histogram(
    "gpu_agent_driver_call_seconds",
    "Time of one call of the driver, by what was asked and outcome (ok, failed, hung).",
    ["call", "outcome"],
    buckets=REQUEST_BUCKETS,
)
DRIVER_EVENTS = counter(
    "gpu_agent_driver_events_total",
    "Events of the driver, by kind and by effect on the device (fault, ignored).",
    ["kind", "verdict"],
)
DEVICE_VALUES_DROPPED = counter(
    "gpu_agent_device_values_dropped_total",
    "Values left out of the devices' metrics: implausible ones, by field; or uuid_changed, for a whole device.",
    ["field"],
)
PUBLISHED = counter(
    "gpu_agent_publications_total",
    "Publications of the agent, by content (features, heartbeat, cards, cdi, allocations,"
    " driver_processes, condition) and outcome (written, failed).",
    ["what", "outcome"],
)
PARTITIONINGS = counter(
    "gpu_agent_partitioning_steps_total",
    "Steps of partitioning devices into MIG instances, by step and outcome (done, refused).",
    ["step", "outcome"],
)
RESETS = counter(
    "gpu_agent_resets_total",
    "Resets of devices that their repair asked for, by outcome (Done, InUse, Refused, Hangs).",
    ["outcome"],
)
PLUGIN_REGISTERED = gauge(
    "gpu_agent_plugin_registered", "1 while kubelet knows the plugin of a resource.", ["resource"]
)
ALLOCATIONS = counter(
    "gpu_agent_allocations_total",
    "Answers to GetPreferredAllocation by resource and outcome: promised (the devices of the pod's"
    " annotation), substituted, unpromised (the pod has no annotation), unrecognised (no pod was found),"
    " refused.",
    ["resource", "outcome"],
)
REFUSED_ALLOCATIONS = counter(
    "gpu_agent_allocate_refused_total",
    "Calls of Allocate that were refused, by resource and cause (unknown, held).",
    ["resource", "cause"],
)
ANSWERS = counter(
    "gpu_agent_answers_total",
    "Our answers to kubelet, by call and gRPC status (OK, ABORTED, ...).",
    ["call", "code"],
)
ANSWER_DURATION = histogram(
    "gpu_agent_answer_seconds",
    "Time of our answers to kubelet, by call.",
    ["call"],
    buckets=REQUEST_BUCKETS,
)
KUBELET_CALL_DURATION = histogram(
    "gpu_agent_kubelet_call_seconds",
    "Time of one call of kubelet's PodResources, by call and outcome (ok, limited, failed).",
    ["call", "outcome"],
    buckets=REQUEST_BUCKETS,
)
CACHE_EXTRACTIONS = counter(
    "gpu_kernel_cache_extractions_total",
    "Attempts to pull and extract a cache's image, by outcome (extracted, failed, cancelled).",
    ["outcome"],
)
CACHE_EXTRACTION_DURATION = histogram(
    "gpu_kernel_cache_extraction_seconds",
    "Time from the start of a successful pull until the cache can be mounted.",
    buckets=TRANSFER_BUCKETS,
)
CACHE_PULL_DURATION = histogram(
    "gpu_kernel_cache_pull_seconds",
    "Time in which the registry sent a layer as a whole.",
    buckets=TRANSFER_BUCKETS,
)
CACHE_PULLED_BYTES = counter(
    "gpu_kernel_cache_pull_bytes_total", "Bytes of layers that registries sent."
)
CACHE_DISK_BYTES = gauge(
    "gpu_kernel_cache_disk_bytes", "Bytes of the node's disk that extracted caches take."
)
CACHE_DISK_QUOTA_BYTES = gauge(
    "gpu_kernel_cache_disk_quota_bytes",
    "Bytes of the node's disk that extracted caches may take.",
)
CACHE_CONTENTS = gauge(
    "gpu_kernel_cache_contents", "Digests of caches that are extracted on the node."
)
CACHE_PODS = gauge("gpu_kernel_cache_pods", "Pods of the node that have a cache mounted.")
CACHE_MOUNTS = counter(
    "gpu_kernel_cache_mounts_total",
    "Answers to kubelet's requests to mount a cache, by outcome: mounted, not_ready (kubelet asks again),"
    " refused, failed.",
    ["outcome"],
)
CACHE_STARTS = counter(
    "gpu_kernel_cache_starts_total",
    "Volumes that were mounted, by warmth: warm (at kubelet's first request), cold (after it was told to wait).",
    ["warmth"],
)
