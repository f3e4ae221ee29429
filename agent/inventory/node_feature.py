"""The node's NodeFeature as an object: its body, its heartbeat patch, and their comparison with the current one.

Format: `api.foreign.nodefeature`. Values in, values out; `agent.inventory.publisher` writes.
"""

from typing import TYPE_CHECKING, Any

from api.foreign.nodefeature import (
    AGENT_ATTRIBUTES,
    AGENT_INSTANCES,
    HEARTBEAT_ANNOTATION,
    NODE_NAME_LABEL,
    NodeFeature,
)
from api.status_conditions import format_time
from api.text import pointer_token
from kube.resources import NODE_FEATURES, NODES
from manifests.constants import AGENT_FEATURE_PREFIX

if TYPE_CHECKING:
    import datetime as dt

    from agent.inventory.node_devices import PublishedFeatures
    from api.meta import ObjectMeta
    from api.names import NodeName


def feature_name(node: "NodeName") -> str:
    return f"{AGENT_FEATURE_PREFIX}{node}"


def feature_body(
    published: "PublishedFeatures",
    *,
    node: "NodeName",
    namespace: str,
    owner_uid: str,
    now: "dt.datetime",
) -> dict[str, Any]:
    """Return the object as it is applied.

    Args:
        published: the content.
        node: its name; of 63 characters at most, since it is a label's value, as in NFD.
        namespace: of the object.
        owner_uid: of the Node; empty where that is unknown.
        now: the heartbeat.
    """
    metadata: dict[str, Any] = {
        "name": feature_name(node),
        "namespace": namespace,
        "labels": {NODE_NAME_LABEL: node},
        "annotations": {HEARTBEAT_ANNOTATION: format_time(now)},
    }
    # Left out where it is empty: an API server refuses an apply that empties a map, and the devices with it.
    attributes = {AGENT_ATTRIBUTES: {"elements": dict(published.node)}}
    if owner_uid:
        owner = {"apiVersion": "v1", "kind": NODES.kind, "name": node, "uid": owner_uid}
        metadata["ownerReferences"] = [owner]
    return {
        "apiVersion": NODE_FEATURES.api_version,
        "kind": NODE_FEATURES.kind,
        "metadata": metadata,
        "spec": {
            "labels": {},
            "features": {
                "flags": {},
                **({"attributes": attributes} if published.node else {}),
                "instances": {
                    AGENT_INSTANCES: {
                        "elements": [{"attributes": dict(device)} for device in published.devices]
                    }
                },
            },
        },
    }


def feature_shows(feature: NodeFeature, published: "PublishedFeatures", node: "NodeName") -> bool:
    """Whether an object has exactly this content."""
    agent = feature.spec.features.instances.agent
    attributes = feature.spec.features.attributes.agent
    return (
        feature.metadata.label(NODE_NAME_LABEL) == node
        and agent is not None
        and agent.elements is not None
        and [element.attributes for element in agent.elements]
        == [dict(device) for device in published.devices]
        and (attributes.elements if attributes is not None else {}) == dict(published.node)
    )


def heartbeat_patch(
    stamp: "ObjectMeta", node: "NodeName", now: "dt.datetime"
) -> list[dict[str, Any]]:
    """Return the JSON patch of a heartbeat, which fails where the object is not the written one.

    A change of the spec moves the generation, one of metadata does not (the API server, of any kind by
    CustomResourceDefinition); a label that is gone, or all annotations, make it fail too.
    """
    return [
        {"op": "test", "path": "/metadata/uid", "value": stamp.uid},
        {"op": "test", "path": "/metadata/generation", "value": stamp.generation},
        {"op": "test", "path": f"/metadata/labels/{pointer_token(NODE_NAME_LABEL)}", "value": node},
        {
            "op": "add",
            "path": f"/metadata/annotations/{pointer_token(HEARTBEAT_ANNOTATION)}",
            "value": format_time(now),
        },
    ]
