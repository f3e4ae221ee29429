"""CustomResourceDefinitions: until the API server serves what they define.

`kubectl wait --for=condition=Established` fails where a definition has no conditions yet, and an API
server that has just established a kind answers 429 while it sets up its storage. So the kind is listed.
A definition that is made again soon after its deletion takes up to half a minute.
"""

import asyncio
from typing import TYPE_CHECKING, Any

from tests.cluster.environment import polling

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tests.cluster.environment.kubectl import Kubectl


async def until_served(kubectl: "Kubectl", definitions: "Iterable[Mapping[str, Any]]") -> None:
    """Return once objects of each definition can be listed, in each version that is to be served."""
    async with asyncio.TaskGroup() as group:
        for path in _paths(definitions):
            group.create_task(_until_listed(kubectl, path))


def _paths(definitions: "Iterable[Mapping[str, Any]]") -> list[str]:
    return [
        f"/apis/{spec['group']}/{version['name']}/{spec['names']['plural']}"
        for spec in (definition["spec"] for definition in definitions)
        for version in spec["versions"]
        if version["served"]
    ]


async def _until_listed(kubectl: "Kubectl", path: str) -> None:
    async def is_listed() -> bool:
        done = await kubectl("get", "--raw", f"{path}?limit=1", check=False)
        assert done.returncode == 0, done.stderr
        return True

    await polling.eventually(is_listed, what=f"{path} is served")
