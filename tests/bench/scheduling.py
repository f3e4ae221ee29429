"""A pod's way from kubectl to its node, driven by a benchmark in place of API server and kube-scheduler."""

import time
from typing import TYPE_CHECKING, Any

import msgspec

from tests.bench.admitting import check_allowed, note_of
from tests.bench.report import checked
from tests.bench.wire import request_bytes

if TYPE_CHECKING:
    from tests.bench.admitting import PodKind
    from tests.bench.driven_api import DrivenApi
    from tests.bench.wire import Connection


class Way:
    """One connection's pods, one after the other."""

    def __init__(self, api: "DrivenApi", connection: "Connection") -> None:
        self._api = api
        self._connection = connection

    async def mutate(self, kind: "PodKind", name: str) -> str:
        """Return the annotation of the pod's reservation."""
        return note_of(await self._connection.send(kind.mutation(name)))

    async def store(self, kind: "PodKind", name: str, note: str) -> None:
        """Validate the pod as it was mutated, and create it."""
        uid = f"uid-{name}"
        check_allowed(await self._connection.send(kind.validation(name, uid, note)))
        self._api.put("pods", [kind.pod(name, uid, note)])

    async def choose(self, name: str, among: list[str]) -> str | None:
        """Filter and prioritize as kube-scheduler does; None where no node can take the pod."""
        await self._api.until_ungated(name)
        pod = msgspec.json.encode(self._api.pod(name))
        fitting = (await self._ask("filter", _arguments(pod, among)))["NodeNames"]
        if not fitting:
            return None
        if len(fitting) == 1:
            return str(fitting[0])
        scores = await self._ask("prioritize", _arguments(pod, fitting))
        return str(max(scores, key=lambda score: score["Score"])["Host"])

    async def bind(self, name: str, node: str) -> float | None:
        """Bind; return the seconds it took, or None where the units were held for another by then."""
        body = {"PodName": name, "PodNamespace": "ml-team", "PodUID": f"uid-{name}", "Node": node}
        started = time.perf_counter()
        said = await self._ask("bind", msgspec.json.encode(body))
        taken = time.perf_counter() - started
        assert not self._api.violations, self._api.violations
        if said.get("Error"):
            assert "free" in said["Error"], said["Error"]
            return None
        assert self._api.pod(name)["spec"]["nodeName"] == node
        checked("binding")
        return taken

    async def _ask(self, verb: str, body: bytes) -> Any:
        answer = await self._connection.send(request_bytes(f"/scheduler/{verb}", body))
        return msgspec.json.decode(answer)


def _arguments(pod: bytes, nodes: list[str]) -> bytes:
    return b'{"Pod":' + pod + b',"Nodes":null,"NodeNames":' + msgspec.json.encode(nodes) + b"}"
