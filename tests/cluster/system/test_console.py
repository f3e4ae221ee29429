"""The console's page in a real browser, on the real API server: `kubectl gpu console`, and the console of a cluster."""

import asyncio
import contextlib
import re
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial

import pytest

from tests.cluster.environment import binaries, pods, polling
from tests.cluster.environment.browser import OpenPage, open_browser, open_page
from tests.cluster.environment.server_process import installed_command
from tests.cluster.system.objects import DEVICES, a_pod
from tests.cluster.system.test_kubectl_gpu import RBAC, alice, is_bound  # noqa: F401  # a fixture
from tests.support.ports import free_port

VISIBLE_WITHIN_MS = 1_000
"""A change is on the page so soon after the watch can show it."""
PATIENT_MS = 120_000
NOTE_TIMES = """
(names) => {
  window.seen = {};
  const look = () => {
    for (const name of names) {
      const cell = document.querySelector(`[data-device="${name}"]`);
      const key = `${name} ${cell?.dataset.look}`;
      window.seen[key] ??= Date.now();
    }
  };
  look();
  new MutationObserver(look).observe(document.body, { subtree: true, childList: true, attributes: true });
}
"""


@pytest.fixture
async def browser(progress: Callable[[str], None]):
    program = await asyncio.to_thread(binaries.find_chromium, progress)
    async with open_browser(program) as opened:
        yield opened


@pytest.fixture
def local_console(control_plane, plugin_environment):
    """`async with local_console(user="alice") as address`: the page of a user's `kubectl gpu console`."""

    @asynccontextmanager
    async def serve(*flags: str, user: str = "admin") -> AsyncIterator[str]:
        environment = plugin_environment | {"KUBECONFIG": str(control_plane.kubeconfig(user))}
        command = ("kubectl", "gpu", "console", *flags)
        async with _running(command, environment) as address:
            yield address

    return serve


@asynccontextmanager
async def _running(command, environment: Mapping[str, str]) -> AsyncIterator[str]:
    """Run a console; the value is the address that it says."""
    process = await asyncio.create_subprocess_exec(
        *command, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    assert process.stdout is not None
    said: list[str] = []
    try:
        async with asyncio.timeout(120):
            while True:
                line = (await process.stdout.readline()).decode()
                assert line, f"{command} ended: {''.join(said)}"
                said.append(line)
                if found := re.search(r"https?://\S+", line):
                    break
        yield found[0]
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.communicate()


@pytest.fixture
async def pool(make_pool):
    """A pool of one node with 8 devices."""
    return await make_pool(nodes=1, devices=8)


async def test_devices_change_on_the_page_within_a_second(
    browser, local_console, pool, api, namespace
):
    (node,) = pool.nodes
    devices = await _devices_of(api, node)
    async with local_console() as address:
        opened = await open_page(browser)
        page = opened.page
        await opened.load(address)
        row = page.locator(f'[data-node="{node}"]')
        await row.wait_for(timeout=PATIENT_MS)
        assert await row.locator("[data-device]").count() == 8
        assert await row.locator('[data-look="free"]').count() == 8
        assert "token" not in page.url

        await page.evaluate(NOTE_TIMES, devices)
        await api.create(pods.collection(namespace), a_pod("eight", pool, 8))
        await row.locator('[data-look="used"]').nth(7).wait_for(timeout=PATIENT_MS)
        found = await pods.wait_for_pods(api, namespace, partial(is_bound, name="eight"))
        assert found["eight"]["spec"]["nodeName"] == node
        await row.locator("[data-device]").first.hover()
        await page.get_by_text(f"{namespace}/eight").first.wait_for(timeout=PATIENT_MS)

        # A write of our own, so that the moment before it is known.
        before = await page.evaluate("Date.now()")
        fault = {"type": "Healthy", "status": "False", "reason": "XidCriticalError"}
        fault |= {"message": "Xid 79", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        await api.patch(
            f"{DEVICES}/{devices[0]}/status",
            {"status": {"conditions": [fault], "state": "Faulted"}},
        )
        await row.locator('[data-look="faulted"]').first.wait_for(timeout=PATIENT_MS)
        seen = await page.evaluate("window.seen")
        assert seen[f"{devices[0]} faulted"] - before <= VISIBLE_WITHIN_MS
        assert opened.complaints == []


async def test_a_waiting_pod_is_explained_with_what_would_help(
    browser, local_console, pool, api, namespace
):
    await api.create(pods.collection(namespace), a_pod("five", pool, 5))
    await pods.wait_for_pods(api, namespace, partial(is_bound, name="five"))
    await api.create(pods.collection(namespace), a_pod("big", pool, 4))
    async with local_console() as address:
        opened = await open_page(browser)
        page = opened.page
        await opened.load(address)
        await page.get_by_role("navigation", name="Views").get_by_text("Waiting").click()
        waiting = page.locator(f'[data-waiting="{namespace}/big"]')
        await waiting.wait_for(timeout=PATIENT_MS)
        await waiting.get_by_text("ask for 3 units").wait_for(timeout=PATIENT_MS)
        assert await opened.axe_violations() == []
        assert opened.complaints == []


async def test_a_user_of_one_namespace_sees_its_pods_alone(
    browser,
    local_console,
    pool,
    api,
    namespace,
    alice,  # noqa: F811
):
    other = f"other-{secrets.token_hex(3)}"
    await api.create("/api/v1/namespaces", {"metadata": {"name": other}})
    try:
        account = f"/api/v1/namespaces/{other}/serviceaccounts/default"
        await polling.eventually(lambda: api.find(account), what="the default account")
        await api.create(pods.collection(other), a_pod("hidden-pod", pool, 3))
        await pods.wait_for_pods(api, other, partial(is_bound, name="hidden-pod"))
        await api.create(pods.collection(namespace), a_pod("own-pod", pool, 2))
        await pods.wait_for_pods(api, namespace, partial(is_bound, name="own-pod"))
        async with (
            _may_list_pools(api, alice),
            local_console("-n", namespace, user=alice) as address,
        ):
            opened = await open_page(browser)
            page = opened.page
            await opened.load(address)
            row = page.locator(f'[data-node="{pool.nodes[0]}"]')
            await row.locator('[data-look="used"]').nth(4).wait_for(timeout=PATIENT_MS)
            await page.get_by_role("navigation", name="Views").get_by_text("Who").click()
            await page.locator(f'[data-share="{namespace} {pool.name}"]').wait_for(
                timeout=PATIENT_MS
            )
            text = await page.content()
            assert "hidden-pod" not in text
            assert other not in text
            assert await opened.axe_violations() == []
    finally:
        await api.delete(f"/api/v1/namespaces/{other}")


async def test_the_console_of_a_cluster_shows_a_viewer_what_its_token_may_see(
    cluster_console, pool, api, namespace
):
    await api.create(pods.collection(namespace), a_pod("two", pool, 2))
    await pods.wait_for_pods(api, namespace, partial(is_bound, name="two"))
    async with cluster_console() as (opened, token):
        page = opened.page
        await page.get_by_label("Token").fill("no-token")
        await page.keyboard.press("Enter")
        await page.get_by_role("alert").wait_for(timeout=PATIENT_MS)
        assert await opened.axe_violations() == []
        await page.get_by_label("Token").fill(token)
        await page.keyboard.press("Enter")
        row = page.locator(f'[data-node="{pool.nodes[0]}"]')
        await row.locator('[data-look="used"]').nth(1).wait_for(timeout=PATIENT_MS)
        text = await page.content()
        assert f"{namespace}/two" not in text
        assert token not in text


@pytest.mark.long  # tokens are reviewed once a minute
async def test_a_viewer_whose_token_is_revoked_has_to_log_in_again(
    cluster_console, pool, api, namespace
):
    async with cluster_console() as (opened, token):
        page = opened.page
        await page.get_by_label("Token").fill(token)
        await page.keyboard.press("Enter")
        await page.locator(f'[data-node="{pool.nodes[0]}"]').wait_for(timeout=PATIENT_MS)
        await api.delete(f"/api/v1/namespaces/{namespace}/serviceaccounts/default")
        await page.get_by_label("Token").wait_for(timeout=2 * PATIENT_MS)


@pytest.fixture
def cluster_console(browser, api, namespace, control_plane, kubectl):
    """`async with cluster_console() as (opened, token)`: its login page, and a token that may list pools, not pods."""

    @asynccontextmanager
    async def serve() -> AsyncIterator[tuple[OpenPage, str]]:
        port = free_port()
        command = (*installed_command(), "console", "--listen", f"127.0.0.1:{port}")
        environment = {"KUBECONFIG": str(control_plane.kubeconfig()), "PATH": "/usr/bin:/bin"}
        viewer = f"system:serviceaccount:{namespace}:default"
        async with _serving(command, environment, port) as url, _may_list_pools(api, viewer):
            created = await kubectl("create", "token", "default", "-n", namespace)
            opened = await open_page(browser)
            await opened.load(url)
            yield opened, created.stdout.strip()

    return serve


@asynccontextmanager
async def _serving(command, environment: Mapping[str, str], port: int) -> AsyncIterator[str]:
    process = await asyncio.create_subprocess_exec(*command, env=environment)
    url = f"http://127.0.0.1:{port}"

    async def is_ready() -> bool:
        assert process.returncode is None, "the console has ended"
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError as error:
            raise AssertionError("it does not listen yet") from error
        writer.write(b"GET /readyz HTTP/1.0\r\n\r\n")
        status = await reader.readline()
        writer.close()
        assert b" 200 " in status, status
        return True

    try:
        await polling.eventually(is_ready, what="the console is ready")
        yield url
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        assert await process.wait() == 0


@asynccontextmanager
async def _may_list_pools(api, user: str) -> AsyncIterator[None]:
    """Let a user list pools, devices and nodes: what a viewer needs besides pods."""
    name = f"viewer-{secrets.token_hex(3)}"
    verbs = ["get", "list", "watch"]
    ours = {"apiGroups": ["gpu.deckhouse.io"], "resources": ["*"], "verbs": verbs}
    nodes = {"apiGroups": [""], "resources": ["nodes"], "verbs": verbs}
    await api.create(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": [ours, nodes]})
    group = "rbac.authorization.k8s.io"
    binding = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }
    await api.create(f"{RBAC}/clusterrolebindings", binding)
    try:
        yield
    finally:
        await api.delete(f"{RBAC}/clusterrolebindings/{name}")
        await api.delete(f"{RBAC}/clusterroles/{name}")


async def _devices_of(api, node: str) -> list[str]:
    items = (await api.get(DEVICES))["items"]
    return sorted(item["metadata"]["name"] for item in items if item["status"]["nodeName"] == node)
