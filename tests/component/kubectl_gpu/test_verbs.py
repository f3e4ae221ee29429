"""Verbs through the real kubectl: what they read, and what they answer in each form."""

import asyncio
import json
import sys

import pytest
import yaml

from kubectl_gpu.answer_forms import API_VERSION
from kubectl_gpu.exit_codes import ANSWERED
from tests.support.canned_api import Json, Stream, event
from tests.support.plugin_cluster import ListedCluster, a_waiting_pod, document_of, labelled

POOL = "labelSelector"


async def test_why_names_the_figures_the_holders_and_what_would_help(cluster: ListedCluster):
    done = await cluster.run("why", "big", "-n", "ml-team")
    assert (done.returncode, done.stderr) == (ANSWERED, "")
    first, *remaining = done.stdout.splitlines()
    assert first.startswith("ml-team/big has waited ")
    assert first.endswith(" for 4 units of pool training")
    assert remaining == [
        "  4 units of pool training requested, 5 of 8 are free, at most 3 on one node",
        "  NODE   FREE  USED  RESERVED  WITHHELD  TAKEN BY     BECAUSE",
        "  gpu-0     3     1         0         0  train-a (1)  4 requested, 3 free (1 used of 4)",
        "  gpu-1     2     2         0         0  train-b (2)  4 requested, 2 free (2 used of 4)",
        "What would help, the least first",
        "  - ask for 3 units: node gpu-0 would take the pod now",
        "  - 4 devices of gpu-2 are in no pool and would make room: annotate each with"
        " gpu.deckhouse.io/assignment=training",
        "  - when train-a (1 unit) ends, the pod fits on gpu-0",
        "kube-scheduler said: 0/3 nodes are available: 2 Insufficient gpu.deckhouse.io/training.",
        "Read from: API server",
    ]


async def test_why_reads_the_objects_of_the_pool_and_all_pods(
    cluster: ListedCluster,
):
    await cluster.run("why", "big", "-n", "ml-team")
    asked = {
        (seen.path.rpartition("/")[2], seen.query.get(POOL, seen.query.get("fieldSelector", "")))
        for seen in cluster.reads()
    }
    assert asked == {
        ("big", ""),
        ("gpupools", ""),
        ("gpudevices", "status.poolRef.name=training"),
        ("gpudevices", "status.poolRef.name="),
        ("nodes", "pool.gpu.deckhouse.io/training"),
        ("pods", ""),
        ("nodes", "metadata.name=gpu-2"),
        ("gpunodeinventories", ""),
    }
    assert {seen.method for seen in cluster.reads()} == {"GET"}


async def test_why_says_what_autoscaling_said_last_of_a_pod_of_a_pool_that_scales(
    cluster: ListedCluster,
):
    cluster.objects[0]["spec"]["autoscaling"] = {"shapes": []}
    [pod] = [item for item in cluster.objects if item["metadata"]["name"] == "big"]
    blocked = "no node is asked for: NoShape: the pod requests 9000m of CPU"
    for minute, reason, note in (
        (1, "GPUNodeRequested", "pool training asks for a node"),
        (3, "GPUNodeRequestBlocked", blocked),
        (2, "GPUNodeFailed", "request a1b2 failed"),
        (4, "GPUPodWaits", "4 units requested"),
    ):
        cluster.objects.append(
            {
                "kind": "Event",
                "metadata": {"name": f"big.{minute}", "namespace": "ml-team"},
                "regarding": {"uid": pod["metadata"]["uid"]},
                "reason": reason,
                "note": note,
                "eventTime": f"2026-11-23T22:0{minute}:00.000000Z",
            }
        )
    done = await cluster.run("why", "big", "-n", "ml-team")
    assert f"autoscaling said: {blocked}" in done.stdout.splitlines()
    cluster.forbidden.add("events")
    done = await cluster.run("why", "big", "-n", "ml-team")
    assert "whether a node is asked for is unknown" in done.stdout
    assert "autoscaling said" not in done.stdout


async def test_why_of_a_workload_says_what_its_controller_was_told_last(cluster: ListedCluster):
    denial = 'Error creating: admission webhook "pods.gpu.deckhouse.io" denied the request: AccessDenied: '
    for name, minute, reason, note in (
        ("train-7c9d", 2, "FailedCreate", f"{denial}pool training is not open to this pod"),
        ("train-7c9d", 1, "FailedCreate", f"{denial}earlier"),
        ("train-7c9d", 3, "FailedCreate", "Error creating: exceeded quota"),
        ("training", 4, "FailedCreate", f"{denial}another"),
    ):
        cluster.objects.append(
            {
                "kind": "Event",
                "metadata": {"name": f"{name}.{minute}", "namespace": "ml-team"},
                "regarding": {"kind": "ReplicaSet", "name": name},
                "type": "Warning",
                "reason": reason,
                "note": note,
                "deprecatedLastTimestamp": f"2026-11-23T22:0{minute}:00Z",
            }
        )
    done = await cluster.run("why", "deployment/train", "-n", "ml-team")
    assert done.stdout.splitlines()[0] == "ml-team/train: pods of it are refused"
    assert "pool training is not open to this pod" in " ".join(done.stdout.split())
    done = await cluster.run("why", "job/other", "-n", "ml-team")
    assert "no Event of the last hour says that a pod of job other was refused" in " ".join(
        done.stdout.split()
    )


async def test_why_without_a_pod_lists_those_that_wait(cluster: ListedCluster):
    cluster.objects.append(labelled(a_waiting_pod("small", 1), namespace="other"))
    one = await cluster.run("why", "-n", "ml-team", "--no-headers")
    assert one.stdout.split()[:4] == ["ml-team", "big", "training", "4"]
    assert len(one.stdout.splitlines()) == 1
    every = await cluster.run("why", "-A", "-o", "json")
    reasons = [
        (item["name"], item["explanation"]["reason"]) for item in document_of(every)["items"]
    ]
    assert reasons == [("big", "UnitsFragmented"), ("small", "UnitsAvailable")]


async def test_pools_are_shown_as_the_leader_wrote_them(cluster: ListedCluster):
    done = await cluster.run("pools")
    assert done.stdout == (
        "POOL      MODE       TOTAL  USED  RESERVED  FREE  LARGEST  WAITING  FITS 1/2/4/8  PHASE\n"
        "training  Exclusive      8     3         0     5        3        1  5/2/0/0       Ready\n"
    )


async def test_a_row_of_nodes_shows_each_device_and_a_legend(cluster: ListedCluster):
    done = await cluster.run("nodes")
    assert done.stdout == (
        "NODE   DEVICES  TOTAL  USED  RESERVED  FREE  STATE  POOLS\n"
        "gpu-0  ■□□□         4     1         0     3  Ready  training\n"
        "gpu-1  ■■□□         4     2         0     2  Ready  training\n"
        "gpu-2  ····         0     0         0     0  Ready  -\n"
        "DEVICES by PCI address: □ free  ■ used  · in no pool\n"
    )


async def test_without_unicode_the_row_is_in_ascii(cluster: ListedCluster):
    done = await cluster.run("nodes", "gpu-1", PYTHONIOENCODING="ascii")
    assert done.stdout.splitlines()[1].split()[:2] == ["gpu-1", "##.."]
    assert done.stdout.splitlines()[2] == "DEVICES by PCI address: . free  # used"


async def test_nodes_of_one_pool_are_read_by_selectors(cluster: ListedCluster):
    done = await cluster.run("nodes", "--pool", "training", "-o", "name")
    assert done.stdout == "node/gpu-0\nnode/gpu-1\n"
    queries = [seen.query for seen in cluster.reads()]
    assert queries[0]["fieldSelector"] == "status.poolRef.name=training"
    assert queries[1]["labelSelector"] == "pool.gpu.deckhouse.io/training"


async def test_who_sums_by_namespace_and_pool(cluster: ListedCluster):
    done = await cluster.run("who", "-o", "wide")
    assert done.stdout == (
        "NAMESPACE  POOL      PODS  USED  RESERVED  WAITING  HOLDERS\n"
        "ml-team    training     3     3         0        4  train-b (2), train-a (1)\n"
    )


@pytest.mark.parametrize(
    ("verb", "kind", "name"),
    [
        (("pools",), "PoolList", "gpupool.gpu.deckhouse.io/training"),
        (("nodes", "gpu-0"), "NodeDevicesList", "node/gpu-0"),
        (("who",), "ShareList", "namespace/ml-team"),
        (("why", "big", "-n", "ml-team"), "PodExplanation", "pod/big"),
        (("why", "-A"), "PodExplanationList", "pod/big"),
    ],
)
async def test_every_verb_has_a_document_and_names(
    cluster: ListedCluster, verb: tuple[str, ...], kind: str, name: str
):
    document = document_of(await cluster.run(*verb, "-o", "json"))
    assert (document["apiVersion"], document["kind"]) == (API_VERSION, kind)
    text = (await cluster.run(*verb, "-o", "yaml")).stdout
    assert yaml.safe_load(text).keys() == document.keys()
    assert (await cluster.run(*verb, "-o", "name")).stdout == f"{name}\n"


async def test_flags_of_kubectl_may_stand_before_the_verb(cluster: ListedCluster):
    done = await cluster.run_bare("--server", cluster.api.url, "-n", "ml-team", "why", "-o", "name")
    assert done.stdout == "pod/big\n"


async def test_kubectl_reads_as_another_user(cluster: ListedCluster):
    await cluster.run("pools", "--as", "alice", "--as-group", "a", "--as-group", "b")
    headers = cluster.reads()[0].headers
    assert headers["Impersonate-User"] == "alice"


async def test_lists_come_in_pages(cluster: ListedCluster):
    first, second = ({"metadata": {"name": name}} for name in ("a", "b"))
    path = "/apis/gpu.deckhouse.io/v1alpha1/gpupools"
    pages = {
        "": {"metadata": {"resourceVersion": "1", "continue": "more=+"}, "items": [first]},
        "more=+": {"metadata": {"resourceVersion": "1"}, "items": [second]},
    }
    answer_of = cluster.api.always
    assert callable(answer_of)
    cluster.api.always = lambda seen: (
        Json(pages[seen.query.get("continue", "")]) if seen.path == path else answer_of(seen)
    )
    assert (await cluster.run("pools", "-o", "name")).stdout.split() == [
        "gpupool.gpu.deckhouse.io/a",
        "gpupool.gpu.deckhouse.io/b",
    ]


async def test_a_change_draws_the_table_again_and_an_interrupt_ends_it(cluster: ListedCluster):
    changed = json.loads(json.dumps(cluster.objects[0]))
    changed["status"]["phase"] = "Maintenance"
    answer_of = cluster.api.always
    assert callable(answer_of)
    watches = 0

    def answer(seen: object) -> object:
        nonlocal watches
        if "watch" not in seen.query:  # type: ignore[attr-defined]
            return answer_of(seen)  # type: ignore[arg-type]
        if seen.path.endswith("gpupools"):  # type: ignore[attr-defined]
            watches += 1
            if watches == 1:
                cluster.objects[0] = changed
                return Stream([event("BOOKMARK", {}), event("MODIFIED", changed)])
        return Stream([])

    cluster.api.always = answer  # type: ignore[assignment]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", RUN_AND_INTERRUPT, cluster.api.url),
        env=cluster.environment(),
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(120):
        printed, _ = await process.communicate()
    text = printed.decode()
    assert text.index("Ready") < text.index("Maintenance")
    assert process.returncode == ANSWERED


RUN_AND_INTERRUPT = """
import os, signal, subprocess, sys
# A shell that runs this in the background has it ignored, and programs inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
command = [sys.executable, "-m", "kubectl_gpu", "pools", "-w", "--server", sys.argv[1]]
plugin = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
for line in plugin.stdout:
    print(line, end="", flush=True)
    if "Maintenance" in line:
        plugin.send_signal(signal.SIGINT)
sys.exit(plugin.wait())
"""
