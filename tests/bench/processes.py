"""Child processes of a benchmark, their certificates, and a client's TLS."""

import contextlib
import datetime as dt
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

from certs.bundle import Bundle, Requirements
from certs.renewing import renew
from certs.tls import client_context
from certs.validity import RenewalNeeded, needs_renewal

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator
    from pathlib import Path


def make_certificates(directory: "Path") -> "ssl.SSLContext":
    """Write tls.crt, tls.key and ca.crt; return the TLS of a client that may call the extender."""
    wanted = Requirements.for_service("bench", "bench", extra_ip_addresses=["127.0.0.1"])
    now = dt.datetime.now(dt.UTC)  # noqa: TID251  # a benchmark's own clock
    empty = Bundle.from_secret({})
    needed = needs_renewal(empty, wanted, now)
    assert isinstance(needed, RenewalNeeded)
    bundle = renew(empty, needed, wanted=wanted, now=now)
    (directory / "ca.crt").write_bytes(bundle.trust_pem)
    (directory / "tls.crt").write_bytes(bundle.serving.certificate_pem)
    (directory / "tls.key").write_bytes(bundle.serving.key_pem)
    return client_context(bundle.trust_pem, bundle.client)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def served(directory: "Path", *options: str) -> "Iterator[tuple[int, int]]":
    """Run `tests.bench.served`; yield its port and pid."""
    port = free_port()
    command = [sys.executable, "-m", "tests.bench.served", "--port", str(port)]
    command += ["--certificates", str(directory), *options]
    with (directory / f"served-{port}.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if line != "ready\n":
                tail = (directory / f"served-{port}.log").read_text(encoding="utf-8")[-2000:]
                raise RuntimeError(f"the measured process did not start:\n{tail}")
            yield port, process.pid
        finally:
            process.kill()
            process.wait()
