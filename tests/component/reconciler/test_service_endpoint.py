"""The Service leads to the replica whose term it is, by one write a term."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from kube.client import KubeClient
from kube.resources import ENDPOINT_SLICES, SERVICES
from reconciler.installation.service_endpoint import RECHECK_S, SPEC, ServiceEndpoint
from reconciler.settings import EndpointParameters
from server.controllers.settings import controller_settings
from server.settings import ListenSettings, Settings
from simulator.apiserver.server import InMemoryApiServer
from tests.support.client_of_api import an_api_with_client

NAME = NAMESPACE = "gpu-control-plane"
FIRST = EndpointParameters(namespace=NAMESPACE, address="10.0.0.1", port=8443)
SECOND = replace(FIRST, address="10.0.0.2")


class Cluster:
    """A Service, and replicas that lead one after the other."""

    def __init__(self, api: InMemoryApiServer, client: KubeClient) -> None:
        self.api = api
        self.client = client

    async def create_service(self) -> None:
        metadata = {"name": NAME, "namespace": NAMESPACE}
        await self.client.create(
            SERVICES, {"apiVersion": "v1", "kind": "Service", "metadata": metadata}
        )

    async def lead(self, parameters: EndpointParameters) -> None:
        assert await ServiceEndpoint(self.client, parameters).reconcile(NAME) == RECHECK_S

    async def slice(self) -> dict[str, Any]:
        return await self.client.get(ENDPOINT_SLICES, dict[str, Any], NAME, namespace=NAMESPACE)

    async def addresses(self) -> list[str]:
        endpoints = (await self.slice())["endpoints"]
        return [address for endpoint in endpoints for address in endpoint["addresses"]]

    def writes(self) -> int:
        found = len(self.api.requests.writes())
        self.api.requests.clear()
        return found


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with an_api_with_client(namespace=NAMESPACE) as (api, client):
        yield Cluster(api, client)


async def test_leader_writes_its_address_once(cluster: Cluster):
    await cluster.create_service()
    cluster.writes()
    await cluster.lead(FIRST)
    assert await cluster.addresses() == ["10.0.0.1"]
    assert cluster.writes() == 1
    await cluster.lead(FIRST)
    await cluster.lead(FIRST)
    assert cluster.writes() == 0


async def test_next_leader_takes_the_place_of_the_one_before(cluster: Cluster):
    await cluster.create_service()
    await cluster.lead(FIRST)
    await cluster.lead(SECOND)
    assert await cluster.addresses() == ["10.0.0.2"]


async def test_late_write_of_a_former_leader_is_corrected(cluster: Cluster):
    await cluster.create_service()
    await cluster.lead(SECOND)
    await cluster.lead(FIRST)
    await cluster.lead(SECOND)
    assert await cluster.addresses() == ["10.0.0.2"]


async def test_change_of_the_port_is_written(cluster: Cluster):
    await cluster.create_service()
    await cluster.lead(FIRST)
    await cluster.lead(replace(FIRST, port=9443))
    assert [item["port"] for item in (await cluster.slice())["ports"]] == [9443]


async def test_slice_is_found_by_its_service_and_goes_with_it(cluster: Cluster):
    await cluster.create_service()
    await cluster.lead(FIRST)
    metadata = (await cluster.slice())["metadata"]
    service = await cluster.client.get(SERVICES, dict[str, Any], NAME, namespace=NAMESPACE)
    assert metadata["labels"]["kubernetes.io/service-name"] == NAME
    (owner,) = metadata["ownerReferences"]
    assert owner["uid"] == service["metadata"]["uid"]
    assert (await cluster.slice())["addressType"] == "IPv4"


async def test_ipv6_address_is_in_a_slice_of_its_type(cluster: Cluster):
    await cluster.create_service()
    await cluster.lead(replace(FIRST, address="fd00::1"))
    assert (await cluster.slice())["addressType"] == "IPv6"


async def test_without_the_service_nothing_is_written(cluster: Cluster):
    cluster.writes()
    await cluster.lead(FIRST)
    assert cluster.writes() == 0


def test_service_that_selects_its_pods_is_left_alone():
    assert not SPEC.is_enabled(controller_settings(Settings()))
    listening = Settings(listen=ListenSettings(advertised_address="10.0.0.1"))
    parameters = controller_settings(listening).endpoint
    assert parameters == FIRST
    assert SPEC.is_enabled(controller_settings(listening))
