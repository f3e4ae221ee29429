"""What our ClusterPolicy and NVIDIADriver refuse beyond upstream's schema: why, in which words, and when.

`is_broken` reads the object after defaults and shares no code with the rules: it is the second opinion on them.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

ON_BY_DEFAULT = {"dcgm", "dcgmExporter", "devicePlugin", "gfd", "migManager", "toolkit"}
OFF_BY_DEFAULT = {
    "ccManager",
    "gdrcopy",
    "gds",
    "kataSandboxDevicePlugin",
    "nodeStatusExporter",
    "sandboxDevicePlugin",
    "vfioManager",
    "vgpuDeviceManager",
    "vgpuManager",
}
OWNER = "nvidia.com/gpu-operator.driver.owner"


@dataclass(frozen=True, kw_only=True)
class StricterRule:
    text: str
    """Part of the message, which names the cure."""
    why: str
    """What upstream does with such an object."""
    is_broken: Callable[[Json], bool]

    def says(self, refusal: object) -> bool:
        return self.text in str(refusal)


def is_half(block: Json) -> bool:
    repository, image, version = (block.get(key) for key in ("repository", "image", "version"))
    if not repository and not version:
        return False
    return not (repository and image and version)


def runs_driver(spec: Json) -> bool:
    driver = spec["driver"]
    return driver.get("enabled", True) and not driver.get("useNvidiaDriverCRD", False)


def images_of(body: Json) -> Iterator[Json]:
    """Yield the parts of the spec with an image that is used."""
    spec = body["spec"]
    if body["kind"] == "NVIDIADriver":
        yield spec
        yield spec.get("manager", {})
        yield from (spec[key] for key in ("gds", "gdrcopy") if is_on(spec, key))
        return
    yield from (
        spec[key] for key in ON_BY_DEFAULT if spec.get(key, {}).get("enabled", True) and key in spec
    )
    on = [key for key in OFF_BY_DEFAULT if is_on(spec, key)]
    yield from (spec[key] for key in on)
    yield from (spec[key].get("driverManager", {}) for key in on)
    yield spec.get("validator", {})
    if runs_driver(spec):
        yield from (spec["driver"], spec["driver"].get("manager", {}))


def is_on(spec: Json, key: str) -> bool:
    return bool(spec.get(key, {}).get("enabled", False))


def has_half_image(body: Json) -> bool:
    return "spec" in body and any(is_half(block) for block in images_of(body))


def precompiled_driver(body: Json) -> Json | None:
    """Return the part of the spec that describes a driver with precompiled modules."""
    spec = body.get("spec")
    if spec is None:
        return None
    driver = spec if body["kind"] == "NVIDIADriver" else spec["driver"]
    if body["kind"] == "ClusterPolicy" and not runs_driver(spec):
        return None
    return driver if driver.get("usePrecompiled") else None


def needs_open_modules(body: Json) -> bool:
    spec = body.get("spec", {})
    if body["kind"] != "NVIDIADriver" or not is_on(spec, "gds"):
        return False
    version = spec["gds"].get("version", "")
    if spec["kernelModuleType"] == "open":
        return False
    if version.startswith("sha256"):
        return True
    found = re.fullmatch(r"v?(\d+)(?:\.(\d+))?(?:\.(\d+))?(?:[-+].*)?", version)
    return found is not None and tuple(int(group or 0) for group in found.groups()) >= (2, 17, 5)


def policy_of(body: Json) -> Json:
    spec = body.get("spec", {})
    found: Json = (spec if body["kind"] == "NVIDIADriver" else spec.get("driver", {})).get(
        "upgradePolicy", {}
    )
    return found


def is_no_part(value: Any) -> bool:
    """Say whether it is neither a number of nodes nor a percentage of them up to all."""
    if isinstance(value, int):
        return value < 0
    found = re.fullmatch(r"([0-9]+)%", value)
    return found is None or int(found[1]) > 100


def is_no_rolling_part(text: str) -> bool:
    found = re.fullmatch(r"([0-9]+)(%?)", text)
    if found is None:
        return text != ""
    return not 0 < int(found[1]) <= (100 if found[2] else 10**9 - 1)


def is_nri_without_cdi(body: Json) -> bool:
    spec = body.get("spec", {})
    cdi = spec.get("cdi", {})
    if body["kind"] != "ClusterPolicy" or not cdi.get("nriPluginEnabled", False):
        return False
    return not (cdi.get("enabled", True) and spec["toolkit"].get("enabled", True))


def has_modules(body: Json) -> bool:
    return any(is_on(body["spec"], key) for key in ("gds", "gdrcopy"))


def repeats_conditions(body: Json) -> bool:
    types = [item["type"] for item in body.get("status", {}).get("conditions", ())]
    return len(types) != len(set(types))


RULES = (
    StricterRule(
        text="cdi.nriPluginEnabled needs CDI and the container toolkit",
        why="the operator checks it when it starts, and not again: a later edit leaves containers without devices",
        is_broken=is_nri_without_cdi,
    ),
    StricterRule(
        text="is given in half: set repository, image and version",
        why="the operator fails to reconcile the whole policy, and says so in its log",
        is_broken=has_half_image,
    ),
    StricterRule(
        text="a precompiled driver runs without GPUDirect Storage and GDRCopy",
        why="the operator fails to reconcile, with this as its error",
        is_broken=lambda body: precompiled_driver(body) is not None and has_modules(body),
    ),
    StricterRule(
        text="a precompiled driver needs a tag",
        why="the operator fails to reconcile an NVIDIADriver, and gives a ClusterPolicy's nodes an image that is none",
        is_broken=lambda body: (
            (precompiled_driver(body) or {}).get("version", "").startswith("sha256:")
        ),
    ),
    StricterRule(
        text=f"nodeSelector names the label {OWNER}",
        why="the operator refuses it in a condition, since it writes the label itself",
        is_broken=lambda body: OWNER in body.get("spec", {}).get("nodeSelector", {}),
    ),
    StricterRule(
        text="GPUDirect Storage runs with the open kernel modules only",
        why="the operator refuses it in a condition",
        is_broken=needs_open_modules,
    ),
    StricterRule(
        text="upgradePolicy.maxUnavailable in body should",
        why="the operator fails to read it at every upgrade, or upgrades no node for ever (below 0)",
        is_broken=lambda body: is_no_part(policy_of(body).get("maxUnavailable", "25%")),
    ),
    StricterRule(
        text="rollingUpdate.maxUnavailable in body should match",
        why="the operator fails to reconcile every DaemonSet: the text is no number, or the API server refuses it",
        is_broken=lambda body: is_no_rolling_part(
            body.get("spec", {})
            .get("daemonsets", {})
            .get("rollingUpdate", {})
            .get("maxUnavailable", "")
        ),
    ),
    StricterRule(
        text="Duplicate value",
        why="conditions are a map by type, so that writers of different ones do not conflict; no writer repeats one",
        is_broken=repeats_conditions,
    ),
)
