"""Settings of operands for the tests: the matrix of what may be on, off, or given otherwise."""

from dataclasses import replace

from operands.operand_settings import (
    BootstrapOperands,
    DcgmMigStrategy,
    DcgmSettings,
    ExporterSettings,
    GfdSettings,
    MetricsSource,
    MonitorSettings,
    OperandOptions,
    PlacementTerms,
    ValidatorSettings,
)

OWN = "registry.example.com/gpu-control-plane:1.0"
ON_PRESENT = {"key": "gpu.deckhouse.io/present", "operator": "In", "values": ["true"]}


def options(name: str, **fields) -> OperandOptions:
    image = OWN if name == "validator" else f"registry.example.com/{name}:1.0"
    return OperandOptions(is_enabled=True, image=image, **fields)


ALL_ON = BootstrapOperands(
    namespace="gpu",
    own_image=OWN,
    placement=PlacementTerms(
        affinity={
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [ON_PRESENT]}]
                }
            }
        },
        tolerations=({"operator": "Exists"},),
        priority_class="system-node-critical",
    ),
    validator=ValidatorSettings(options=options("validator")),
    gfd=GfdSettings(options=options("gfd")),
    dcgm=DcgmSettings(options=options("dcgm")),
    exporter=ExporterSettings(options=options("dcgm-exporter"), source=MetricsSource.DCGM),
)
NVML = replace(
    ALL_ON, dcgm=DcgmSettings(), exporter=ExporterSettings(options=OperandOptions(is_enabled=True))
)
DEFAULT = replace(NVML, gfd=GfdSettings())
DIGEST = "registry.example.com/nvidia/dcgm@sha256:" + "0a" * 32


def _off(name: str) -> BootstrapOperands:
    part = getattr(ALL_ON, name)
    return replace(ALL_ON, **{name: replace(part, options=OperandOptions())})


CASES: dict[str, BootstrapOperands] = {
    "empty-settings": DEFAULT,
    "all-on": ALL_ON,
    "nvml": NVML,
    "external": replace(ALL_ON, is_own=False),
    "validator-off": _off("validator"),
    "gfd-off": _off("gfd"),
    "dcgm-off": _off("dcgm"),
    "exporter-off": _off("exporter"),
    "nvidia-fs": replace(ALL_ON, validator=replace(ALL_ON.validator, validates_nvidia_fs=True)),
    "gdrcopy": replace(ALL_ON, validator=replace(ALL_ON.validator, validates_gdrcopy=True)),
    "features-directory": replace(
        ALL_ON,
        gfd=replace(
            ALL_ON.gfd,
            uses_node_feature_api=False,
            features_dir="/var/lib/features.d",
            host_sys_path="/host/sys",
            fails_on_init_error=False,
            sleep_interval_s=90.5,
        ),
    ),
    "config-manager": replace(
        ALL_ON, gfd=replace(ALL_ON.gfd, config_map="gfd-configs", default_config="shared")
    ),
    "mig-mixed": replace(
        ALL_ON,
        dcgm=replace(
            ALL_ON.dcgm,
            mig_strategy=DcgmMigStrategy.MIXED,
            hostengine_arguments=("-n", "-b", "ALL", "--log-level", "INFO"),
            proftester_flags=("--no-dcgm-validation", "-t", "1004"),
        ),
    ),
    "custom-exporter": replace(
        ALL_ON,
        exporter=replace(
            ALL_ON.exporter,
            port=9500,
            labels={"team": "gpu"},
            annotations={"example.com/scrape": "true"},
            monitor=MonitorSettings(
                interval="30s", labels={"release": "prometheus"}, annotations={"example.com/a": "b"}
            ),
        ),
    ),
    "no-service-monitor": replace(
        ALL_ON, exporter=replace(ALL_ON.exporter, monitor=MonitorSettings(is_enabled=False))
    ),
    "custom-image-by-digest": replace(
        ALL_ON,
        runtime_class="nvidia",
        dcgm=replace(
            ALL_ON.dcgm,
            options=OperandOptions(
                is_enabled=True,
                image=DIGEST,
                image_pull_policy="IfNotPresent",
                image_pull_secrets=("registry",),
                requests={"cpu": "50m"},
                limits={"memory": "1Gi"},
                args=("--domain-socket", "/tmp/x"),
                env={"NVIDIA_VISIBLE_DEVICES": "void", "LEVEL": "debug"},
            ),
        ),
    ),
}
