"""Caches at a real API server: each stored object proves its image, at the generation that the API server counts."""

import base64
from typing import Any

import msgspec
import pytest

from api.kinds.gkmcache import ClusterGKMCache, GKMCache
from api.names import GKM_ANNOTATIONS, RESOLVED_DIGEST_ANNOTATION
from kernelcache.admitted_image import CacheRevision, ProvenImage, proven_image
from kernelcache.signatures.mutation import MutationKeys
from manifests import constants
from manifests.caches.crds import build_cache_crds
from tests.cluster.environment import client, definitions, polling
from tests.cluster.system import installation
from tests.support.registry_caches import CacheRegistry, Signer
from tests.support.registry_double import RegistryDouble

GKM = "/apis/gkm.io/v1alpha1"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
KEY_SECRET = f"/api/v1/namespaces/{installation.NAMESPACE}/secrets/{constants.CACHE_KEY_SECRET}"
SIGNER = Signer()


async def install_definitions(api: client.ApiClient, kubectl: Any) -> None:
    """Make the kinds, where the installation does not."""
    built = build_cache_crds()
    for item in built:
        if not await api.find(f"{CRDS}/{item['metadata']['name']}"):
            await api.create(CRDS, item)
    await definitions.until_served(kubectl, built)


async def keys(api: client.ApiClient) -> MutationKeys:
    data = (await api.get(KEY_SECRET))["data"]
    return MutationKeys(current=base64.b64decode(data["current"]), previous=None)


def ours(cache: dict[str, Any]) -> dict[str, str]:
    return {
        key: value
        for key, value in cache["metadata"].get("annotations", {}).items()
        if key in GKM_ANNOTATIONS
    }


def without_annotations(cache: dict[str, Any], **labels: str) -> dict[str, Any]:
    meta = {key: item for key, item in cache["metadata"].items() if key != "annotations"}
    return {**cache, "metadata": {**meta, "labels": labels}}


async def replace_without_annotations(
    api: client.ApiClient, path: str, **labels: str
) -> dict[str, Any]:
    """Replace the object, which the controllers write too."""

    async def replaced() -> dict[str, Any]:
        try:
            return await api.replace(path, without_annotations(await api.get(path), **labels))
        except client.ApiRefusedError as refused:
            if refused.status == 409:
                raise AssertionError(refused.message) from None
            raise

    found: dict[str, Any] = await polling.eventually(replaced, what=f"{path} is replaced")
    return found


@pytest.mark.parametrize("kind", [GKMCache, ClusterGKMCache], ids=lambda kind: kind.__name__)
async def test_every_stored_object_proves_its_image(
    control_plane: Any, kubectl: Any, api: client.ApiClient, namespace: str, kind: type[GKMCache]
) -> None:
    is_cluster = kind is ClusterGKMCache
    path = f"{GKM}/clustergkmcaches" if is_cluster else f"{GKM}/namespaces/{namespace}/gkmcaches"
    name = f"{namespace}-cache"
    one = f"{path}/{name}"
    async with RegistryDouble() as double:
        registry = CacheRegistry(double)
        settings = {
            "registries": {"plain_http": [double.host], "private": [double.host]},
            "verification": {"keys": [SIGNER.pem]},
        }
        system = installation.GpuSystem(
            control_plane,
            kubectl,
            prefix=f"{kind.__name__.lower()}-",
            settings={"kernel_caches": settings},
        )
        try:
            await install_definitions(api, kubectl)
            await system.install()
            keys_now = await keys(api)

            async def stored(cache: dict[str, Any], *, generation: int, digest: str) -> None:
                read = msgspec.convert(cache, kind)
                revision = CacheRevision(
                    name=read.cache_name,
                    generation=read.metadata.generation,
                    image=read.spec.image,
                )
                found = proven_image(ours(cache), revision, keys_now)
                assert isinstance(found, ProvenImage), found
                assert (read.metadata.generation, found.image.digest) == (generation, digest)

            first = registry.push(1)
            body: dict[str, Any] = {
                "apiVersion": "gkm.io/v1alpha1",
                "kind": kind.__name__,
                "metadata": {"name": name},
                "spec": {"image": registry.image},
            }
            with pytest.raises(client.ApiRefusedError, match="it has no signature"):
                await api.create(path, body)
            registry.sign(first, SIGNER)
            created = await api.create(path, body)
            await stored(created, generation=1, digest=first)
            second = registry.push(2, tag="2")
            registry.sign(second, SIGNER)
            image = registry.image.removesuffix("1") + "2"
            await stored(
                await api.patch(one, {"spec": {"image": image}}), generation=2, digest=second
            )
            warm = await api.patch(one, {"spec": {"warm": "Demand"}})
            await stored(warm, generation=3, digest=second)
            await stored(
                await api.patch(one, {"metadata": {"labels": {"a": "b"}}}),
                generation=3,
                digest=second,
            )
            replaced = await replace_without_annotations(api, one, c="d")
            assert ours(replaced) == ours(warm)
            dropped = await api.patch(
                one, {"metadata": {"annotations": {RESOLVED_DIGEST_ANNOTATION: None}}}
            )
            assert ours(dropped) == ours(warm)
            forged = await api.patch(
                one, {"metadata": {"annotations": {RESOLVED_DIGEST_ANNOTATION: first}}}
            )
            assert ours(forged) == ours(warm)
            applied = await api.patch(
                one,
                {**body, "spec": {"image": image, "warm": 2}},
                kind="apply",
                fieldManager="tests",
                force="true",
            )
            await stored(applied, generation=4, digest=second)
            applied = await api.patch(
                one,
                {**body, "spec": {"image": image, "warm": 2, "pullSecrets": []}},
                kind="apply",
                fieldManager="tests",
                force="true",
            )
            await stored(applied, generation=5, digest=second)
            status = await api.patch(f"{one}/status", {"status": {"resolvedDigest": second}})
            await stored(status, generation=5, digest=second)
            with pytest.raises(client.ApiRefusedError, match="generateName alone"):
                await api.create(path, {**body, "metadata": {"generateName": "x-"}})
            replayed = {**body, "metadata": {"name": f"{name}-2", "annotations": ours(warm)}}
            await stored(await api.create(path, replayed), generation=1, digest=first)

            # What decides nothing about the image does not need the server.
            finalizers = {"metadata": {"finalizers": ["tests/hold"]}}
            system.server.kill9()
            held = await api.patch(one, finalizers)
            await stored(held, generation=5, digest=second)
            await api.delete(one)
            deleting = await api.get(one)
            assert ours(deleting) == ours(held)
            assert deleting["metadata"]["generation"] == 6, "the API server counts a deletion, too"
            await api.patch(one, {"metadata": {"finalizers": None}})
            assert not await api.find(one)
        finally:
            for remaining in (one, f"{one}-2"):
                if await api.find(remaining):
                    await api.patch(remaining, {"metadata": {"finalizers": None}})
                    await api.delete(remaining)
            await system.uninstall()
