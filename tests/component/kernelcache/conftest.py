"""Admission of caches as the server has it, with registries in this process and Secrets in an in-memory API server."""

import asyncio
import base64
import functools
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kube.client import KubeClient
from kube.resources import NAMESPACES, SECRETS
from manifests import constants
from pool.catalog import Catalog
from server.kernel_cache_settings import KernelCacheSettings
from server.kernelcache.cache_admission import CacheAdmission
from simulator.apiserver.server import InMemoryApiServer
from simulator.apiserver.webhooks.chain import User
from tests.support.cache_admission import CLUSTERGKMCACHE, GKMCACHE
from tests.support.client_of_api import a_client
from tests.support.loop_clock import LoopClock
from tests.support.polling import until
from tests.support.registry_caches import CacheRegistry
from tests.support.registry_double import RegistryDouble
from tests.support.reviews import a_review
from tests.support.served_app import Reply, ServedApp, TestAuthority, on_a_port

ADMIN_TOKEN = "admin"
NAMESPACE = constants.DEFAULT_NAMESPACE
PATIENT_S = 120.0
"""In real time: no test waits for it."""


@dataclass
class AdmittedCaches:
    """The webhooks for caches on a port."""

    served: ServedApp
    client: KubeClient
    admission: CacheAdmission

    async def mutate(self, cache: dict[str, Any], old: Any = None) -> Reply:
        """Return the answer to the creation of a cache, or to a change."""
        is_cluster = cache["kind"] == "ClusterGKMCache"
        path = constants.MUTATE_CLUSTER_CACHES_PATH if is_cluster else constants.MUTATE_CACHES_PATH
        body = a_review(
            cache,
            kind=CLUSTERGKMCACHE if is_cluster else GKMCACHE,
            operation="CREATE" if old is None else "UPDATE",
            old=old,
        )
        return await self.served.post(path, body)

    async def refusal(self, cache: dict[str, Any], old: Any = None) -> tuple[int, str]:
        """Return code and message of a refusal."""
        response = (await self.mutate(cache, old)).json["response"]
        assert not response["allowed"]
        status = response["status"]
        return status["code"], status["message"]

    async def add_secret(self, name: str, content: bytes, namespace: str) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": namespace},
            "data": {".dockerconfigjson": base64.b64encode(content).decode()},
        }
        await self.client.create(SECRETS, body)


Serve = Callable[..., AbstractAsyncContextManager[AdmittedCaches]]


@pytest.fixture
async def registry() -> AsyncIterator[CacheRegistry]:
    async with RegistryDouble() as double:
        yield CacheRegistry(double)


@pytest.fixture(scope="session")
def authority() -> TestAuthority:
    return TestAuthority()


@pytest.fixture
def serve_caches(authority: TestAuthority, tmp_path: Path) -> Serve:
    """`async with serve_caches(registry, verification={...}, timeout_s=2) as caches`."""
    return functools.partial(serving_caches, authority, tmp_path / "token")


@asynccontextmanager
async def serving_caches(
    authority: TestAuthority,
    token_file: Path,
    *registries: CacheRegistry,
    timeout_s: float = PATIENT_S,
    **sections: Any,
) -> AsyncIterator[AdmittedCaches]:
    clock = LoopClock()
    settings = cache_settings(*registries, **sections)
    users = {ADMIN_TOKEN: User(name="admin", groups=("system:masters",))}
    api = InMemoryApiServer(LoopClock(), tokens=users)
    async with api, a_client(api, clock, token=ADMIN_TOKEN) as client:
        for name in (NAMESPACE, "team-a"):
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            await client.create(NAMESPACES, namespace)
        admission = CacheAdmission(
            settings,
            client,
            clock,
            namespace=NAMESPACE,
            catalog=a_catalog(NAMESPACE, "team-a", "b"),
            timeout_s=timeout_s,
        )
        app = ServedApp(authority, token_file, caches=admission.context)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(item) for item in admission.tasks().values()]
            await until(lambda: admission.keys.is_loaded() and admission.images.is_open())
            async with on_a_port(app):
                yield AdmittedCaches(app, client, admission)
            for task in tasks:
                task.cancel()


def a_catalog(*namespaces: str) -> Catalog:
    catalog = Catalog()
    catalog.labels_by_namespace = {name: {} for name in namespaces}
    return catalog


def cache_settings(*registries: CacheRegistry, **sections: Any) -> KernelCacheSettings:
    plain = [item.double.host for item in registries]
    return KernelCacheSettings.model_validate(
        {"registries": {"plain_http": plain, "private": plain}, **sections}
    )
