"""`simulate` on a live cluster: lists alone, and what a partial list means."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.exit_status import FAILED, OK
from cli.main import run
from tests.support.canned_api import Answer, CannedApi, Json, Seen, a_list, status
from tests.support.cluster_objects import (
    Object,
    a_bound_pod_object,
    a_list_file,
    a_pod_object,
    two_nodes,
)

PLURALS = {
    "gpupools": "GPUPool",
    "gpudevices": "GPUDevice",
    "nodes": "Node",
    "gpunodeinventories": "GPUNodeInventory",
    "namespaces": "Namespace",
    "resourcequotas": "ResourceQuota",
    "limitranges": "LimitRange",
    "pods": "Pod",
}
OPTIONAL = ("gkmcaches", "clustergkmcaches", "gkmcachenodes", "clustergkmcachenodes")
"""Kinds that this cluster does not serve."""


class Cluster:
    """An API server that knows lists alone."""

    def __init__(self, api: CannedApi, directory: Path) -> None:
        self.api = api
        self.objects: list[Object] = []
        self.forbidden: set[str] = set()
        self.not_served: set[str] = set()
        self._directory = directory
        api.always = self._answer

    def _answer(self, seen: Seen) -> Answer:
        plural = seen.path.rpartition("/")[2]
        if plural in self.forbidden:
            return Json(status(403, "Forbidden", "may not"), status=403)
        if plural in self.not_served or plural in OPTIONAL:
            return Json(status(404, "NotFound", "no such resource"), status=404)
        found = [object_ for object_ in self.objects if object_["kind"] == PLURALS[plural]]
        return a_list(*({key: item[key] for key in item if key != "kind"} for item in found))

    async def ask(self, pod: Object, *flags: str) -> int:
        asked = a_list_file(self._directory / "pod.json", pod)
        return await self.simulate("--pod", str(asked), *flags)

    async def simulate(self, *flags: str) -> int:
        config = self._directory / "kubeconfig"
        config.write_text(yaml.safe_dump(a_kubeconfig(self.api.url)))
        return await asyncio.to_thread(run, ["simulate", "--kubeconfig", str(config), *flags])


def a_kubeconfig(url: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }


@pytest.fixture
async def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cluster]:
    monkeypatch.setattr("telemetry.logs.configure_logs", lambda *_: None)
    async with CannedApi() as api:
        yield Cluster(api, tmp_path)


async def test_a_live_cluster_is_read_by_lists_alone(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
):
    cluster.objects = [*two_nodes(), a_bound_pod_object("other", "n1", [0, 1])]
    assert await cluster.ask(a_pod_object(units=2), "--output", "json") == OK
    answer = json.loads(capsys.readouterr().out)
    assert answer["decision"]["placement"]["node"] == "n1"
    assert "partial" not in answer
    assert {seen.method for seen in cluster.api.seen} == {"GET"}


async def test_a_workload_runs_on_a_live_cluster_and_a_part_of_it(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    groups = [{"name": "a", "pool": "whole", "units": 4, "count": 3}]
    workload = tmp_path / "workload.yaml"
    workload.write_text(yaml.safe_dump({"pods": groups}))
    cluster.objects, cluster.forbidden = two_nodes(), {"pods"}
    assert await cluster.simulate("--workload", str(workload), "--output", "json") == OK
    report = json.loads(capsys.readouterr().out)
    assert report["strategies"][0]["notPlaced"] == 1
    assert report["notes"][0].startswith("partial: pods may not be listed with this account: units")
    assert {seen.method for seen in cluster.api.seen} == {"GET"}


@pytest.mark.parametrize(
    ("plural", "consequence"),
    [
        ("nodes", "nodes may not be listed with this account: every node with devices counts as"),
        ("pods", "pods may not be listed with this account: units in use and reserved are unknown"),
        ("namespaces", "namespaces may not be listed with this account: no spec.access"),
    ],
)
async def test_a_list_that_may_not_be_read_makes_the_answer_partial(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], plural: str, consequence: str
):
    cluster.objects, cluster.forbidden = two_nodes(), {plural}
    assert await cluster.ask(a_pod_object(units=2)) == OK
    printed = capsys.readouterr().out
    assert "would be placed now" in printed
    assert f"partial: {consequence}" in printed


async def test_an_account_that_may_only_read_pods_learns_which_lists_it_lacks(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
):
    cluster.objects = [*two_nodes(), a_bound_pod_object("other", "n1", [0]), a_pod_object("waits")]
    cluster.forbidden = PLURALS.keys() - {"pods"}
    assert await cluster.ask(a_pod_object()) == FAILED
    said = capsys.readouterr().err
    assert "gpupools may not be listed with this account: no pool is known" in said
    assert "partial: of 2 pods 2 name a pool, 1 of them wait" in said
    assert "needs gpupools and gpudevices: grant `list` on them" in said
    assert said.count("\n") == 1


async def test_a_cluster_without_our_kinds_says_so(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
):
    cluster.not_served = {"gpupools", "gpudevices", "gpunodeinventories"}
    assert await cluster.ask(a_pod_object()) == FAILED
    assert "the API server does not serve gpupools" in capsys.readouterr().err


async def test_an_unreachable_cluster_is_one_line(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
):
    cluster.api.url = "http://127.0.0.1:9"
    assert await cluster.ask(a_pod_object()) == FAILED
    said = capsys.readouterr().err
    assert "gpupools of the cluster at http://127.0.0.1:9 cannot be read" in said
    assert said.count("\n") == 1
