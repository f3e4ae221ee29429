"""A dump through the real kubectl stands for its cluster: every verb answers from it as from the API server."""

import json
from pathlib import Path

import pytest

from kubectl_gpu.exit_codes import ANSWERED, MISUSED, NO, UNREADABLE
from tests.support.canned_api import Json
from tests.support.plugin_cluster import ListedCluster

VERBS = (
    ("pools",),
    ("nodes",),
    ("nodes", "-l", "kubernetes.io/hostname=gpu-1"),
    ("who", "-A"),
    ("who", "--pool", "training"),
    ("why", "big", "-n", "ml-team"),
    ("why", "-A"),
    ("whatif", "--pool", "training", "--units", "1", "--times", "9"),
    ("check",),
)


@pytest.fixture
async def dump(cluster: ListedCluster) -> Path:
    cluster.answers["/version"] = Json({"gitVersion": "v1.36.3"})
    path = cluster.directory / "f.tgz"
    done = await cluster.run("dump", "-o", str(path))
    assert (done.returncode, done.stderr) == (ANSWERED, "")
    assert done.stdout.startswith(f"{path}: ")
    return path


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
async def test_a_verb_answers_from_a_dump_as_from_its_cluster(
    verb: tuple[str, ...], cluster: ListedCluster, dump: Path
):
    of_cluster = await cluster.run(*verb, "-o", "json")
    read = len(cluster.api.seen)
    of_dump = await cluster.run_bare(*verb, "-o", "json", "--from", str(dump), PATH="/nowhere")
    assert of_cluster.stderr == ""
    # Of nodes' CPU and memory a dump knows too little for a remedy, and says so.
    assert of_dump.stderr.startswith("kubectl gpu: partial: a dump has pods of pools alone") is (
        verb[0] == "why"
    )
    assert verb == ("check",) or of_dump.returncode == of_cluster.returncode
    assert comparable(of_dump.stdout) == comparable(of_cluster.stdout)
    assert len(cluster.api.seen) == read


def comparable(text: str) -> object:
    """Return a document without what time and place of reading decide."""
    ignored = {
        "remedies",
        "cluster",
        "partial",
        "waitedS",
        "since",
        "origin",
        "readFrom",
        "age",
        "waited",
    }

    def without(value: object) -> object:
        if isinstance(value, dict):
            return {key: without(item) for key, item in value.items() if key not in ignored}
        return [without(item) for item in value] if isinstance(value, list) else value

    found = json.loads(text)
    if found["kind"] == "CheckReport":
        # Lists of kinds that this API server does not have are missing in the dump for that reason.
        found["isGood"] = None
        found["items"] = [item for item in found["items"] if item["section"] != "control plane"]
    return without(found)


async def test_a_dump_is_read_where_no_cluster_can_be(cluster: ListedCluster, dump: Path):
    done = await cluster.run_bare("version", "--from", str(dump))
    assert done.returncode == ANSWERED
    assert "v1.36.3" in done.stdout


async def test_a_dump_does_not_change(cluster: ListedCluster, dump: Path):
    done = await cluster.run_bare("pools", "-w", "--from", str(dump))
    assert done.returncode == MISUSED
    assert done.stderr == ("kubectl gpu: --watch goes with a cluster: a dump does not change\n")


async def test_a_dump_that_cannot_be_written_is_one_line(cluster: ListedCluster):
    done = await cluster.run("dump", "-o", "/nonexistent/f.tgz")
    assert done.returncode == UNREADABLE
    assert done.stderr.startswith("kubectl gpu: dump /nonexistent/f.tgz cannot be written: ")
    assert done.stderr.count("\n") == 1


async def test_what_a_user_may_not_read_is_missing_in_the_dump(cluster: ListedCluster):
    cluster.forbidden = {"pods", "nodes"}
    path = cluster.directory / "f.tgz"
    done = await cluster.run("dump", "-o", str(path))
    assert done.returncode == ANSWERED
    assert "without lists/pods.core.json: " in done.stdout
    assert "cannot list resource" in done.stdout
    of_dump = await cluster.run_bare("who", "-A", "--from", str(path))
    assert of_dump.returncode == UNREADABLE
    assert f"dump {path} has no pods: " in of_dump.stderr
    assert "cannot list resource" in of_dump.stderr


async def test_without_pools_there_is_no_dump(cluster: ListedCluster):
    cluster.forbidden = {"gpupools"}
    done = await cluster.run("dump", "-o", str(cluster.directory / "f.tgz"))
    assert done.returncode == UNREADABLE
    assert not (cluster.directory / "f.tgz").exists()


async def test_a_check_of_a_cluster_without_the_control_plane_says_no(cluster: ListedCluster):
    cluster.not_served = {"gpupools", "gpudevices", "gpunodeinventories"}
    done = await cluster.run("check")
    assert (done.returncode, done.stderr) == (NO, "")
    assert "× gpupools: " in done.stdout  # noqa: RUF001
    assert "do: install the control plane" in done.stdout


async def test_pre_asks_for_rights_and_no_dump_has_them(cluster: ListedCluster, dump: Path):
    done = await cluster.run_bare("check", "--pre", "--from", str(dump))
    assert done.returncode == MISUSED
    assert "--pre asks a cluster" in done.stderr


async def test_names_are_completed_from_the_cluster(cluster: ListedCluster):
    done = await cluster.run_bare("__complete", "why", f"--server={cluster.api.url}", "-A", "tr")
    assert done.stdout == "train-a\ntrain-b\n:4\n"


REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


@pytest.mark.parametrize("allowed", [True, False])
async def test_pre_asks_the_api_server_for_rights(allowed: bool, cluster: ListedCluster):
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    cluster.answers[REVIEWS] = Json(review | {"status": {"allowed": allowed}}, status=201)
    done = await cluster.run("check", "--pre", "-o", "json")
    assert done.stderr == ""
    levels = {
        item["level"] for item in json.loads(done.stdout)["items"] if item["section"] == "rights"
    }
    assert levels == {"Good" if allowed else "Fault"}


async def test_rights_that_cannot_be_asked_for_are_one_line(cluster: ListedCluster):
    done = await cluster.run("check", "--pre")
    assert done.returncode == UNREADABLE
    assert done.stderr.startswith("kubectl gpu: kubectl auth can-i create ")
    assert done.stderr.count("\n") == 1
