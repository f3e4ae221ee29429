"""etcd goes back to a backup while the server lives: no device is given twice, and every pod is bound."""

import re

import pytest

from tests.cluster.environment import binaries, pods
from tests.cluster.environment.binaries import ROOT
from tests.cluster.system.objects import a_pod, check_devices


def documented_command() -> list[str]:
    """Return the command of the page on restores, with the program that is built."""
    page = (ROOT / "docs" / "restore.md").read_text(encoding="utf-8")
    (found,) = re.findall("`(etcdutl [^`]*)`", page)
    program, *arguments = found.split()
    assert program == "etcdutl"
    return [str(binaries.find_etcdutl(print)), *arguments]


@pytest.mark.parametrize("raises_revisions", [False, True], ids=["copied back", "by etcdutl"])
async def test_server_outlives_a_restore_of_etcd(
    raises_revisions, make_pool, system, control_plane, api, namespace, figures
):
    pool = await make_pool(devices=3)
    await api.create(pods.collection(namespace), a_pod("old", pool))
    await pods.wait_for_pod(api, namespace, "old", pods.is_running)
    await system.scheduler.stop()
    await api.create(pods.collection(namespace), a_pod("again", pool))
    backup = await control_plane.back_up(f"etcd-backup-{namespace}")
    await system.restore()
    process = system.server.process.pid
    # Bound after the backup, and an end after it: both are undone.
    await pods.wait_for_pod(api, namespace, "again")
    await api.delete(f"{pods.collection(namespace)}/old")
    await pods.wait_for_pod_gone(api, namespace, "old")
    await api.create(pods.collection(namespace), a_pod("lost", pool, 2))
    await pods.wait_for_pod(api, namespace, "lost")
    await figures(pool, used=3, available=0)
    await system.scheduler.stop()

    if raises_revisions:
        await control_plane.restore_by(documented_command(), backup)
    else:
        await control_plane.restore(backup)

    assert system.server.process.pid == process
    await system.restore()
    await pods.wait_for_pod_gone(api, namespace, "lost")
    again = await pods.wait_for_pod(api, namespace, "again")
    await api.create(pods.collection(namespace), a_pod("new", pool))
    new = await pods.wait_for_pod(api, namespace, "new")
    old = await api.get(f"{pods.collection(namespace)}/old")
    assert len(check_devices([old, again, new])) == 3
    events = [line.get("event", "") for line in system.server.logs()]
    assert [event for event in events if event.endswith("was the API server's store restored?")]
    await figures(pool, used=3, available=0)
