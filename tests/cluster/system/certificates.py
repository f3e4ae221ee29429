"""What rotation is made to do, through the Secret that says which certificates there are."""

import base64

from api.names import TRUST_HASH_ANNOTATION
from tests.cluster.environment import client, pods, polling
from tests.cluster.system import installation
from tests.cluster.system.objects import Pool, a_pod

CONFIGURATION = (
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/zz-gpu-control-plane"
)
_END = b"-----END CERTIFICATE-----\n"


async def data_of(api: client.ApiClient) -> dict[str, str]:
    """Return what our Secret holds."""
    data: dict[str, str] = (await api.get(installation.SECRET))["data"]
    return data


async def make_again(api: client.ApiClient, missing: str, expected: str) -> dict[str, str]:
    """Take one key from the Secret; return the data once another one has changed for it."""
    before = await data_of(api)
    await api.patch(installation.SECRET, {"data": {missing: ""}})

    async def changed() -> dict[str, str] | None:
        data = await data_of(api)
        return data if data[missing] and data[expected] != before[expected] else None

    return await polling.eventually(changed, what=f"a new {expected}")


async def retire_old_authorities(api: client.ApiClient) -> None:
    """Trust the newest CA only, as is done months later; returns when nothing is by another one."""
    before = await data_of(api)
    newest = base64.b64decode(before["ca.crt"]).partition(_END)
    only = base64.b64encode(newest[0] + newest[1]).decode()
    await api.patch(installation.SECRET, {"data": {"ca.crt": only}})

    async def is_followed() -> bool:
        data = await data_of(api)
        return data["ca.crt"] == only and data["scheduler.crt"] != before["scheduler.crt"]

    await polling.eventually(is_followed, what="a new scheduler.crt")


async def install_scheduler_deployment(api: client.ApiClient) -> None:
    """Create kube-scheduler's Deployment without a pod: here kube-scheduler is a process."""
    labels = {"app": installation.DEPLOYMENT.rpartition("/")[2]}
    container = {"name": "kube-scheduler", "image": "registry.test/kube-scheduler:1"}
    body = {
        "metadata": {"name": labels["app"]},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }
    await api.create(installation.DEPLOYMENT.rpartition("/")[0], body)


async def trusted_by_pods(api: client.ApiClient, *, other_than: str | None = None) -> str:
    """Return the digest of the CAs that the Deployment's pods read, once there is another one."""

    async def annotated() -> str | None:
        template = (await api.get(installation.DEPLOYMENT))["spec"]["template"]
        found: str | None = template["metadata"].get("annotations", {}).get(TRUST_HASH_ANNOTATION)
        return found if found != other_than else None

    return await polling.eventually(annotated, what="a restart of kube-scheduler")


async def until_repaired(
    api: client.ApiClient, namespace: str, pool: Pool, *configurations: str
) -> None:
    """Return when webhooks have a caBundle again, and the API server asks about pods by it."""

    async def are_whole() -> bool:
        found = [await api.get(path) for path in configurations]
        return all(item["webhooks"][0]["clientConfig"].get("caBundle") for item in found)

    await polling.eventually(are_whole, what="the caBundle")

    # The API server asks by what its watch has told it, a moment behind what it has stored.
    async def is_asked() -> bool:
        try:
            await api.create(pods.collection(namespace), a_pod("probe", pool), dryRun="All")
        except client.ApiRefusedError as refused:
            return "failed calling webhook" not in refused.message
        return True

    await polling.eventually(is_asked, what="a decision of the webhook")


async def injected(api: client.ApiClient, data: dict[str, str]) -> None:
    """Return when the API server trusts these CAs."""

    async def is_injected() -> bool:
        found = await api.get(CONFIGURATION)
        return bool(found["webhooks"][0]["clientConfig"].get("caBundle") == data["ca.crt"])

    await polling.eventually(is_injected, what="the CAs in caBundle")
