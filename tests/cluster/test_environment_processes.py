"""The processes of the cluster tests start, stop and end as promised, whatever ends the run."""

import asyncio
import json
import os
import signal
import sys

import pytest

from tests.cluster.environment import (
    binaries,
    credentials,
    failure_logs,
    polling,
    processes,
    server_process,
)
from tests.support import ports
from tests.support.plugin_cluster import process_exists

STAND_IN = """
import http.server, json, ssl, sys, yaml
settings = yaml.safe_load(open(sys.argv[3]))
asked = 0
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        global asked
        asked += 1
        ready = asked > 2 and self.path == "/readyz"
        self.send_response(200 if ready or self.path == "/livez" else 503)
        self.end_headers()
    def log_message(self, *args):
        print(json.dumps({"event": "asked", "path": self.path}), flush=True)
server = http.server.HTTPServer(("127.0.0.1", settings["port"]), Answer)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(settings["certificate"], settings["key"])
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"""
"""A server that is ready from the third question on."""

SESSION = """
import pathlib, signal, sys, time
from tests.cluster.environment import processes
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job begins with it ignored
run = processes.Run(pathlib.Path(sys.argv[1]))
child = run.child("orphan", ["bash", "-c", "trap '' INT TERM; sleep 600; sleep 600"])
child.start()
print(child.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture
def own_run(tmp_path):
    with processes.Run(tmp_path / "runs") as opened:
        yield opened


@pytest.fixture
def stand_in(own_run, tmp_path):
    keys = credentials.Credentials(tmp_path / "keys", plain_users=())
    port = ports.free_port()
    return server_process.ServerProcess(
        own_run,
        settings={
            "port": port,
            "certificate": str(keys.serving.certificate),
            "key": str(keys.serving.key),
        },
        kubeconfig=tmp_path / "unused",
        port=port,
        command=[sys.executable, "-c", STAND_IN],
    )


async def test_server_is_started_when_it_says_ready_and_not_before(stand_in):
    await stand_in.start()
    asked = [line["path"] for line in stand_in.logs() if line.get("event") == "asked"]
    assert asked == ["/readyz"] * 3


async def test_killed_server_starts_again_on_its_port(stand_in):
    await stand_in.start(until="/livez")
    stand_in.kill9()
    assert stand_in.process.returncode == -signal.SIGKILL
    await stand_in.start(until="/livez")
    assert stand_in.process.running


async def test_restarted_server_is_another_process(stand_in):
    await stand_in.start(until="/livez")
    before = stand_in.process.pid
    await stand_in.restart(until="/livez")
    assert stand_in.process.pid != before
    assert await stand_in.terminate() == -signal.SIGTERM
    assert not stand_in.process.running


async def test_server_that_is_never_ready_fails_with_its_answer_and_its_log(stand_in):
    await stand_in.start(until="/livez")
    with pytest.raises(processes.NotReadyError, match=r"/nowhere said 503[\s\S]*asked"):
        await stand_in.wait_for("/nowhere", within=0)


async def test_paused_server_does_not_answer_and_can_still_be_terminated(stand_in):
    await stand_in.start()
    stand_in.process.pause()
    answer = polling.https_probe(f"{stand_in.url}/readyz", ca_file=None, timeout_s=0.3)
    assert "TimeoutError" in (await answer() or "")
    assert await stand_in.terminate() == -signal.SIGTERM


async def test_server_that_ends_at_once_fails_with_its_own_words(control_plane):
    server = server_process.ServerProcess(
        control_plane.run,
        settings={"no-such-setting-of-ours": True},
        kubeconfig=control_plane.kubeconfig(),
        port=ports.free_port(),
        name="server-that-fails",
    )
    with pytest.raises(processes.ProcessDiedError, match="server-that-fails ended with status"):
        await server.start()


def test_log_lines_of_the_server_are_parsed_and_others_are_kept(stand_in):
    stand_in.process.log_path.write_text('{"event": "ready"}\nTraceback\n', encoding="utf-8")
    assert stand_in.logs() == [{"event": "ready"}, {"unparsed": "Traceback"}]


async def test_awaited_condition_that_never_comes_fails_with_what_was_seen():
    with pytest.raises(AssertionError, match=r"within 0\.05 s: the sun; last seen: 0"):
        await polling.eventually(lambda: 0, what="the sun", within=0.05, every=0.01)


async def test_terminated_process_takes_its_descendants_with_it(own_run):
    # A background job of a non-interactive bash ignores SIGINT, and this one SIGTERM as well.
    script = "(trap '' TERM; sleep 600; sleep 600) & echo $!; wait"
    parent = own_run.child("parent", ["bash", "-c", script])
    parent.start()
    descendant = int(await polling.eventually(parent.logs, what="the pid"))
    assert process_exists(descendant)

    await parent.terminate()

    await polling.eventually(lambda: not process_exists(descendant), what="its end")


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
async def test_no_process_outlives_a_run_that_is_ended_by(ending, tmp_path):
    session = await asyncio.create_subprocess_exec(
        *[sys.executable, "-c", SESSION, str(tmp_path)],
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(binaries.ROOT)},
    )
    assert session.stdout is not None
    orphan = int(await session.stdout.readline())
    assert process_exists(orphan)

    session.send_signal(ending)
    await session.communicate()

    await polling.eventually(lambda: not process_exists(orphan), what="its end")


def test_only_the_latest_runs_are_kept(tmp_path):
    for day in range(10, 30):
        (tmp_path / f"202601{day}T000000-999999999").mkdir()
    with processes.Run(tmp_path) as run:
        kept = sorted(entry.name for entry in tmp_path.iterdir())
        assert kept[-1] == run.directory.name
        assert kept[:-1] == [f"202601{day}T000000-999999999" for day in range(21, 30)]


def test_a_failure_shows_what_was_logged_meanwhile(tmp_path):
    ours, other = tmp_path / "server.log", tmp_path / "kubelet.log"
    ours.write_text(json.dumps({"level": "error", "event": "of a test before"}) + "\n")
    before = failure_logs.sizes(tmp_path)
    assert failure_logs.logged_since(tmp_path, before) == ""

    infos = [json.dumps({"level": "info", "event": f"step {number}"}) for number in range(99)]
    warning = json.dumps({"level": "warning", "event": "write refused"})
    with ours.open("a") as log:
        log.write("\n".join([warning, *infos, "a traceback", "{", '"a string"', ""]))
    other.write_text("I1126 20:01:48 a line of klog\n")
    assert failure_logs.logged_since(tmp_path, before).splitlines() == [
        "server.log, 103 lines:",
        warning,
        *infos[-3:],
    ]

    with ours.open("a") as log:
        log.write(f"{warning}\n" * 50)
    assert failure_logs.logged_since(tmp_path, before).count("write refused") == 12
