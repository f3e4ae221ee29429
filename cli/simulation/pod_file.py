"""The pod of a question: from a file with a Pod, or with an object that has a pod template."""

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from admission.pods.request import AdmittedPod
from api.field_errors import UNDECODABLE
from cli.simulation.errors import BadInputError
from cli.simulation.object_files import read_objects

if TYPE_CHECKING:
    from pathlib import Path

    from cli.simulation.object_files import Object

_DEFAULT_NAMESPACE: Final = "default"
_UID: Final = "simulated-pod"
_decoder: Final = msgspec.json.Decoder(AdmittedPod)


@dataclass(frozen=True, slots=True)
class NewPod:
    """A pod as a user would create it: without uid, status, node and our annotations."""

    manifest: "Object"
    pod: AdmittedPod
    is_template: bool = False
    """Whether a controller of kube-system creates the pod from the object, as from a Deployment."""

    @property
    def namespace(self) -> str:
        return self.pod.metadata.namespace

    @property
    def ref(self) -> str:
        return f"{self.namespace}/{self.pod.metadata.name}"

    def created(
        self, name: str, *, namespace: str, uid: str, at: dt.datetime, after_s: float
    ) -> "NewPod":
        """Return another pod with the same spec, created some seconds after a moment."""
        try:
            moment = (at + dt.timedelta(seconds=after_s)).isoformat()
        except OverflowError:
            moment = ""
        manifest = self.manifest | {
            "metadata": self.manifest["metadata"]
            | {"name": name, "namespace": namespace, "uid": uid, "creationTimestamp": moment}
        }
        metadata = msgspec.structs.replace(
            self.pod.metadata,
            name=name,
            namespace=namespace,
            uid=uid,
            creation_timestamp=moment,
        )
        pod = msgspec.structs.replace(self.pod, metadata=metadata)
        return NewPod(manifest, pod, self.is_template)

    def encoded(self) -> bytes:
        return msgspec.json.encode(self.manifest)

    def with_demand(
        self, container: str, resource: str, units: int, *, instead_of: str
    ) -> "NewPod":
        """Return the pod with this demand of one container in place of its present one."""
        manifest = msgspec.json.decode(self.encoded())
        for key in ("initContainers", "containers"):
            for item in manifest["spec"].get(key) or ():
                if item.get("name") == container:
                    _set_demand(item["resources"], resource, units, instead_of=instead_of)
        return _decoded(manifest, is_template=self.is_template)


def read_pod(file: "Path", *, namespace: str | None) -> NewPod:
    """Read the pod.

    Args:
        file: YAML or JSON, with one Pod or one object with a pod template, such as a Job.
        namespace: where the file names none; "default" if left out.

    Raises:
        BadInputError: the file cannot be read, or has no pod or several.
    """
    try:
        found = [
            pod for item in read_objects(file) if (pod := new_pod(item, namespace)) is not None
        ]
    except (*UNDECODABLE, TypeError, AttributeError) as error:
        raise BadInputError(f"{file}: the pod cannot be decoded: {error}") from error
    if len(found) != 1:
        count = "no pod" if not found else f"{len(found)} pods"
        raise BadInputError(
            f"{file} has {count}; give one Pod, or one object with a pod template, such as a Job"
        )
    return found[0]


def pod_of_object(item: "Object", *, where: str, namespace: str | None = None) -> NewPod | None:
    """Return the pod of a Pod, or of an object with a template; None for an object without pods.

    Args:
        item: the object.
        where: the file, for texts.
        namespace: where the object names none; "default" if left out.

    Raises:
        BadInputError: it cannot be decoded; the text begins with `where`.
    """
    try:
        return new_pod(item, namespace)
    except (*UNDECODABLE, TypeError, AttributeError) as error:
        raise BadInputError(f"{where}: the pod cannot be decoded: {error}") from error


def pods_of_object(item: "Object") -> int:
    """Return how many pods an object keeps running at once; 1 where it does not say."""
    spec = item.get("spec") or {}
    spec = (spec.get("jobTemplate") or {}).get("spec") or spec
    count = spec.get("replicas", spec.get("parallelism", 1))
    return count if isinstance(count, int) and count >= 0 else 1


def new_pod(item: "Object", namespace: str | None = None) -> NewPod | None:
    """Return the pod of a Pod, or of an object with a template; None for an object without pods.

    Raises:
        msgspec.DecodeError, TypeError, AttributeError: its fields are of other types than a pod's.
    """
    manifest = _pod_of(item)
    if manifest is None:
        return None
    metadata = manifest["metadata"]
    metadata["namespace"] = metadata.get("namespace") or namespace or _DEFAULT_NAMESPACE
    metadata["uid"] = _UID
    return _decoded(manifest, is_template=item["kind"] != "Pod")


def _decoded(manifest: "Object", *, is_template: bool) -> NewPod:
    return NewPod(manifest, _decoder.decode(msgspec.json.encode(manifest)), is_template)


def _pod_of(item: "Object") -> "Object | None":
    """Return a pod's manifest, as it was before it was admitted; None for an object without pods."""
    kind, spec = item.get("kind"), item.get("spec")
    metadata = item.get("metadata") or {}
    if not isinstance(spec, dict) or not isinstance(metadata, dict):
        return None
    name = metadata.get("name") or metadata.get("generateName") or "pod"
    if kind == "Pod":
        labels = metadata.get("labels")
        return _manifest(name, metadata.get("namespace"), labels=labels, spec=spec)
    template = (spec.get("jobTemplate", {}).get("spec") or spec).get("template")
    if not isinstance(template, dict) or not isinstance(template.get("spec"), dict):
        return None
    labels = (template.get("metadata") or {}).get("labels")
    return _manifest(name, metadata.get("namespace"), labels=labels, spec=template["spec"])


def _manifest(name: str, namespace: Any, *, labels: Any, spec: "Object") -> "Object":  # noqa: ANN401  # JSON
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels or {}},
        "spec": {**spec, "nodeName": ""},
    }


def _set_demand(resources: "dict[str, Any]", resource: str, units: int, *, instead_of: str) -> None:
    for item in (resources.get("requests"), resources.get("limits")):
        if item and instead_of in item:
            del item[instead_of]
            item[resource] = str(units)
