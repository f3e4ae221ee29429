"""Everything of ours at an API server: all kinds that it serves, searched by name and metadata."""

from typing import Final

from tests.cluster.environment import client, polling

DOMAIN: Final = "gpu.deckhouse.io"
NAMES: Final = (
    "gpu-control-plane",
    "gpu-node-agent",
    "gpu-node-detector",
    "gpu-node-validator",
    "gpu-device-plugin",
    "gpu-scheduler",
    "gpu-mig",
)
_NOT_SEARCHED: Final = frozenset(
    {
        "events",  # they end by themselves, after an hour
        "pods",  # those of users keep what they were given
        "componentstatuses",
    }
)


async def until_only(api: client.ApiClient, *kinds: str) -> dict[str, list[str]]:
    """Wait until nothing but objects of these kinds is left; return them.

    What our objects owned goes by the garbage collector, and the APIService of a group by the API server.
    """

    async def left() -> dict[str, list[str]] | bool:
        found = await leavings(api)
        assert set(found) == set(kinds), f"{found}"
        return found or True

    found = await polling.eventually(left, what=f"nothing left but {kinds}")
    return found if isinstance(found, dict) else {}


async def leavings(api: client.ApiClient) -> dict[str, list[str]]:
    """Return kind -> objects that have our domain or one of our names in their metadata."""
    found: dict[str, list[str]] = {}
    async for version, resource in api.kinds():
        plural = resource["name"]
        if plural in _NOT_SEARCHED:
            continue
        # A kind may go while we look.
        for item in (await api.find(f"{version}/{plural}")).get("items", ()):
            metadata = item["metadata"]
            if _is_ours(metadata):
                found.setdefault(plural, []).append(metadata["name"])
    return found


def _is_ours(metadata: client.JsonObject) -> bool:
    if any(metadata["name"] == name or f"{name}-" in metadata["name"] for name in NAMES):
        return True
    marks = (
        metadata["name"],
        *(metadata.get("labels") or {}),
        *(metadata.get("annotations") or {}),
        *(metadata.get("finalizers") or ()),
        *(owner["apiVersion"] for owner in metadata.get("ownerReferences") or ()),
    )
    return any(DOMAIN in mark for mark in marks)
