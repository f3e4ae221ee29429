"""What cannot be read ends in a sentence and a code, never in a traceback."""

import asyncio
import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from api.names import UNITS_CONDITION
from kubectl_gpu.exit_codes import ANSWERED, MISUSED, UNREADABLE
from tests.support.canned_api import Cut, Json, Reset, Text, a_list, status
from tests.support.cluster_objects import a_bound_pod_object
from tests.support.plugin_cluster import (
    ROOT,
    ListedCluster,
    a_waiting_pod,
    children_of,
    labelled,
    process_exists,
)
from tests.support.plugin_forks import Done
from tests.support.polling import until
from tests.support.ports import free_port

VERBS = (("pools",), ("nodes",), ("who",), ("why", "big", "-n", "ml-team"), ("why", "-A"))
POOLS = "/apis/gpu.deckhouse.io/v1alpha1/gpupools"


def sentence_of(done: Done, code: int = UNREADABLE) -> str:
    """Return the one line of the complaint."""
    assert done.returncode == code, (done.stdout, done.stderr)
    (line,) = done.stderr.splitlines()
    assert line.startswith("kubectl gpu: ")
    return line.removeprefix("kubectl gpu: ")


@pytest.mark.parametrize("verb", VERBS)
async def test_an_expired_login(cluster: ListedCluster, verb: tuple[str, ...]):
    cluster.api.always = Json(status(401, "Unauthorized", "Unauthorized"), status=401)
    assert sentence_of(await cluster.run(*verb)) == (
        "the API server accepts no credentials of this user (401 Unauthorized): log in again, or name"
        " another --context"
    )


@pytest.mark.parametrize("verb", VERBS)
async def test_an_api_server_that_is_away(cluster: ListedCluster, verb: tuple[str, ...]):
    url = f"http://127.0.0.1:{free_port()}"
    said = sentence_of(await cluster.run_bare(*verb, "--server", url))
    assert said.startswith("the API server cannot be reached: dial tcp 127.0.0.1:")


async def test_no_kubeconfig_at_all(cluster: ListedCluster):
    said = sentence_of(await cluster.run_bare("pools"))
    assert said.endswith("set KUBECONFIG, or name a file with --kubeconfig")


async def test_a_context_that_does_not_exist(cluster: ListedCluster):
    said = sentence_of(await cluster.run_bare("pools", "--context", "nowhere"))
    assert said == 'kubectl cannot be used: context "nowhere" does not exist'


async def test_a_malformed_kubeconfig(cluster: ListedCluster):
    (cluster.directory / "none").write_text("{[")
    said = sentence_of(await cluster.run_bare("pools"))
    assert said.startswith("kubectl cannot be used: error loading config file ")


async def test_no_kubectl_on_the_path(cluster: ListedCluster):
    said = sentence_of(await cluster.run_bare("pools", PATH="/nowhere"))
    assert said.startswith("kubectl is not on PATH: ")


async def test_no_directory_for_the_socket(cluster: ListedCluster):
    said = sentence_of(await cluster.run("pools", TMPDIR="/nowhere"))
    assert said.endswith("can be made in /nowhere: No such file or directory; set TMPDIR")


async def test_a_directory_whose_path_is_too_long_for_a_socket(
    cluster: ListedCluster, tmp_path: Path
):
    place = tmp_path / ("x" * 100)
    place.mkdir()
    done = await cluster.run("pools", TMPDIR=str(place))
    assert (done.returncode, done.stderr) == (ANSWERED, "")


@pytest.mark.parametrize("verb", [("pools",), ("nodes",), ("why", "big", "-n", "ml-team")])
async def test_a_cluster_without_our_kinds(cluster: ListedCluster, verb: tuple[str, ...]):
    cluster.not_served = {"gpupools", "gpudevices", "gpunodeinventories"}
    said = sentence_of(await cluster.run(*verb))
    assert said.startswith("the API server does not serve gpu")
    assert said.endswith("is the GPU control plane installed there?")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Reset(), "the API server cannot be reached: EOF"),
        (Text("<html>", status=502), "the API server cannot be reached: <html>"),
        (Text("no JSON", status=200), "the answer is no list of gpupools: JSON is malformed"),
        (Json([], status=200), "the answer is no list of gpupools: Expected `object`, got `array`"),
        (Json({}, status=500), "the API server answered 500 when asked for gpupools of"),
        (
            Json(status(429, "TooManyRequests", "slow down"), status=429),
            "the API server answered 429",
        ),
        (Cut(), "the connection ended before the answer of the API server did: run"),
    ],
)
async def test_an_answer_that_is_none(cluster: ListedCluster, answer: object, said: str):
    cluster.answers[POOLS] = answer  # type: ignore[assignment]
    assert sentence_of(await cluster.run("pools")).startswith(said)


async def test_a_pod_that_is_not_there(cluster: ListedCluster):
    said = sentence_of(await cluster.run("why", "gone", "-n", "ml-team"))
    assert said == 'there is no Pod gone: pods "gone" not found'


async def test_a_name_that_is_none(cluster: ListedCluster):
    said = sentence_of(await cluster.run("pools", "training", "no-such"), UNREADABLE)
    assert said == "there is no pool no-such; `kubectl gpu pools` lists the pools"


@pytest.mark.parametrize(
    ("pod", "state", "said"),
    [
        ({"containers": [{"name": "a"}]}, "AsksForNoUnits", "it asks for no unit of a pool"),
        (
            {"containers": [{"name": "a", "resources": {"limits": {
                "gpu.deckhouse.io/training": "1", "gpu.deckhouse.io/other": "1"}}}]},
            "Invalid",
            "it asks for units of several pools: gpu.deckhouse.io/other, gpu.deckhouse.io/training",
        ),
        (
            {"containers": [{"name": "a", "resources": {"limits": {
                "gpu.deckhouse.io/training": "1500m"}}}]},
            "Invalid",
            "container a asks for gpu.deckhouse.io/training: 1500m, which is no whole number",
        ),
    ],
)  # fmt: skip
async def test_a_pod_that_does_not_wait_for_a_pool(
    cluster: ListedCluster, pod: dict[str, object], state: str, said: str
):
    odd = a_waiting_pod("odd", 1)
    odd["spec"] = pod
    cluster.objects.append(odd)
    done = await cluster.run("why", "odd", "-n", "ml-team")
    assert done.returncode == ANSWERED, done.stderr
    assert done.stdout.splitlines()[0] == "ml-team/odd does not wait for units"
    assert said in done.stdout
    assert f'"state": "{state}"' in (await cluster.run("why", "odd", "-o", "json")).stdout


async def test_a_running_and_an_ended_pod(cluster: ListedCluster):
    done = await cluster.run("why", "train-b", "-n", "ml-team")
    assert "it is bound to node gpu-1 with GPU-gpu-1-0, GPU-gpu-1-1" in done.stdout
    ended = labelled(a_bound_pod_object("ended", "gpu-0", [0], pool="training"))
    ended["status"] = {"phase": "Succeeded"}
    cluster.objects.append(ended)
    done = await cluster.run("why", "ended", "-n", "ml-team")
    assert "it has ended, and has no units any more" in done.stdout


async def test_a_pool_that_does_not_exist(cluster: ListedCluster):
    cluster.objects.append(a_waiting_pod("lost", 1, pool="trainnig"))
    done = await cluster.run("why", "lost", "-n", "ml-team")
    assert "no GPUPool serves gpu.deckhouse.io/trainnig" in done.stdout


async def test_malformed_annotations_are_no_obstacle(cluster: ListedCluster):
    for number in range(2_000):
        pod = labelled(a_bound_pod_object(f"odd-{number}", "gpu-1", [3], pool="training"))
        pod["metadata"]["annotations"] = {
            "gpu.deckhouse.io/devices": "{" * (number % 50),
            "gpu.deckhouse.io/reservation": "\x00]",
        }
        cluster.objects.append(pod)
    for node in cluster.objects:
        if node["kind"] == "Node":
            node["status"]["allocatable"]["pods"] = "3000"
    cluster.objects.append({"kind": "Pod", "metadata": {"name": 7}})
    cluster.objects[-1]["metadata"]["labels"] = {"gpu.deckhouse.io/pool": "training"}
    done = await cluster.run("why", "big", "-n", "ml-team")
    assert (done.returncode, done.stderr) == (ANSWERED, "")
    assert "node runs a pod with unknown devices" in done.stdout
    assert done.stdout.splitlines()[-1] == "partial: 1 pods cannot be decoded and are left out"


async def test_who_may_not_read_the_pool_reads_the_leader_s_words(cluster: ListedCluster):
    cluster.forbidden = {"gpupools"}
    said = sentence_of(await cluster.run("why", "big", "-n", "ml-team"))
    assert "gpupools is forbidden" in said
    assert f"the pod has no condition {UNITS_CONDITION} either" in said
    big = next(object_ for object_ in cluster.objects if object_["metadata"]["name"] == "big")
    big["status"]["conditions"].append(
        {
            "type": UNITS_CONDITION,
            "status": "False",
            "reason": "UnitsFragmented",
            "message": "at most 3 on one node",
        }
    )
    done = await cluster.run("why", "big", "-n", "ml-team")
    assert done.returncode == ANSWERED
    assert done.stdout.splitlines()[1:] == [
        "  UnitsFragmented: at most 3 on one node",
        "kube-scheduler said: 0/3 nodes are available: 2 Insufficient gpu.deckhouse.io/training.",
        "Read from: API server, the pod alone: this user may not read its pool",
    ]
    done = await cluster.run("why", "-n", "ml-team", "-o", "wide")
    assert (
        done.stdout.splitlines()[1].split()[-6:]
        == ["UnitsFragmented", "at", "most", "3", "on", "one", "node"][-6:]
    )


async def test_without_nodes_the_answer_is_partial(cluster: ListedCluster):
    cluster.forbidden = {"nodes", "gpunodeinventories"}
    done = await cluster.run("nodes")
    assert done.stdout.splitlines()[1].split()[-2:] == ["Unknown", "training"]
    assert "partial: nodes may not be listed by this user: their states are unknown" in done.stdout
    done = await cluster.run("pools", "-o", "json")
    assert done.stderr.startswith("kubectl gpu: partial: nodes may not be listed by this user")


async def test_without_pods_pools_are_shown_and_no_fits(cluster: ListedCluster):
    cluster.forbidden = {"pods"}
    done = await cluster.run("pools")
    assert done.stdout.splitlines()[1].split()[-2:] == ["-", "Ready"]
    assert "partial: how many pods fit is not known: pods " in done.stdout


async def test_who_shows_the_own_namespace_where_others_may_not_be_read(cluster: ListedCluster):
    pods = a_list(*(object_ for object_ in cluster.objects if object_["kind"] == "Pod"))
    cluster.forbidden = {"pods"}
    cluster.answers["/api/v1/namespaces/default/pods"] = pods
    done = await cluster.run("who")
    assert done.stdout.splitlines()[1].split() == ["ml-team", "training", "3", "3", "0", "4"]
    assert done.stdout.splitlines()[-1].endswith("these are those of default")
    assert "may not be read" in sentence_of(await cluster.run("who", "-A"))


async def test_kubernetes_1_30_cannot_select_by_fields(cluster: ListedCluster):
    answer_of = cluster.api.always
    assert callable(answer_of)
    cluster.api.always = lambda seen: (
        Json(status(400, "BadRequest", "field label not supported"), status=400)
        if "fieldSelector" in seen.query
        else answer_of(seen)
    )
    done = await cluster.run("nodes", "--pool", "training", "-o", "name")
    assert (done.returncode, done.stdout) == (ANSWERED, "node/gpu-0\nnode/gpu-1\n")


async def test_a_selector_that_is_none(cluster: ListedCluster):
    cluster.answers[POOLS] = Json(status(400, "BadRequest", "unable to parse"), status=400)
    said = sentence_of(await cluster.run("pools", "-l", "a b"))
    assert said.endswith("cannot be selected so: unable to parse")


@pytest.mark.parametrize("verb", VERBS)
async def test_a_terminal_of_40_columns(cluster: ListedCluster, verb: tuple[str, ...]):
    """Through a real terminal: no line is longer."""
    arguments = [*verb, "--server", cluster.api.url]
    printed = await asyncio.to_thread(run_in_terminal, arguments, cluster, columns=40)
    assert printed.strip()
    too_long = [line for line in printed.splitlines() if len(line) > 40]
    assert too_long == []


async def test_a_reader_that_goes_away(cluster: ListedCluster):
    done = await cluster.run("nodes")
    assert len(done.stdout.splitlines()) > 2
    shell = f"{sys.executable} -m kubectl_gpu nodes --server {cluster.api.url} 2>errors | head -1"
    process = await asyncio.create_subprocess_shell(
        shell.replace("errors", str(cluster.directory / "errors")),
        cwd=ROOT,
        env=cluster.environment(),
        stdout=asyncio.subprocess.PIPE,
    )
    printed, _ = await process.communicate()
    assert printed.decode().startswith("NODE ")
    assert (cluster.directory / "errors").read_text() == ""


async def test_nothing_is_left_behind(cluster: ListedCluster):
    await cluster.run("pools")
    await cluster.run_bare("pools", "--context", "nowhere")
    assert list(cluster.directory.glob("kubectl-gpu-*")) == []


@pytest.mark.parametrize("arguments", [("pols",), ("pools", "--bad"), (), ("why", "a", "-A"),
                                       ("pools", "-w", "-o", "json"), ("who", "-A", "-n", "x")])  # fmt: skip
async def test_a_command_line_that_cannot_be_used(
    cluster: ListedCluster, arguments: tuple[str, ...]
):
    done = await cluster.run_bare(*arguments)
    assert done.returncode == MISUSED
    assert cluster.reads() == []
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
async def test_a_plugin_that_is_ended_ends_kubectl(cluster: ListedCluster, ending: signal.Signals):
    plugin = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "kubectl_gpu", "pools", "-w", "--server", cluster.api.url),
        cwd=ROOT,
        env=cluster.environment(),
        stdout=asyncio.subprocess.PIPE,
    )
    assert plugin.stdout is not None
    assert (await plugin.stdout.readline()).startswith(b"POOL ")
    (kubectl,) = children_of(plugin.pid)
    plugin.send_signal(ending)
    if ending is signal.SIGKILL:
        assert await plugin.wait() == -ending
        await until(lambda: not process_exists(kubectl))
        return
    assert await plugin.wait() == 128 + ending
    assert not process_exists(kubectl)
    assert list(cluster.directory.glob("kubectl-gpu-*")) == []


def run_in_terminal(arguments: list[str], cluster: ListedCluster, *, columns: int) -> str:
    """Run the plugin with a pseudo-terminal as its output."""
    primary, secondary = pty.openpty()
    fcntl.ioctl(secondary, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with subprocess.Popen(
        [sys.executable, "-m", "kubectl_gpu", *arguments],
        cwd=ROOT,
        env=cluster.environment(NO_COLOR="1"),
        stdout=secondary,
    ):
        os.close(secondary)
        return b"".join(_read_until_closed(primary)).decode()


def _read_until_closed(descriptor: int) -> Iterator[bytes]:
    while True:
        try:
            piece = os.read(descriptor, 65_536)
        except OSError:  # Linux: the other end is closed
            piece = b""
        if not piece:
            os.close(descriptor)
            return
        yield piece
