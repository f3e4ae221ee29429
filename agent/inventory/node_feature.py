"""The node's NodeFeature as an object: what is applied, and what of one that is there says the same.

Format: `api.foreign.nodefeature`. Values in, values out; writing is `agent.inventory.publisher`'s.
"""

from typing import TYPE_CHECKING, Any, Final

from api.foreign.nodefeature import (
    AGENT_ATTRIBUTES,
    AGENT_INSTANCES,
    HEARTBEAT_ANNOTATION,
    NODE_NAME_LABEL,
    NodeFeature,
)
from kube.resources import NODE_FEATURES, NODES
from manifests.constants import AGENT_FEATURE_PREFIX

if TYPE_CHECKING:
    import datetime as dt

    from agent.inventory.node_devices import Published
    from api.meta import ObjectMeta
    from api.names import NodeName

_FORMAT: Final = "%Y-%m-%dT%H:%M:%SZ"


def feature_name(node: "NodeName") -> str:
    """Return the name of a node's NodeFeature."""
    return f"{AGENT_FEATURE_PREFIX}{node}"


def feature_body(
    published: "Published",
    *,
    node: "NodeName",
    namespace: str,
    owner_uid: str,
    now: "dt.datetime",
) -> dict[str, Any]:
    """Return the object as it is applied.

    Args:
        published: what is said.
        node: whom it is about; of 63 characters at most, since it is a label's value, as NFD has it.
        namespace: where it is.
        owner_uid: of the Node, empty where that is not known.
        now: the heartbeat.
    """
    metadata: dict[str, Any] = {
        "name": feature_name(node),
        "namespace": namespace,
        "labels": {NODE_NAME_LABEL: node},
        "annotations": {HEARTBEAT_ANNOTATION: now.strftime(_FORMAT)},
    }
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
                "attributes": {AGENT_ATTRIBUTES: {"elements": dict(published.node)}},
                "instances": {
                    AGENT_INSTANCES: {
                        "elements": [{"attributes": dict(device)} for device in published.devices]
                    }
                },
            },
        },
    }


def feature_shows(feature: NodeFeature, published: "Published", node: "NodeName") -> bool:
    """Say whether an object says just this of the node."""
    agent = feature.spec.features.instances.agent
    told = feature.spec.features.attributes.agent
    return (
        feature.metadata.label(NODE_NAME_LABEL) == node
        and agent is not None
        and agent.elements is not None
        and [one.attributes for one in agent.elements] == [dict(one) for one in published.devices]
        and told is not None
        and told.elements == dict(published.node)
    )


def heartbeat_patch(
    stamp: "ObjectMeta", node: "NodeName", now: "dt.datetime"
) -> list[dict[str, Any]]:
    """Return the JSON patch of a heartbeat, which holds only where the object is the one that was written.

    A change of the spec moves the generation, one of metadata does not (the API server, of any kind by
    CustomResourceDefinition); a label that is gone, or all annotations, make it fail too.
    """
    return [
        {"op": "test", "path": "/metadata/uid", "value": stamp.uid},
        {"op": "test", "path": "/metadata/generation", "value": stamp.generation},
        {"op": "test", "path": f"/metadata/labels/{_pointer(NODE_NAME_LABEL)}", "value": node},
        {
            "op": "add",
            "path": f"/metadata/annotations/{_pointer(HEARTBEAT_ANNOTATION)}",
            "value": now.strftime(_FORMAT),
        },
    ]


def _pointer(key: str) -> str:
    """Return a key as a part of a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")
