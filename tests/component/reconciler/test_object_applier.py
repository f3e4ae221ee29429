"""Objects are written where they differ: from what is wanted now, whatever the API server answered to an earlier wish."""

from typing import Any

from kube.resources import DAEMON_SETS
from reconciler.runtime.object_applier import ObjectApplier
from tests.support.client_of_api import an_api_with_client

NAMESPACE = "gpu"


def a_daemon_set(image: str) -> dict[str, Any]:
    labels = {"app": "driver"}
    container = {"name": "driver", "image": image}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "driver", "namespace": NAMESPACE},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


async def test_another_wish_is_written_though_the_object_is_as_the_api_server_answered():
    async with an_api_with_client(namespace=NAMESPACE) as (_, client):
        applier = ObjectApplier(client, {"DaemonSet": DAEMON_SETS}, field_manager="test")

        async def found() -> dict[str, Any]:
            return await client.get(DAEMON_SETS, dict[str, Any], "driver", namespace=NAMESPACE)

        first, second = a_daemon_set("driver:1"), a_daemon_set("driver:2")
        assert await applier.write("state-driver", first) is None
        assert not applier.differs(first, await found())
        assert applier.differs(second, await found())
        assert await applier.write("state-driver", second) is None
        assert not applier.differs(second, await found())
        assert applier.differs(first, await found())
