"""A click on the console's page, at the real API server: the viewer's rights decide, and the device names the viewer."""

import datetime as dt
from functools import partial

import pytest

from api.names import DECIDED_BY_ANNOTATION
from tests.cluster.console.conftest import browser  # noqa: F401  # fixture
from tests.cluster.environment import polling, viewers
from tests.cluster.environment.browser import open_page
from tests.cluster.system.features import FEATURES, apply_feature
from tests.cluster.system.objects import DEVICES, POOLS, a_pool_object
from tests.support.node_features import agent_device, agent_feature, gfd_labels

OF_DECISIONS = {
    "apiGroups": ["gpu.deckhouse.io"],
    "resources": ["gpudevices"],
    "verbs": ["patch"],
}
WITHIN_MS = 120_000


async def logged_in(browser, url: str, token: str):  # noqa: F811
    opened = await open_page(browser)
    await opened.load(url)
    await opened.page.get_by_label("Token").fill(token)
    await opened.page.get_by_role("button", name="Log in").click()
    await opened.page.get_by_role("navigation", name="Views").get_by_text("Health").click()
    opened.complaints.clear()  # of the 401 before the login
    return opened


@pytest.mark.usefixtures("system")
async def test_a_click_of_a_viewer_with_the_right_assigns_a_device_and_of_another_is_refused(
    api,
    control_plane,
    kubectl,
    namespace,
    create_kwok_nodes,
    start_scheduler,
    browser,  # noqa: F811
):
    await start_scheduler()  # for the pods that validate the node
    (node,) = await create_kwok_nodes(1, labels=gfd_labels(1))
    pool = f"pool-{node[-6:]}"
    heartbeat = dt.datetime.now(dt.UTC)  # noqa: TID251  # the agent's own clock
    feature = agent_feature(node, [agent_device(node, 0)], heartbeat=heartbeat)
    made = [f"{POOLS}/{pool}", f"{FEATURES}/{feature['metadata']['name']}"]
    await api.create(POOLS, a_pool_object(pool))
    await apply_feature(api, feature)

    async def device_of_node():
        found = (await api.get(DEVICES))["items"]
        return next(
            (item for item in found if item.get("status", {}).get("nodeName") == node), None
        )

    device = (await polling.eventually(device_of_node, what="the device"))["metadata"]["name"]
    path = f"{DEVICES}/{device}"

    async def is_assigned(reason: str) -> bool:
        condition = (await api.conditions(path)).get("Assigned", {})
        assert condition.get("reason") == reason, condition
        return True

    try:
        wait = partial(is_assigned, "AwaitsDecision")
        await polling.eventually(wait, what="the device waits for a decision")
        tokens = {name: await viewers.token_of(api, namespace, name) for name in ("may", "not")}
        made += await viewers.give(api, namespace, "may", viewers.OF_POOLS, OF_DECISIONS)
        made += await viewers.give(api, namespace, "not", viewers.OF_POOLS)
        async with viewers.console_with_its_rights(
            api, control_plane, kubectl, namespace, "--decisions"
        ) as url:
            opened = await logged_in(browser, url, tokens["not"])
            page = opened.page
            approve = page.get_by_role("button", name=f"Approve {device} for pool {pool}")
            await approve.click()
            user = f"system:serviceaccount:{namespace}:"
            refusal = page.get_by_text(f'User "{user}not" cannot patch resource "gpudevices"')
            await refusal.wait_for(timeout=WITHIN_MS)
            assert await is_assigned("AwaitsDecision")

            opened = await logged_in(browser, url, tokens["may"])
            page = opened.page
            await page.get_by_role("button", name=device, exact=True).click()  # its panel
            approve = page.get_by_role("button", name=f"Approve {device} for pool {pool}")
            await approve.focus()
            await page.keyboard.press("Enter")
            question = page.get_by_role("group", name=f"Confirm the decision on {device}")
            await question.wait_for(timeout=WITHIN_MS)
            assert f'"gpu.deckhouse.io/assignment":"{pool}"' in await question.inner_text()
            assert await opened.axe_violations() == []
            assert await is_assigned("AwaitsDecision")
            await page.keyboard.press("Shift+Tab")  # from Cancel, which has the focus, to Confirm
            await page.keyboard.press("Enter")
            wait = partial(is_assigned, "Assigned")
            await polling.eventually(wait, what="the device is in the pool")
            annotations = (await api.get(path))["metadata"]["annotations"]
            assert annotations[DECIDED_BY_ANNOTATION] == f"{user}may"

            await page.get_by_role("button", name=f"Release {device}").click()
            await question.get_by_role("button", name="Confirm").click()
            wait = partial(is_assigned, "AwaitsDecision")
            await polling.eventually(wait, what="the device waits for a decision again")
            assert opened.complaints == []
    finally:
        for item in made:
            await api.delete(item)
