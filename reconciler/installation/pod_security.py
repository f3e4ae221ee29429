"""`namespace.pod-security`: our namespace admits the pods of our DaemonSets, which are privileged.

`helm install --create-namespace` and `kubectl create namespace` make a Namespace without labels, and a cluster
may enforce another level by default. A level that another client set is an administrator's decision: it stays,
and is reported.
"""

from typing import TYPE_CHECKING, Final, final

import structlog

from api.foreign.core import Namespace
from kube.errors import Conflict, NotFound
from kube.event_recorder import ObjectReference
from kube.resources import NAMESPACES
from manifests.constants import POD_SECURITY_ENFORCE, POD_SECURITY_LABELS
from manifests.install.rbac import PolicyRule
from reconciler.controller_spec import ControllerContext, ControllerSpec, Trigger
from telemetry.reasons import EventReason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kube.client import KubeClient
    from kube.event_recorder import EventRecorder
    from manifests.install.server_policy import OwnObjects

FIELD_MANAGER: Final = "gpu-control-plane/pod-security"
ACTION: Final = "LabelNamespace"
"""Action of events."""
CONFLICT_RETRY_S: Final = 0.5

_log = structlog.get_logger()


def own_rbac(own: "OwnObjects") -> tuple[PolicyRule, ...]:
    """Return the rights in our namespace, which do not go beyond the Namespace itself."""
    return (PolicyRule(resources=("namespaces",), verbs=("get", "patch"), names=(own.namespace,)),)


def foreign_levels(labels: "Mapping[str, str]") -> dict[str, str]:
    """Return the labels that set another level than ours."""
    return {
        key: labels[key]
        for key, level in POD_SECURITY_LABELS.items()
        if labels.get(key, level) != level
    }


@final
class NamespacePodSecurity:
    """Labels one namespace."""

    def __init__(self, client: "KubeClient", recorder: "EventRecorder") -> None:
        self._client = client
        self._recorder = recorder
        self._reported: dict[str, str] = {}

    async def reconcile(self, name: str) -> float | None:
        """Add the labels that are missing."""
        try:
            namespace = await self._client.get(NAMESPACES, Namespace, name)
        except NotFound:
            return None
        labels = namespace.metadata.labels or {}
        foreign = foreign_levels(labels)
        self._report(namespace, foreign)
        if POD_SECURITY_LABELS.keys() <= labels.keys():
            return None
        ours = {key: level for key, level in POD_SECURITY_LABELS.items() if key not in foreign}
        body = {
            "apiVersion": NAMESPACES.api_version,
            "kind": NAMESPACES.kind,
            # By its uid no other Namespace is made or changed.
            "metadata": {"name": name, "uid": namespace.metadata.uid, "labels": ours},
        }
        try:
            await self._client.apply(NAMESPACES, body, field_manager=FIELD_MANAGER, force=False)
        except Conflict:
            return CONFLICT_RETRY_S
        _log.info("namespace labelled", namespace=name, labels=sorted(ours))
        return None

    def _report(self, namespace: Namespace, foreign: dict[str, str]) -> None:
        """Report other levels once, with an Event where one keeps our pods out."""
        if foreign == self._reported:
            return
        self._reported = foreign
        if not foreign:
            return
        name = namespace.metadata.name
        _log.warning("pod security of our namespace is set by another client", **foreign)
        level = foreign.get(POD_SECURITY_ENFORCE)
        if level is None:
            return
        self._recorder.warning(
            ObjectReference.to(NAMESPACES, namespace.metadata),
            EventReason.NAMESPACE_RESTRICTED,
            f"{POD_SECURITY_ENFORCE} is {level}, which another client set: node agents and device plugins"
            f" of the GPU control plane need privileged. kubectl label namespace {name} --overwrite"
            f" {POD_SECURITY_ENFORCE}=privileged",
            action=ACTION,
        )


def _own_namespace(context: ControllerContext, namespace: "Namespace") -> tuple[str, ...]:
    name = namespace.metadata.name
    return (name,) if name == context.settings.workloads.namespace else ()


SPEC: Final = ControllerSpec(
    name="namespace.pod-security",
    own_rbac=own_rbac,
    triggers=(
        Trigger(source=lambda context: context.stores.namespace_sink.changes, keys=_own_namespace),
    ),
    initial=lambda context: (context.settings.workloads.namespace,),
    is_enabled=lambda settings: settings.is_labelling_namespace,
    build=lambda context: NamespacePodSecurity(context.client, context.recorder).reconcile,
)
