"""ClusterPolicies, NVIDIADrivers and nodes for the tests of their states: the matrix, and what else they may say."""

import functools
import itertools
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from api.kinds.nvidia.clusterpolicy import ClusterPolicySpec
from api.kinds.nvidia.nvidiadriver import DriverType, NVIDIADriverSpec
from api.kinds.nvidia.sandbox_operands import SandboxMode, WorkloadType
from operands.nvidia.driver_daemonsets import DRIVER_STATE, DriverOperands
from operands.nvidia.node_software import HostSoftware, RuntimeName
from operands.nvidia.policy_operands import PolicyOperands, ServerMetrics
from operands.nvidia.policy_states import POLICY_STATES
from operands.operand_state import ALL_KINDS_SERVED

Json = dict[str, Any]

NAMESPACE = "gpu"
REGISTRY = "registry.example.com/nvidia"
IMAGES = {
    f"{name}_IMAGE": f"{REGISTRY}/{name.lower().replace('_', '-')}:1.0"
    for name in (
        "CC_MANAGER", "CONTAINER_TOOLKIT", "DCGM", "DCGM_EXPORTER", "DEVICE_PLUGIN", "DRIVER", "DRIVER_MANAGER",
        "GDRCOPY", "GDS", "GFD", "KATA_MANAGER", "KATA_SANDBOX_DEVICE_PLUGIN", "MIG_MANAGER",
        "SANDBOX_DEVICE_PLUGIN", "VALIDATOR", "VFIO_MANAGER", "VGPU_DEVICE_MANAGER",
        "VGPU_MANAGER",
    )
}  # fmt: skip
"""Of the environment: every operand has one."""
METRICS = ServerMetrics(
    selector={
        "app.kubernetes.io/name": "gpu-control-plane",
        "app.kubernetes.io/component": "server",
    },
    port="https",
    path="/metrics",
    server_name="gpu-control-plane.gpu.svc",
    ca_secret="gpu-control-plane-scheduler",
)
CDI: Mapping[str, Json] = {
    "no-cdi": {"enabled": False},
    "cdi": {"enabled": True},
    "nri": {"enabled": True, "nriPluginEnabled": True},
}
UBUNTU = HostSoftware(os_tag="ubuntu24.04", kernel="6.8.0-60-generic", runtime="containerd")
OLDER_UBUNTU = HostSoftware(os_tag="ubuntu22.04", kernel="5.15.0-140-generic", runtime="docker")
RHEL = HostSoftware(os_tag="rhel9", kernel="5.14.0-570.el9.x86_64", runtime="cri-o")
UNKNOWN = HostSoftware(os_tag="", kernel="", runtime="")
MIXED = tuple(sorted((UBUNTU, replace(UBUNTU, kernel="6.8.0-71-generic"), OLDER_UBUNTU, RHEL)))

NAMED_BY_SPEC = frozenset(
    {
        "repositories", "certificates", "topology", "parameters", "plugin-configs", "metrics", "mig-configs",
        "clients", "vgpu-configs",
    }
)  # fmt: skip
"""ConfigMaps that `CUSTOM`, below, names and another client makes."""

ON: Mapping[str, Json] = {
    name: {"enabled": True}
    for name in (
        "ccManager", "dcgm", "dcgmExporter", "devicePlugin", "driver", "gdrcopy", "gds", "gfd",
        "kataSandboxDevicePlugin", "migManager", "nodeStatusExporter", "sandboxDevicePlugin", "toolkit",
        "vfioManager", "vgpuDeviceManager", "vgpuManager",
    )
}  # fmt: skip
"""Every operand is on."""
SANDBOX: Json = {"sandboxWorkloads": {"enabled": True}}


def a_policy(*software: HostSoftware, **spec: Any) -> PolicyOperands:
    """A ClusterPolicy, its spec in JSON, for nodes of this software: of one Ubuntu, if none is given."""
    return PolicyOperands(
        name="gpus",
        spec=msgspec.convert(spec, ClusterPolicySpec),
        namespace=NAMESPACE,
        environment=IMAGES,
        software=software or (UBUNTU,),
        config_keys=dict.fromkeys(sorted(NAMED_BY_SPEC), ("settings.conf",)),
        metrics=METRICS,
    )


def a_full_policy(*software: HostSoftware, **spec: Any) -> PolicyOperands:
    """A ClusterPolicy with every operand on; a part of the spec is put into that."""
    parts: Json = {name: {**ON.get(name, {}), **part} for name, part in spec.items()}
    return a_policy(*software, **{**ON, **parts})


def _matrix() -> dict[str, PolicyOperands]:
    cases = {}
    for workload, mode, (cdi, spec), runtime in itertools.product(
        WorkloadType, SandboxMode, CDI.items(), RuntimeName
    ):
        sandbox = {"enabled": True, "defaultWorkload": workload.value, "mode": mode.value}
        cases[f"{workload.value}-{mode.value}-{cdi}-{runtime.value}"] = a_full_policy(
            replace(UBUNTU, runtime=runtime.value), sandboxWorkloads=sandbox, cdi=spec
        )
    return cases


_BLOCK: Json = {
    "repository": REGISTRY,
    "image": "custom",
    "version": "2.0",
    "imagePullPolicy": "Always",
    "imagePullSecrets": ["registry"],
    "env": [{"name": "LEVEL", "value": "debug"}, {"name": "NOTHING"}],
}
_CONTAINER: Json = {
    **_BLOCK,
    "resources": {"limits": {"memory": "1Gi", "cpu": 2}, "requests": {"cpu": "100m"}},
    "args": ["--verbose"],
    "hostNetwork": True,
}
_MONITOR: Json = {
    "enabled": True,
    "interval": "30s",
    "scrapeTimeout": "10s",
    "honorLabels": True,
    "additionalLabels": {"release": "prometheus"},
    "relabelings": [
        {
            "action": "replace",
            "sourceLabels": ["__meta_kubernetes_pod_node_name"],
            "targetLabel": "node",
        }
    ],
}
_MANAGER: Json = {**_BLOCK, "image": "k8s-driver-manager"}
CUSTOM: Json = {
    **{name: {**_CONTAINER, "enabled": True} for name in ON},
    "validator": {
        **_CONTAINER,
        **{
            step: {"env": [{"name": "STEP", "value": step}]}
            for step in (
                "plugin",
                "toolkit",
                "driver",
                "cuda",
                "vfioPCI",
                "vgpuManager",
                "vgpuDevices",
            )
        },
    },
    "operator": {
        "runtimeClass": "gpus",
        "labels": {"team": "gpu"},
        "annotations": {"example.com/a": "b"},
        "metrics": {"serviceMonitor": _MONITOR},
    },
    "daemonsets": {
        "labels": {"team": "gpu", "app": "not-this"},
        "annotations": {"example.com/a": "b"},
        "tolerations": [{"operator": "Exists"}],
        "priorityClassName": "gpus",
        "rollingUpdate": {"maxUnavailable": "10%"},
        "podSecurityContext": {"runAsNonRoot": False, "seLinuxOptions": {"level": "s0"}},
    },
    "hostPaths": {
        "rootFS": "/node",
        "driverInstallDir": "/opt/driver",
        "kubeletRootDir": "/data/kubelet",
    },
    **SANDBOX,
}
"""Whatever a policy may say about its operands."""
CUSTOM["driver"] |= {
    "kernelModuleType": "open",
    "startupProbe": {"periodSeconds": 5},
    "livenessProbe": {"timeoutSeconds": 7},
    "readinessProbe": {"failureThreshold": 3},
    "rdma": {"enabled": True, "useHostMofed": True},
    "manager": _MANAGER,
    "repoConfig": {"configMapName": "repositories"},
    "certConfig": {"name": "certificates"},
    "licensingConfig": {"secretName": "licence", "nlsEnabled": True},
    "virtualTopology": {"config": "topology"},
    "kernelModuleConfig": {"name": "parameters"},
    "secretEnv": "secrets",
    "upgradePolicy": {"autoUpgrade": True, "drain": {"enable": True, "force": True}},
}
CUSTOM["toolkit"] |= {"installDir": "/opt/toolkit"}
CUSTOM["devicePlugin"] |= {
    "config": {"name": "plugin-configs", "default": "shared"},
    "mps": {"root": "/data/mps"},
}
CUSTOM["dcgmExporter"] |= {
    "annotations": {"example.com/scrape": "true"},
    "config": {"name": "metrics"},
    "serviceMonitor": _MONITOR,
    "service": {"type": "ClusterIP", "internalTrafficPolicy": "Local"},
    "hostPID": True,
    "hpcJobMapping": {"enabled": True, "directory": "/data/jobs"},
    "enablePodLabels": True,
    "enablePodUID": True,
    "podLabelAllowlistRegex": ["app"],
}
CUSTOM["migManager"] |= {
    "config": {"name": "mig-configs", "default": "all-disabled"},
    "gpuClientsConfig": {"name": "clients"},
}
CUSTOM["vfioManager"] |= {"driverManager": _MANAGER}
CUSTOM["vgpuManager"] |= {"driverManager": _MANAGER, "kernelModuleConfig": {"name": "parameters"}}
CUSTOM["vgpuDeviceManager"] |= {"config": {"name": "vgpu-configs", "default": "T4-2Q"}}
CUSTOM["ccManager"] |= {"defaultMode": "devtools"}

MATRIX = _matrix()
CASES: dict[str, PolicyOperands] = {
    **MATRIX,
    "empty-spec": a_policy(),
    "no-virtual-machines": a_full_policy(),
    "no-nodes": replace(a_full_policy(**SANDBOX), software=()),
    "mixed": a_full_policy(*MIXED, **SANDBOX),
    "precompiled": a_full_policy(
        *MIXED,
        **SANDBOX,
        driver={"usePrecompiled": True},
        gds={"enabled": False},
        gdrcopy={"enabled": False},
    ),
    "unknown-software": a_full_policy(UNKNOWN, UBUNTU, **SANDBOX),
    "driver-objects": a_full_policy(*MIXED, driver={"useNvidiaDriverCRD": True}),
    "all-off": a_policy(**{name: {"enabled": False} for name in ON}),
    "custom": a_policy(*MIXED, **CUSTOM),
    "custom-kata": a_policy(
        *MIXED, **{**CUSTOM, "sandboxWorkloads": {"enabled": True, "mode": "kata"}}
    ),
    "on-delete": a_full_policy(daemonsets={"updateStrategy": "OnDelete"}),
    "mig-mixed": a_full_policy(mig={"strategy": "mixed"}),
    "by-digest": a_full_policy(
        *MIXED,
        **SANDBOX,
        **{
            name: {"repository": REGISTRY, "image": "x", "version": f"sha256:{'0a' * 32}"}
            for name in ON
        },
    ),
    "class-of-cdi": a_policy(operator={"runtimeClass": "nvidia-cdi"}),
    "monitored": a_policy(operator={"metrics": {"serviceMonitor": {"enabled": True}}}),
}


def a_driver(*software: HostSoftware, name: str = "fast", **spec: Any) -> DriverOperands:
    """An NVIDIADriver, its spec in JSON, for nodes of this software: for mixed ones, if none is given."""
    image = {"repository": REGISTRY, "image": "driver", "version": "580.95"}
    return DriverOperands(
        name=name,
        uid="7d0b6a34-90c5-4d0a-9d3e-1a2b3c4d5e6f",
        spec=msgspec.convert({**image, **spec}, NVIDIADriverSpec),
        namespace=NAMESPACE,
        environment=IMAGES,
        software=software or MIXED,
        config_keys=dict.fromkeys(sorted(NAMED_BY_SPEC), ("settings.conf",)),
    )


_OF_BOTH_KINDS = (
    "kernelModuleType", "startupProbe", "livenessProbe", "readinessProbe", "rdma", "manager", "certConfig",
    "kernelModuleConfig", "secretEnv", "upgradePolicy",
)  # fmt: skip
DRIVERS: dict[str, DriverOperands] = {
    **{
        f"driver-{kind.value}-{'precompiled' if is_precompiled else 'built'}": a_driver(
            driverType=kind.value, usePrecompiled=is_precompiled
        )
        for kind in DriverType
        for is_precompiled in (False, True)
    },
    "driver-custom": a_driver(
        **_CONTAINER,
        **{key: CUSTOM["driver"][key] for key in _OF_BOTH_KINDS},
        gds={**_BLOCK, "enabled": True},
        gdrcopy={**_BLOCK, "enabled": True},
        repoConfig={"name": "repositories"},
        licensingConfig={"secretName": "licence", "nlsEnabled": True},
        virtualTopologyConfig={"name": "topology"},
        nodeSelector={"zone": "a"},
        labels={"team": "gpu"},
        annotations={"example.com/a": "b"},
        tolerations=[{"operator": "Exists"}],
        priorityClassName="gpus",
    ),
    "driver-of-a-long-name": a_driver(name="n" * 200),
    "driver-of-no-node": replace(a_driver(), software=()),
}


@functools.cache
def objects_of(name: str) -> dict[str, list[Json]]:
    """The objects of a case by state; not to be changed."""
    if name in DRIVERS:
        return {DRIVER_STATE.name: DRIVER_STATE.objects(DRIVERS[name], ALL_KINDS_SERVED)}
    return {state.name: state.objects(CASES[name], ALL_KINDS_SERVED) for state in POLICY_STATES}


@functools.cache
def distinct_objects() -> list[Json]:
    """Every object of every case once, in the order in which they come up."""
    found: dict[str, Json] = {}
    for name in (*CASES, *DRIVERS):
        for objects in objects_of(name).values():
            for object_ in objects:
                found.setdefault(json.dumps(object_, sort_keys=True), object_)
    return list(found.values())
