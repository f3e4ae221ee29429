"""kwok really plays kubelets: a DaemonSet's pods run on its nodes, and go with it."""

from typing import TYPE_CHECKING, Any

from tests.cluster.environment import client, polling

if TYPE_CHECKING:
    from collections.abc import Callable


async def test_a_daemonset_runs_on_the_nodes_of_kwok(
    api: client.ApiClient,
    namespace: str,
    create_kwok_nodes: "Callable[..., Any]",
    start_scheduler: "Callable[..., Any]",
):
    await start_scheduler()
    names = await create_kwok_nodes(2, labels={"has": "gpus"})
    path = f"/apis/apps/v1/namespaces/{namespace}/daemonsets"
    await api.create(path, _a_daemonset("plugin", {"has": "gpus"}))

    async def ready() -> bool:
        status = await api.status(f"{path}/plugin")
        return bool(status.get("numberReady") == len(names))

    await polling.eventually(ready, what="both pods ready")
    await api.delete(f"{path}/plugin")

    async def gone() -> bool:
        return not (await api.get(f"/api/v1/namespaces/{namespace}/pods"))["items"]

    await polling.eventually(gone, what="no pod left")


def _a_daemonset(name: str, node_selector: dict[str, str]) -> dict[str, Any]:
    labels = {"app": name}
    return {
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "nodeSelector": node_selector,
                    "containers": [{"name": "c", "image": "registry.invalid/c"}],
                },
            },
        },
    }
