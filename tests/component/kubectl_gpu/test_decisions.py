"""Decisions on devices: what is patched, by a dry run first, and what is refused with which words."""

import json

import pytest

from kubectl_gpu.exit_codes import ANSWERED, NO, UNREADABLE
from tests.support.canned_api import Json, status
from tests.support.plugin_cluster import ListedCluster

ASSIGNMENT = "gpu.deckhouse.io/assignment"
IGNORE = "gpu.deckhouse.io/ignore"


@pytest.fixture
def queue(cluster: ListedCluster) -> ListedCluster:
    """Devices of gpu-2 wait for a decision: the first between two pools, the others for one."""
    candidates = [
        {"pool": "training", "devices": [f"gpu-2-{number}" for number in range(4)]},
        {"pool": "inference", "devices": ["gpu-2-0"]},
    ]
    cluster.objects.append(
        {
            "kind": "GPUNodeInventory",
            "metadata": {"name": "gpu-2"},
            "status": {"pools": {"candidates": candidates}},
        }
    )
    return cluster


def patches(cluster: ListedCluster) -> list[tuple[str, bool, object]]:
    """Return device, whether it was a dry run, and metadata of every PATCH."""
    return [
        (seen.path.rpartition("/")[2], "dryRun" in seen.query, json.loads(seen.body)["metadata"])
        for seen in cluster.api.seen
        if seen.method == "PATCH"
    ]


async def test_devices_that_wait_are_listed_with_their_pools(queue: ListedCluster):
    done = await queue.run("approve")
    assert (done.returncode, done.stderr) == (ANSWERED, "")
    rows = [line.split() for line in done.stdout.splitlines()]
    assert [(row[0], row[1], row[3:]) for row in rows[1:]] == [
        ("gpu-2-0", "gpu-2", ["training,", "inference"]),
        *((f"gpu-2-{number}", "gpu-2", ["training"]) for number in (1, 2, 3)),
    ]


async def test_no_device_waits(cluster: ListedCluster):
    assert (await cluster.run("approve")).stdout == "No device waits for a decision.\n"


async def test_device_of_a_single_candidate_is_approved_after_a_dry_run(queue: ListedCluster):
    done = await queue.run("approve", "gpu-2-1")
    assert (done.returncode, done.stderr) == (ANSWERED, "")
    assert done.stdout == "gpu-2-1: approved for pool training\n"
    body = {"annotations": {ASSIGNMENT: "training"}}
    assert patches(queue) == [("gpu-2-1", True, body), ("gpu-2-1", False, body)]


async def test_dry_run_prints_the_patch_and_makes_none(queue: ListedCluster):
    done = await queue.run("approve", "gpu-2-1", "--dry-run")
    assert done.stdout.splitlines()[0] == (
        "dry run: PATCH /apis/gpu.deckhouse.io/v1alpha1/gpudevices/gpu-2-1"
        f' {{"metadata":{{"annotations":{{"{ASSIGNMENT}":"training"}}}}}}'
    )
    assert [is_dry for _, is_dry, _ in patches(queue)] == [True]


async def test_of_a_node_all_devices_are_decided_on_but_those_for_which_it_is_not_clear(
    queue: ListedCluster,
):
    done = await queue.run("approve", "gpu-2")
    assert done.returncode == ANSWERED
    assert "gpu-2-0 is left as it is: pools inference, training select it: name one" in done.stderr
    assert [name for name, is_dry, _ in patches(queue) if not is_dry] == [
        "gpu-2-1",
        "gpu-2-2",
        "gpu-2-3",
    ]


async def test_words_of_admission_are_those_of_the_refusal_and_no_device_changes(
    queue: ListedCluster,
):
    answer_of = queue.api.always
    assert callable(answer_of)

    def answer(seen):
        if seen.method == "PATCH" and seen.path.endswith("gpu-2-3"):
            text = 'admission webhook "devices" denied the request: pool not found'
            return Json(status(422, "Invalid", text), status=422)
        return answer_of(seen)

    queue.api.always = answer
    done = await queue.run("approve", "gpu-2", "no-such")
    assert (done.returncode, done.stdout) == (NO, "")
    assert done.stderr.endswith(
        'GPUDevice gpu-2-3 is not changed: admission webhook "devices" denied the request: pool not found\n'
    )
    assert all(is_dry for _, is_dry, _ in patches(queue))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(
            ("approve", "gpu-1-0", "other"),
            "gpu-1-0 is left as it is: it is in pool training (1 of 1 units are in use): `kubectl gpu move"
            " gpu-1-0 other`",
            id="in use",
        ),
        (("approve", "gpu-1-0", "training"), "it is in pool training already"),
        (("move", "gpu-1-0", "training"), "it is in pool training already"),
        (("move", "gpu-2-0", "other"), "it is in no pool: `kubectl gpu approve gpu-2-0 other`"),
        (("release", "gpu-2-0"), "it has no approval"),
        (("release", "gpu-0-0"), "takes it without approval: `kubectl gpu drain gpu-0-0`"),
    ],
)
async def test_decision_that_makes_no_sense_says_which_one_does(
    cluster: ListedCluster, arguments: tuple[str, ...], said: str
):
    done = await cluster.run(*arguments)
    assert (done.returncode, done.stdout) == (NO, "")
    assert said in done.stderr
    assert patches(cluster) == []


async def test_device_that_waits_for_something_else_says_for_what(queue: ListedCluster):
    queue.objects[-1]["status"] = {}
    device = next(item for item in queue.objects if item["metadata"]["name"] == "gpu-2-1")
    condition = {"type": "Assigned", "status": "False", "message": "it is faulted"}
    device["status"]["conditions"] = [condition]
    done = await queue.run("approve", "gpu-2-1")
    assert done.returncode == NO
    assert "gpu-2-1 is left as it is: it waits for no decision: it is faulted" in done.stderr


async def test_neither_device_nor_node(cluster: ListedCluster):
    done = await cluster.run("drain", "no-such")
    assert done.returncode == UNREADABLE
    assert "there is no device no-such, and none on a node of this name" in done.stderr


async def test_move_release_and_drain_say_what_becomes_of_the_device(cluster: ListedCluster):
    leaving = "leaves pool training once no pod uses it (1 of 1 units are in use)"
    moved = await cluster.run("move", "gpu-1-0", "other")
    assert moved.stdout == f"gpu-1-0: {leaving}, and joins pool other\n"
    drained = await cluster.run("drain", "gpu-1-0")
    assert drained.stdout == f"gpu-1-0: kept out of all pools: {leaving}\n"
    device = next(item for item in cluster.objects if item["metadata"]["name"] == "gpu-1-0")
    device["metadata"]["annotations"] = {ASSIGNMENT: "training"}
    released = await cluster.run("release", "gpu-1-0")
    assert released.stdout == f"gpu-1-0: no longer approved for pool training: {leaving}\n"
    assert [metadata for _, is_dry, metadata in patches(cluster) if not is_dry] == [
        {"annotations": {ASSIGNMENT: "other"}},
        {"labels": {IGNORE: "true"}},
        {"annotations": {ASSIGNMENT: None}},
    ]


async def test_drained_device_is_approved_again_and_drained_once(cluster: ListedCluster):
    device = next(item for item in cluster.objects if item["metadata"]["name"] == "gpu-2-0")
    device["metadata"]["labels"] = {IGNORE: "true"}
    assert "is out of all pools already" in (await cluster.run("drain", "gpu-2-0")).stderr
    await cluster.run("approve", "gpu-2-0", "training")
    assert patches(cluster)[-1][2] == {
        "annotations": {ASSIGNMENT: "training"},
        "labels": {IGNORE: None},
    }
