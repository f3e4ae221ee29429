"""Every metric of the node agent, besides those of `telemetry.metrics` that its parts share with the server.

A file of its own, so that the server's page has none of them. Label values are closed sets, resources and
pools of one node.
"""

from telemetry.metrics import REQUEST_BUCKETS, counter, gauge, histogram

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
    "Publications of the agent, by content (features, heartbeat, cards, cdi, allocations, condition)"
    " and outcome (written, failed).",
    ["what", "outcome"],
)
PARTITIONINGS = counter(
    "gpu_agent_partitioning_steps_total",
    "Steps of partitioning devices into MIG instances, by step and outcome (done, refused).",
    ["step", "outcome"],
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
