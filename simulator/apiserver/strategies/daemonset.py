"""DaemonSets: defaults, and rules of the selector. No controller runs them."""

from typing import TYPE_CHECKING, Any

from simulator.apiserver.errors import InvalidField, invalid_value

if TYPE_CHECKING:
    from collections.abc import Iterator

Json = dict[str, Any]

_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")


def default(body: Json) -> None:
    """Fill in defaults as of apps/v1, in place; idempotent."""
    metadata = body["metadata"]
    annotations = metadata["annotations"] = dict(metadata.get("annotations") or {})
    annotations.setdefault("deprecated.daemonset.template.generation", "1")
    spec = body.setdefault("spec", {})
    spec.setdefault("revisionHistoryLimit", 10)
    strategy = spec.setdefault("updateStrategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", 1)
        rolling.setdefault("maxSurge", 0)
    template = spec.setdefault("template", {})
    template.setdefault("metadata", {}).setdefault("creationTimestamp", None)
    _default_pod(template.setdefault("spec", {}))


def _default_pod(spec: Json) -> None:
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
    if "serviceAccountName" in spec:
        spec.setdefault("serviceAccount", spec["serviceAccountName"])
    for container in spec.get("containers") or ():
        _default_container(container)
    for volume in spec.get("volumes") or ():
        if "configMap" in volume:
            volume["configMap"].setdefault("defaultMode", 0o644)
        if "hostPath" in volume:
            volume["hostPath"].setdefault("type", "")


def _default_container(container: Json) -> None:
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    container.setdefault("resources", {})
    tag = container.get("image", "").rpartition("/")[2].partition(":")[2]
    container.setdefault("imagePullPolicy", "Always" if tag in {"", "latest"} else "IfNotPresent")
    for item in container.get("env") or ():
        if "fieldRef" in (item.get("valueFrom") or {}):
            item["valueFrom"]["fieldRef"].setdefault("apiVersion", "v1")
    for probe in (container[name] for name in _PROBES if name in container):
        for field, value in (
            ("timeoutSeconds", 1),
            ("periodSeconds", 10),
            ("successThreshold", 1),
            ("failureThreshold", 3),
        ):
            probe.setdefault(field, value)
        if "httpGet" in probe:
            probe["httpGet"].setdefault("scheme", "HTTP")


def begin(body: Json, _now: str) -> None:
    body["status"] = {
        "currentNumberScheduled": 0,
        "desiredNumberScheduled": 0,
        "numberMisscheduled": 0,
        "numberReady": 0,
    }


def validate(body: Json, old: Json | None) -> "Iterator[InvalidField]":
    # No selector at all selects nothing.
    selector = (body["spec"].get("selector") or {}).get("matchLabels")
    labels = body["spec"]["template"]["metadata"].get("labels") or {}
    if selector is None or not selector.items() <= labels.items():
        yield invalid_value(
            "spec.template.metadata.labels",
            labels,
            "`selector` does not match template `labels`",
        )
    if old is not None and old["spec"]["selector"] != body["spec"]["selector"]:
        yield invalid_value("spec.selector", selector, "field is immutable")
