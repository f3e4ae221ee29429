"""Who may do what with the roles that we install."""

import pytest

from manifests import constants
from tests.cluster.environment import polling


async def can(kubectl, user: str, *question: str) -> bool:
    done = await kubectl("auth", "can-i", *question, "--as", user, check=False)
    assert done.stdout.strip() in {"yes", "no"}, done.stderr
    return bool(done.stdout.strip() == "yes")


@pytest.fixture
async def bind(api, installed):
    """`await bind("alice", "view")` in the whole cluster."""
    path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    created = []

    async def bind(user: str, role: str) -> None:
        name = f"test-{user}-{role}"
        created.append(name)
        await api.create(
            path,
            {
                "metadata": {"name": name},
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": "ClusterRole",
                    "name": role,
                },
                "subjects": [
                    {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
                ],
            },
        )

    yield bind
    for name in created:
        await api.delete(f"{path}/{name}")


@pytest.mark.parametrize(
    ("role", "may_read", "may_write"),
    [("view", True, False), ("edit", True, False), ("admin", True, True)],
)
async def test_stock_role_is_extended(role, may_read, may_write, bind, kubectl):
    user = f"stock-{role}"
    await bind(user, role)
    reads = lambda: can(kubectl, user, "list", "gpunodeinventories.gpu.deckhouse.io")  # noqa: E731
    await polling.eventually(reads, what=f"{role} with our rules aggregated")
    assert await can(kubectl, user, "get", "gpudevices.gpu.deckhouse.io") is may_read
    if may_write:
        writes = lambda: can(kubectl, user, "create", "gpupools.gpu.deckhouse.io")  # noqa: E731
        await polling.eventually(writes, what=f"{role} with our rules aggregated")
    assert await can(kubectl, user, "create", "gpupools.gpu.deckhouse.io") is may_write
    assert await can(kubectl, user, "patch", "gpudevices.gpu.deckhouse.io") is False


async def test_our_service_account_has_what_was_asked_for_and_no_more(installed, kubectl):
    ours = constants.service_account_username(installed.namespace)
    assert await can(kubectl, ours, "create", "pods/binding", "--namespace", "default")
    assert not await can(kubectl, ours, "delete", "pods", "--namespace", "default")
    assert await can(kubectl, ours, "create", "secrets", "--namespace", installed.namespace)
    assert not await can(kubectl, ours, "create", "secrets", "--namespace", "default")


async def test_scheduler_has_its_own_lease(installed, kubectl):
    scheduler = constants.service_account_username(
        installed.namespace, constants.SCHEDULER_SERVICE_ACCOUNT
    )
    lease = f"leases.coordination.k8s.io/{constants.SCHEDULER_LEASE_NAME}"
    here = ("--namespace", installed.namespace)
    assert await can(kubectl, scheduler, "update", lease, *here)
    assert not await can(kubectl, scheduler, "update", "leases.coordination.k8s.io/other", *here)
    assert await can(kubectl, scheduler, "list", "pods", "--all-namespaces")
    assert await can(kubectl, scheduler, "list", "csinodes.storage.k8s.io")
