"""What the DaemonSet controller and kubelets make of a DaemonSet: its revision, a ready pod on every node, its status."""

from typing import TYPE_CHECKING, Any

from kube.resources import PODS
from simulator.node.controller_revisions import REVISION_LABEL, revision_body, revision_hash

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Json = dict[str, Any]


def the_revision(daemon_set: Json) -> Json:
    """Return the ControllerRevision of its template."""
    labels = daemon_set["spec"]["template"]["metadata"]["labels"]
    body = revision_body(daemon_set["metadata"], labels, hash_=_hash(daemon_set))
    return _stored({**body, "revision": 1})


def daemon_pods(
    daemon_set: Json, labels_by_node: "Mapping[str, Mapping[str, str]]"
) -> "Iterator[Json]":
    """Yield its pods, as they are when all containers run."""
    meta, template = daemon_set["metadata"], daemon_set["spec"]["template"]
    references = the_revision(daemon_set)["metadata"]["ownerReferences"]
    hash_, selector = _hash(daemon_set), template["spec"].get("nodeSelector", {})
    names = [one["name"] for one in template["spec"]["containers"]]
    for node, labels in labels_by_node.items():
        if not selector.items() <= labels.items():
            continue
        yield _stored(
            {
                "apiVersion": PODS.api_version,
                "kind": PODS.kind,
                "metadata": {
                    "name": f"{meta['name']}-{node}",
                    "namespace": meta["namespace"],
                    "labels": {**template["metadata"]["labels"], REVISION_LABEL: hash_},
                    "ownerReferences": references,
                },
                "spec": {**template["spec"], "nodeName": node},
                "status": {
                    "phase": "Running",
                    "conditions": [{"type": "Ready", "status": "True"}],
                    "containerStatuses": [
                        {"name": name, "ready": True, "restartCount": 0} for name in names
                    ],
                },
            }
        )


def rolled_out(daemon_set: Json, pods: int) -> Json:
    """Return the DaemonSet with the status of so many pods, all ready."""
    counts = dict.fromkeys(
        (
            "currentNumberScheduled",
            "desiredNumberScheduled",
            "updatedNumberScheduled",
            "numberReady",
            "numberAvailable",
        ),
        pods,
    )
    told = {"observedGeneration": daemon_set["metadata"]["generation"], "numberMisscheduled": 0}
    return {**daemon_set, "status": {**told, **counts}}


def _hash(daemon_set: Json) -> str:
    return revision_hash(daemon_set["spec"]["template"])


def _stored(body: Json) -> Json:
    meta = body["metadata"]
    filled = {"uid": f"{body['kind']}-{meta['name']}", "generation": 1}
    return {**body, "metadata": {**filled, "creationTimestamp": "2026-01-01T00:00:00Z", **meta}}
