"""Settings that are none any more: given, each is refused by its name, with what to do.

The chart refuses them in the same words (`chart.schema`, `checks.yaml`).
"""

from typing import Final

_FIXED: Final = "it has a fixed value now; leave it out"

RETIRED: Final = {
    **dict.fromkeys(
        (
            "autoscaling.batch_idle_s",
            "autoscaling.batch_max_s",
            "autoscaling.signal_image",
            "demand.half_life_s",
            "extender.bind_timeout_s",
            "health.clean_samples",
            "health.scrape_timeout_s",
            "health.scrapes_per_second",
            "inventory.freshness_s",
            "inventory.node_features",
            "kernel_caches.registries.timeout_s",
            "kernel_caches.warm_score",
            "kubelet.device_plugins_directory",
            "leadership.lease",
            "listen.max_body_bytes",
            "listen.max_connections",
            "mutating_configuration",
            "observe_within_s",
            "scheduler",
            "service",
            "tls.poll_files_every_s",
            "tls.secret",
            "validating_configuration",
        ),
        _FIXED,
    ),
    **dict.fromkeys(
        (
            "bootstrap.bad_samples",
            "bootstrap.dcgm.hostengine_arguments",
            "bootstrap.dcgm_exporter.annotations",
            "bootstrap.dcgm_exporter.service_monitor.enabled",
            "bootstrap.gfd.resources",
            "bootstrap.good_samples",
            "bootstrap.validator.image",
            "bootstrap.validator.resources",
            *(
                f"bootstrap.{operand}.{name}"
                for operand in ("validator", "gfd", "dcgm")
                for name in ("args", "env")
            ),
        ),
        _FIXED,
    ),
    **dict.fromkeys(
        ("bootstrap.dcgm.mig_strategy", "bootstrap.dcgm.proftester_flags"),
        "DCGM's host engine reads no such variable; leave it out",
    ),
    **dict.fromkeys(
        ("device_plugin.tolerations", "node_agent.tolerations", "node_detector.tolerations"),
        "node software tolerates every taint; leave it out",
    ),
    **{
        f"bootstrap.{operand}.image_pull_{what}": f"set `node_agent.image_pull_{what}`"
        for operand in ("validator", "gfd", "dcgm", "dcgm_exporter")
        for what in ("policy", "secrets")
    },
    **{
        f"bootstrap.{operand}.resources": f"set `bootstrap.{operand}.memory_limit`"
        for operand in ("dcgm", "dcgm_exporter")
    },
    **{
        f"bootstrap.{operand}.image.{part}": (
            f"set `bootstrap.{operand}.image` to the whole reference, as registry/path/name:version"
        )
        for operand in ("gfd", "dcgm", "dcgm_exporter")
        for part in ("repository", "image", "version")
    },
    "health.ignored_xids": "name an Xid that is no fault with the action None in `health.xid_actions`",
    "bootstrap.dcgm_exporter.args": "set the variables of the arguments in `bootstrap.dcgm_exporter.env`",
    "bootstrap.dcgm_exporter.collectors": (
        "set DCGM_EXPORTER_COLLECTORS in `bootstrap.dcgm_exporter.env`"
    ),
    "bootstrap.gfd.node_feature_api": (
        "set `bootstrap.gfd.features_dir` for files of features, and leave that out for a NodeFeature"
    ),
    **dict.fromkeys(
        ("leadership.look_s", "leadership.renew_deadline_s", "leadership.retry_s"),
        "it follows from `leadership.duration_s`; leave it out",
    ),
    **{
        name: f"set `node_agent.{name.rpartition('.')[2]}` in its place"
        for name in (
            "device_plugin.image_pull_policy",
            "device_plugin.image_pull_secrets",
            "device_plugin.node_selector",
            "device_plugin.priority_class",
            "node_detector.image",
            "node_detector.image_pull_policy",
            "node_detector.image_pull_secrets",
            "node_detector.priority_class",
        )
    },
}
"""Name, of a setting or of a whole section -> what to do."""
