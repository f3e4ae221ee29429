"""NodeFeatures of these tests, written as NFD's clients write them."""

import contextlib
from typing import TYPE_CHECKING

from simulator.node.nfd import NAMESPACE
from tests.cluster.environment import client

if TYPE_CHECKING:
    from tests.cluster.environment.client import JsonObject

FEATURES = f"/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/{NAMESPACE}/nodefeatures"


async def apply_feature(api: client.ApiClient, feature: "JsonObject") -> None:
    """Make the NodeFeature what it should be, and its namespace, should that not be there."""
    with contextlib.suppress(client.ApiRefusedError):
        await api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    path = f"{FEATURES}/{feature['metadata']['name']}"
    await api.patch(path, feature, kind="apply", fieldManager="agent", force="true")
