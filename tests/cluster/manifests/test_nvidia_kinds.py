"""ClusterPolicy and NVIDIADriver on the real API server, beside the definitions that NVIDIA publishes.

A cluster has one definition of a name, so that the published ones are served in another group. The API server
judges each object twice and writes none of them: what it accepts there it accepts here, with the same defaults,
but for the rules in `stricter_rules`; what it refuses there it refuses here.
"""

import asyncio
import copy
import json
import random
import re
from typing import TYPE_CHECKING, Any

import pytest

from manifests.yaml import render
from tests.cluster.environment import client, definitions
from tests.support.nvidia.operator_kinds import (
    MODELS,
    OURS,
    api_version,
    published,
    published_objects,
    sample,
    schema_of,
)
from tests.support.nvidia.stricter_rules import RULES
from tests.support.seeded_objects import damages

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Iterator

    from tests.cluster.environment.kubectl import Kubectl

Json = dict[str, Any]

GROUP = "published.example.com"
SEED = 36
OBJECTS = 75
"""Of each kind, with and without a fault."""


def served_beside(crd: Json) -> Json:
    found = copy.deepcopy(crd)
    found["spec"]["group"] = GROUP
    found["metadata"]["name"] = f"{crd['spec']['names']['plural']}.{GROUP}"
    # A short name belongs to one definition.
    found["spec"]["names"].pop("shortNames", None)
    return found


THEIRS = {kind: served_beside(published(kind)) for kind in MODELS}


pytestmark = pytest.mark.usefixtures("kinds")


@pytest.fixture(scope="module")
def kinds(kubectl: "Kubectl") -> "Iterator[None]":
    found = [*OURS.values(), *THEIRS.values()]
    apply = kubectl("apply", "--server-side", "--validate=strict", "-f", "-", stdin=render(found))
    asyncio.run(apply)
    asyncio.run(definitions.until_served(kubectl, found))
    yield
    names = [f"crd/{item['metadata']['name']}" for item in found]
    asyncio.run(kubectl("delete", "--wait=false", *names))


def path_of(crd: Json) -> str:
    return f"/apis/{api_version(crd)}/{crd['spec']['names']['plural']}"


async def answer(call: "Awaitable[Json]") -> tuple[Json, str]:
    """Return the object as the API server would store it, and why it refuses it; empty if it does not."""
    try:
        return await call, ""
    except client.ApiRefusedError as refused:
        if refused.status not in {400, 422}:
            raise
        return {}, refused.message


async def created(api: client.ApiClient, crd: Json, body: Json) -> tuple[Json, str]:
    """Judge the object without its status, which is never created."""
    return await answer(
        api.create(
            path_of(crd),
            {key: value for key, value in body.items() if key != "status"}
            | {"apiVersion": api_version(crd)},
            fieldValidation="Strict",
            dryRun="All",
        )
    )


@pytest.mark.parametrize("kind", MODELS)
async def test_object_that_the_published_definition_accepts_is_accepted_with_the_same_defaults(
    kind, api
):
    accepted = 0
    for body in published_objects(kind, seed=SEED, count=OBJECTS):
        theirs, refused = await created(api, THEIRS[kind], body)
        assert refused == ""
        ours, refused = await created(api, OURS[kind], body)
        broken = [rule.text for rule in RULES if rule.is_broken(theirs)]
        assert [rule.text for rule in RULES if rule.says(refused)] == broken
        if not broken:
            assert refused == ""
            assert ours.get("spec") == theirs.get("spec")
            accepted += 1
    assert accepted > OBJECTS / 2


@pytest.mark.parametrize("kind", MODELS)
async def test_object_that_the_published_definition_refuses_is_refused_for_the_same_field(
    kind, api
):
    rng = random.Random(SEED)
    schema = schema_of(published(kind))
    refusals = 0
    for body in published_objects(kind, seed=SEED + 1, count=OBJECTS):
        if found := list(damages(schema, {"spec": body["spec"]} if "spec" in body else {})):
            damaged = rng.choice(found).applied(body)
            _, theirs = await created(api, THEIRS[kind], damaged)
            _, ours = await created(api, OURS[kind], damaged)
            assert theirs
            assert fields_in(theirs) <= fields_in(ours), (theirs, ours)
            refusals += 1
    assert refusals > OBJECTS / 2


def fields_in(refusal: str) -> set[str]:
    return set(re.findall(r"\bspec(?:[.]\w+|\[\d+\])*", refusal))


@pytest.fixture(params=MODELS)
async def both(request, api, kinds) -> "AsyncIterator[str]":
    """The kind of an object of each definition: the published sample."""
    kind: str = request.param
    crds = (THEIRS[kind], OURS[kind])
    for crd in crds:
        await api.create(path_of(crd), sample(kind) | {"apiVersion": api_version(crd)})
    yield kind
    for crd in crds:
        await api.delete(path_of(crd))


async def changed(api: client.ApiClient, crd: Json, change: Json, part: str = "") -> str:
    """Return why a change of the sample is refused; it is not stored."""
    path = f"{path_of(crd)}/{sample(crd['spec']['names']['kind'])['metadata']['name']}{part}"
    _, refused = await answer(api.patch(path, change, fieldValidation="Strict", dryRun="All"))
    return refused


async def test_status_is_judged_as_the_published_definition_judges_it(api, both):
    rng = random.Random(SEED)
    schema = schema_of(published(both))
    results = set()
    for body in published_objects(both, seed=SEED + 2, count=OBJECTS // 3):
        status = {"status": body.get("status", {"state": "ready"})}
        for item in (status, rng.choice(list(damages(schema, status))).applied(status)):
            theirs = await changed(api, THEIRS[both], item, "/status")
            ours = await changed(api, OURS[both], item, "/status")
            results.add(bool(theirs))
            if theirs:
                assert ours, theirs
                continue
            broken = [rule.text for rule in RULES if rule.is_broken({"kind": both, **item})]
            assert [rule.text for rule in RULES if rule.says(ours)] == broken
            assert bool(ours) == bool(broken), ours
    assert results == {True, False}


async def test_status_may_name_every_state_and_every_upgraded_node(api, both):
    state = {"name": "state-driver", "state": "notReady", "message": "pulling on gpu-1"}
    upgrade = {"node": "gpu-1", "state": "drain-required", "since": "2026-11-23T00:00:00Z"}
    status = {"state": "notReady", "states": [state], "upgrade": [upgrade]}
    assert await changed(api, OURS[both], {"status": status}, "/status") == ""
    twice = status | {"states": [state, state]}
    assert "Duplicate value" in await changed(api, OURS[both], {"status": twice}, "/status")


async def test_two_fields_of_a_driver_cannot_change(api):
    """In both definitions; each rule runs on the real change of a stored object."""
    kind = "NVIDIADriver"
    for crd in (THEIRS[kind], OURS[kind]):
        await api.create(path_of(crd), sample(kind) | {"apiVersion": api_version(crd)})
        try:
            for change in ({"driverType": "vgpu"}, {"usePrecompiled": True}):
                assert next(iter(change)) in await changed(api, crd, {"spec": change})
            assert await changed(api, crd, {"spec": {"version": "1"}}) == ""
        finally:
            await api.delete(path_of(crd))


async def test_kubectl_shows_the_state_that_is_missing(api, kubectl, both):
    path = f"{path_of(OURS[both])}/{sample(both)['metadata']['name']}/status"
    message = "no pod on gpu-1: the image cannot be pulled"
    states = [
        {"name": "state-operator-metrics", "state": "ready"},
        {"name": "state-driver", "state": "notReady", "message": message},
    ]
    await api.patch(path, {"status": {"state": "notReady", "states": states}})
    resource = OURS[both]["metadata"]["name"]
    current = (await kubectl("get", resource, "-o", "wide")).stdout
    for value in ("STATUS", "notReady", "NOT-READY", "state-driver", message):
        assert value in current
    assert "state-operator-metrics" not in current


async def test_kubectl_refuses_an_unknown_field_and_explains_every_known_one(kubectl):
    body = sample("NVIDIADriver") | {"kind": "NVIDIADriver"}
    body["spec"]["verison"] = "1"
    done = await kubectl("create", "-f", "-", stdin=json.dumps(body), check=False)
    assert 'unknown field "spec.verison"' in done.stderr
    for short_name in ("nvd", "nvdriver", "nvdrivers", "clusterpolicy"):
        explained = (await kubectl("explain", f"{short_name}.spec")).stdout
        assert "<no description>" not in explained
