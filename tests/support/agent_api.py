"""A fake of the API server's verbs that the node's agent writes with, in memory and without a socket, so
that an hour of virtual time is a moment. `tests/component/agent/test_inventory_published.py` runs the same
against the API server in memory."""

import copy
import json
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kube.client import WriteResponse
from kube.errors import Invalid, KubeError, NotFound
from kube.resources import GPU_NODE_INVENTORIES, NODE_FEATURES, NODES

Json = dict[str, Any]


@dataclass
class AgentApi:
    """Objects by plural and name; `fail` is raised by the next calls, `writes` is what was carried out."""

    objects: dict[tuple[str, str], Json] = field(default_factory=dict)
    fail: list[KubeError] = field(default_factory=list)
    writes: list[tuple[str, str]] = field(default_factory=list)
    """Verb and plural."""
    reads: list[str] = field(default_factory=list)
    calls: int = 0
    fail_afterwards: list[KubeError] = field(default_factory=list)
    """Raised by the next applies, once they were carried out."""

    def add_node(self, name: str, uid: str = "uid-node") -> None:
        self.objects["nodes", name] = {"metadata": {"name": name, "uid": uid}}

    def add_inventory(self, name: str) -> None:
        self.objects["gpunodeinventories", name] = {
            "metadata": {"name": name, "uid": f"uid-{name}", "generation": 1},
            "status": {"conditions": []},
        }

    def feature(self, name: str) -> Json:
        return self.objects["nodefeatures", name]

    def has_feature(self, name: str) -> bool:
        return ("nodefeatures", name) in self.objects

    def count(self, verb: str, plural: str) -> int:
        return self.writes.count((verb, plural))

    async def get(self, resource, type_, name, *, namespace=None):
        self._may_fail()
        self.reads.append(resource.plural)
        found = self.objects.get((resource.plural, name))
        if found is None:
            raise NotFound(404, "NotFound", f"{resource.plural} {name!r} not found")
        return msgspec.convert(found, type_)

    async def apply(self, resource, body, *, field_manager, subresource=None):
        self._may_fail()
        assert field_manager == "gpu-control-plane/agent"
        body = json.loads(msgspec.json.encode(body))
        key = (resource.plural, body["metadata"]["name"])
        before = self.objects.get(key)
        if subresource == "status":
            if before is None:
                raise NotFound(404, "NotFound", f"{resource.plural} not found")
            before["status"]["conditions"] = body["status"]["conditions"]
            answer = before
        else:
            answer = self._applied(key, body, before)
        self.writes.append(("apply", resource.plural))
        if self.fail_afterwards:
            raise self.fail_afterwards.pop(0)
        return WriteResponse(msgspec.json.encode(answer), resource)

    def _applied(self, key: tuple[str, str], body: Json, before: Json | None) -> Json:
        metadata = {"uid": f"uid-{len(self.writes)}", "generation": 1}
        if before is not None:
            old = before["metadata"]
            is_same = before["spec"] == body["spec"]
            metadata = {"uid": old["uid"], "generation": old["generation"] + (not is_same)}
        answer = {**body, "metadata": {**body["metadata"], **metadata}}
        self.objects[key] = answer
        return answer

    async def json_patch(self, resource, body, *, name, namespace=None):
        self._may_fail()
        found = self.objects.get((resource.plural, name))
        if found is None:
            raise NotFound(404, "NotFound", f"{resource.plural} {name!r} not found")
        changed = copy.deepcopy(found)
        for operation in body:
            parts = [
                part.replace("~1", "/").replace("~0", "~")
                for part in operation["path"].split("/")[1:]
            ]
            parent = changed
            for part in parts[:-1]:
                if part not in parent:
                    raise Invalid(422, "Invalid", f"{operation['path']} is missing")
                parent = parent[part]
            if operation["op"] == "test" and parent.get(parts[-1]) != operation["value"]:
                raise Invalid(422, "Invalid", f"testing {operation['path']} failed")
            if operation["op"] == "add":
                parent[parts[-1]] = operation["value"]
        self.objects[resource.plural, name] = changed
        self.writes.append(("json_patch", resource.plural))

    def _may_fail(self) -> None:
        self.calls += 1
        if self.fail:
            raise self.fail.pop(0)


FEATURES = NODE_FEATURES.plural
INVENTORIES = GPU_NODE_INVENTORIES.plural
NODES_PLURAL = NODES.plural
