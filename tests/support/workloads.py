"""Workloads as the API server sends them to admission, written by users and by the controllers beneath them."""

import copy
import datetime as dt
from typing import Any

import msgspec

from admission.webhooks import mutate_pod, mutate_workload
from api.clock import Instant
from api.names import ACCESS_ANNOTATION
from tests.support.reviews import AdmissionSetup, Reply, a_pod_object

Json = dict[str, Any]

MEMBERS = ("system:authenticated", "researchers")
NON_MEMBERS = ("system:authenticated",)
GROUPS = {
    "Deployment": "apps/v1",
    "StatefulSet": "apps/v1",
    "ReplicaSet": "apps/v1",
    "DaemonSet": "apps/v1",
    "Job": "batch/v1",
    "CronJob": "batch/v1",
    "ReplicationController": "v1",
}
MAKERS = {
    "Deployment": "deployment-controller",
    "StatefulSet": "statefulset-controller",
    "ReplicaSet": "replicaset-controller",
    "DaemonSet": "daemon-set-controller",
    "Job": "job-controller",
    "CronJob": "cronjob-controller",
    "ReplicationController": "replication-controller",
}
"""Kind -> account of the controller that makes what is beneath its objects."""


def a_template(pool: str | None = "whole", **spec: Any) -> Json:
    pod = a_pod_object(None if pool is None else 1, pool=pool or "", spec=spec)
    return {"metadata": {"creationTimestamp": None, "labels": {"app": "a"}}, "spec": pod["spec"]}


def a_workload(kind: str = "Deployment", name: str = "train", **changes: Any) -> Json:
    """Return an object as it reaches the mutating webhook, without a uid."""
    template = changes.pop("template", None) or a_template()
    spec = (
        {"jobTemplate": {"spec": {"template": template}}}
        if kind == "CronJob"
        else {"template": template}
    )
    metadata = {"name": name, "namespace": "team-a", **changes.pop("metadata", {})}
    return {"apiVersion": GROUPS[kind], "kind": kind, "metadata": metadata, "spec": spec}


def template_of(workload: Json) -> Json:
    spec = workload["spec"]
    found: Json = (spec.get("jobTemplate") or {"spec": spec})["spec"]["template"]
    return found


def note_of(workload: Json) -> str | None:
    annotations = template_of(workload)["metadata"].get("annotations") or {}
    note: str | None = annotations.get(ACCESS_ANNOTATION)
    return note


def annotated(workload: Json, note: str | None) -> Json:
    """Return the workload with another annotation of access, or without one."""
    changed = copy.deepcopy(workload)
    annotations = template_of(changed)["metadata"].setdefault("annotations", {})
    annotations.pop(ACCESS_ANNOTATION, None)
    if note is not None:
        annotations[ACCESS_ANNOTATION] = note
    return changed


def changed(workload: Json, image: str = "other") -> Json:
    """Return the workload with another image."""
    other = copy.deepcopy(workload)
    template_of(other)["spec"]["containers"][0]["image"] = image
    return other


def controlled_by(owner: Json) -> list[Json]:
    meta = owner["metadata"]
    return [
        {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": meta["name"],
            "uid": meta.get("uid", ""),
            "controller": True,
        }
    ]


class Cluster:
    """Admission with a pool that is open to a group, and the steps of users and controllers."""

    def __init__(self, **access: Any) -> None:
        self.setup = AdmissionSetup()
        self.setup.add_pool(access=access or {"groups": ["researchers"]})
        self.setup.add_node(devices=8)
        self._uids = 0

    def advance(self, **time: float) -> None:
        now = self.setup.now
        self.setup.now = Instant(now.monotonic, now.utc + dt.timedelta(**time))

    def ask(
        self,
        workload: Json,
        *,
        old: Json | None = None,
        groups: tuple[str, ...] = MEMBERS,
        **review: Any,
    ) -> Reply:
        group, _, version = workload["apiVersion"].rpartition("/")
        kind = {"group": group, "version": version, "kind": workload["kind"]}
        operation = "CREATE" if old is None else "UPDATE"
        return self.setup.ask(
            mutate_workload,
            workload,
            kind=kind,
            operation=operation,
            old=old,
            groups=groups,
            **review,
        )

    def write(self, workload: Json, *, old: Json | None = None, **review: Any) -> Json:
        """Return the workload as it is stored, with a uid."""
        stored = self.ask(workload, old=old, **review).applied_to(workload)
        if not stored["metadata"].get("uid"):
            self._uids += 1
            stored["metadata"]["uid"] = f"uid-{self._uids}"
        return stored

    def ask_beneath(self, owner: Json, kind: str, **changes: Any) -> tuple[Json, Reply]:
        """Have the owner's controller create an object of its template, and return both."""
        name = owner["metadata"]["name"]
        made = a_workload(kind, f"{name}-1", template=copy.deepcopy(template_of(owner)))
        made["metadata"]["ownerReferences"] = changes.pop("references", controlled_by(owner))
        return made, self.ask(made, **_by_controller(owner), **changes)

    def make(self, owner: Json, kind: str) -> Json:
        made, reply = self.ask_beneath(owner, kind)
        assert reply.patch == []
        self._uids += 1
        made["metadata"]["uid"] = f"uid-{self._uids}"
        return made

    def ask_pod(self, owner: Json, **review: Any) -> Reply:
        """Have the owner's controller create a pod of its template."""
        template = template_of(owner)
        pod = a_pod_object(name="train-1")
        pod["spec"] = template["spec"]
        pod["metadata"] |= {
            "annotations": dict(template["metadata"].get("annotations") or {}),
            "ownerReferences": controlled_by(owner),
        }
        return self.setup.ask(mutate_pod, pod, **{**_by_controller(owner), **review})


def _by_controller(owner: Json) -> Json:
    account = f"system:serviceaccount:kube-system:{MAKERS.get(owner['kind'], 'other')}"
    return {"user": account, "groups": ("system:serviceaccounts", "system:authenticated")}


def noted(note: str | None) -> Json:
    fields: Json = msgspec.json.decode(note or "{}")
    return fields
