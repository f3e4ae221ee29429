"""Mutate and validate over TLS on 64 keep-alive connections, beside a trivial handler.

Every request is another pod, every answer a hold: units are taken, and given back five seconds later
because no watch shows the pod, as after a quota's refusal. So the ledger is as busy as it gets.
"""

import base64
import itertools
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from api.names import RESERVATION_ANNOTATION
from tests.bench import world
from tests.bench.processes import make_certificates, served
from tests.bench.report import Result, in_ms, rss_mib
from tests.bench.wire import connect, flood, request_bytes

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator

CONNECTIONS = 64
REQUESTS = 30_000
NODES = 8_000
SLICES = 16
"""512,000 slices: more than requests in the five seconds that an unseen hold lasts."""
ECHO_BYTES = 1_200


async def measure() -> list[Result]:
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        context = make_certificates(directory)
        with served(directory, "--echo") as (echo_port, _):
            echo_times, echo_s = await flood(echo_port, context, _echoes(REQUESTS), CONNECTIONS)
        echo_rate = REQUESTS / echo_s
        options = ("--nodes", str(NODES), "--slices", str(SLICES))
        with served(directory, *options) as (port, pid):
            await _check(port, context)
            await flood(port, context, _mutations(2_000, "warm"), CONNECTIONS)
            times, seconds = await flood(port, context, _mutations(REQUESTS, "load"), CONNECTIONS)
            rate = REQUESTS / seconds
            memory = rss_mib(pid)
    p50, p99 = in_ms(times)
    echo_p50, echo_p99 = in_ms(echo_times)
    return [
        Result(
            subject="admission",
            case=f"trivial handler, {CONNECTIONS} connections",
            p50_ms=echo_p50,
            p99_ms=echo_p99,
            rate_per_s=echo_rate,
        ),
        Result(
            subject="admission",
            case=f"mutate, {CONNECTIONS} connections, a hold each",
            p50_ms=p50,
            p99_ms=p99,
            rate_per_s=rate,
            echo_p50_ms=echo_p50,
            ratio=rate / echo_rate,
            rss_mib=memory,
            aim="≥ 6,000/s",
        ),
    ]


def _review(name: str, units: int = 1) -> dict[str, Any]:
    pod = world.a_pod(name, "slices", units)
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": f"request-{name}",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "namespace": "ml-team",
            "operation": "CREATE",
            "userInfo": {
                "username": "system:serviceaccount:kube-system:replicaset-controller",
                "groups": ["system:serviceaccounts", "system:authenticated"],
            },
            "object": pod,
            "oldObject": None,
            "dryRun": False,
            "options": {"apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions"},
        },
    }


def _mutations(count: int, prefix: str) -> "Iterator[bytes]":
    """Requests that differ in name and uid, encoded as they are sent."""
    mark = b"0000000"
    template = request_bytes(
        "/mutate/pods", msgspec.json.encode(_review(f"{prefix}-{mark.decode()}"))
    )
    for number in range(count):
        yield template.replace(mark, b"%07d" % number)


def _echoes(count: int) -> "Iterator[bytes]":
    body = msgspec.json.encode(_review("echo-0000000"))
    return itertools.repeat(request_bytes(f"/echo/{ECHO_BYTES}", body), count)


async def _check(port: int, context: "ssl.SSLContext") -> None:
    """Assert that an answer is what it should be before any is timed."""
    connection = await connect(port, context)
    answer = msgspec.json.decode(
        await connection.send(
            request_bytes("/mutate/pods", msgspec.json.encode(_review("first", 2)))
        )
    )["response"]
    assert answer["allowed"], answer
    assert answer["uid"] == "request-first"
    patch = msgspec.json.decode(base64.b64decode(answer["patch"]))
    escaped = RESERVATION_ANNOTATION.replace("/", "~1")
    notes = [
        step["value"][RESERVATION_ANNOTATION] if isinstance(step["value"], dict) else step["value"]
        for step in patch
        if escaped in step["path"] or step["path"] == "/metadata/annotations"
    ]
    note = msgspec.json.decode(notes[0])
    assert len({unit.split("::")[0] for unit in note["devices"]["main"]}) == 2, "on distinct cards"
    denied = msgspec.json.decode(
        await connection.send(
            request_bytes("/mutate/pods", msgspec.json.encode(_review("huge", 9_999)))
        )
    )["response"]
    assert not denied["allowed"]
    assert "9999" in denied["status"]["message"]
    connection.close()
