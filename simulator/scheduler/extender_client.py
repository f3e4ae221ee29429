"""The extender's client side, as in kube-scheduler: same verbs, same keys, mutual TLS.

A response other than HTTP 200, or one with `Error`, fails the scheduling attempt.
"""

from typing import TYPE_CHECKING, Any, Final, Self, final

import aiohttp
import msgspec

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping, Sequence
    from types import TracebackType

HTTP_TIMEOUT_S: Final = 5.0
"""kube-scheduler's default httpTimeout."""


class ExtenderError(Exception):
    """The extender did not answer, or answered with an error."""


@final
class ExtenderClient:
    """Calls filter, prioritize, preempt and bind."""

    def __init__(self, url_prefix: str, context: "ssl.SSLContext") -> None:
        self._url_prefix = url_prefix.rstrip("/")
        self._context = context
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._context),
            timeout=aiohttp.ClientTimeout(total=HTTP_TIMEOUT_S),
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: "TracebackType | None",
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def filter(
        self, pod: msgspec.Raw, nodes: "Sequence[str]"
    ) -> tuple[list[str], dict[str, str], dict[str, str]]:
        """Return nodes that fit, and refusals of the others: resolvable by eviction, and not."""
        answer = await self._call("filter", {"Pod": pod, "Nodes": None, "NodeNames": nodes})
        if answer["NodeNames"] is None or not set(answer["NodeNames"]) <= set(nodes):
            raise ExtenderError("filter answered with nodes that it was not asked about")
        return (
            answer["NodeNames"],
            answer.get("FailedNodes") or {},
            answer.get("FailedAndUnresolvableNodes") or {},
        )

    async def prioritize(self, pod: msgspec.Raw, nodes: "Sequence[str]") -> dict[str, int]:
        """Return each node's score, 0..10; no scores if the call failed, as in kube-scheduler."""
        try:
            answer = await self._call("prioritize", {"Pod": pod, "Nodes": None, "NodeNames": nodes})
        except ExtenderError:
            return {}
        return {score["Host"]: score["Score"] for score in answer}

    async def preempt(
        self, pod: msgspec.Raw, victims: "Mapping[str, Sequence[str]]"
    ) -> dict[str, list[str]]:
        """Return the nodes where evicting these pods (uids by node) frees capacity."""
        meta = {
            node: {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": 0}
            for node, uids in victims.items()
        }
        answer = await self._call(
            "preempt", {"Pod": pod, "NodeNameToVictims": None, "NodeNameToMetaVictims": meta}
        )
        kept = answer["NodeNameToMetaVictims"] or {}
        return {node: [pod["UID"] for pod in item["Pods"]] for node, item in kept.items()}

    async def bind(self, *, namespace: str, name: str, uid: str, node: str) -> None:
        await self._call(
            "bind",
            {"PodName": name, "PodNamespace": namespace, "PodUID": uid, "Node": node},
        )

    async def _call(self, verb: str, arguments: object) -> Any:  # noqa: ANN401  # JSON, checked by the caller
        if self._session is None:
            raise ExtenderError("the client is not open")
        url = f"{self._url_prefix}/{verb}"
        try:
            async with self._session.post(
                url,
                data=msgspec.json.encode(arguments),
                headers={"Content-Type": "application/json"},
            ) as response:
                body = await response.read()
                if response.status != 200:
                    raise ExtenderError(
                        f"failed {verb} with extender at URL {url}, code {response.status}"
                    )
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ExtenderError(f"{verb}: {str(error) or type(error).__name__}") from error
        answer = msgspec.json.decode(body)
        if isinstance(answer, dict) and answer.get("Error"):
            raise ExtenderError(answer["Error"])
        return answer
