"""The way from a pod to the API server: which files, which token, and no library."""

import subprocess
import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from kube.client import KubeClient
from kube.config.connection import BadConfigurationError
from kube.config.service_account import ServiceAccount, ServiceAccountFiles, load_service_account
from kube.errors import Unauthorized
from kube.resources import NODES
from tests.support.canned_api import CannedApi, Json, status
from tests.support.loop_clock import LoopClock

pytestmark = pytest.mark.looptime

IN_POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


@pytest.fixture
def files(tmp_path: Path) -> ServiceAccountFiles:
    found = ServiceAccountFiles(token=tmp_path / "token", ca_file=tmp_path / "ca.crt")
    found.token.write_text("first\n")
    found.ca_file.write_text("not looked into here")
    return found


def project(volume: Path, number: int, token: str) -> None:
    """Write a version of the volume as kubelet does: a directory of its own, and one link swapped."""
    version = volume / f"..{number}"
    version.mkdir(parents=True)
    (version / "token").write_text(token)
    (version / "ca.crt").write_text("not looked into here")
    (volume / "..data_tmp").symlink_to(version.name)
    (volume / "..data_tmp").rename(volume / "..data")


def tokens(api: CannedApi) -> list[str]:
    return [seen.headers["Authorization"] for seen in api.seen]


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        pytest.param("10.0.0.1", "https://10.0.0.1:443", id="IPv4"),
        pytest.param("fd00::1", "https://[fd00::1]:443", id="IPv6"),
        pytest.param("kubernetes.default", "https://kubernetes.default:443", id="a name"),
    ],
)
def test_the_address_is_the_environments(files: ServiceAccountFiles, host: str, expected: str):
    account = load_service_account(IN_POD | {"KUBERNETES_SERVICE_HOST": host}, files)
    assert (account.host, account.ssl_ca_cert) == (expected, str(files.ca_file))


async def test_the_token_goes_out_without_the_files_newline(
    api: CannedApi, files: ServiceAccountFiles, clock: LoopClock
):
    api.always = Json({})
    async with KubeClient(ServiceAccount(api.url, files), clock) as client:
        await client.delete(NODES, "n")
    assert tokens(api) == ["Bearer first"]


async def test_a_token_that_kubelet_renewed_goes_out_with_the_next_request(
    api: CannedApi, tmp_path: Path, clock: LoopClock
):
    volume = tmp_path / "volume"
    project(volume, 1, "first")
    for name in ("token", "ca.crt"):
        (volume / name).symlink_to(f"..data/{name}")
    files = ServiceAccountFiles(token=volume / "token", ca_file=volume / "ca.crt")
    api.will_answer(Json(status(401, "Unauthorized"), status=401))
    api.always = Json({})
    async with KubeClient(ServiceAccount(api.url, files), clock) as client:
        with pytest.raises(Unauthorized):
            await client.delete(NODES, "n")
        project(volume, 2, "again")
        await client.delete(NODES, "n")
        await client.delete(NODES, "n")
    assert tokens(api) == ["Bearer first", "Bearer again", "Bearer again"]


async def test_a_token_that_is_gone_for_a_while_is_used_on_and_told_once(
    api: CannedApi, files: ServiceAccountFiles, clock: LoopClock
):
    api.always = Json({})
    account = ServiceAccount(api.url, files)
    with capture_logs() as logs:
        async with KubeClient(account, clock) as client:
            await client.delete(NODES, "n")
            files.token.unlink()
            await client.delete(NODES, "n")
            await client.delete(NODES, "n")
            files.token.write_text("back")
            await client.delete(NODES, "n")
            files.token.write_text("")
            await client.delete(NODES, "n")
    assert tokens(api) == ["Bearer first"] * 3 + ["Bearer back"] * 2
    reported = [line["error"] for line in logs]
    assert [str(files.token) in text for text in reported] == [True, True]
    assert ("cannot be read" in reported[0], "is empty" in reported[1]) == (True, True)


async def test_a_file_that_did_not_change_is_not_read_again(
    files: ServiceAccountFiles, monkeypatch: pytest.MonkeyPatch
):
    account = load_service_account(IN_POD, files)
    files.ca_file.unlink()

    def refuse(*_: object, **__: object) -> str:
        raise AssertionError("read again")

    monkeypatch.setattr(Path, "read_text", refuse)
    assert await account.get_api_key_with_prefix("BearerToken") == "Bearer first"


@pytest.mark.parametrize("missing", IN_POD)
def test_outside_of_a_pod_the_missing_variable_is_named(files: ServiceAccountFiles, missing: str):
    with pytest.raises(BadConfigurationError, match=f"{missing} is not set"):
        load_service_account(IN_POD | {missing: ""}, files)


@pytest.mark.parametrize("file", ["token", "ca_file"])
@pytest.mark.parametrize(
    ("content", "says"),
    [
        pytest.param(None, "cannot be read .No such file", id="missing"),
        pytest.param(b"\n", "is empty", id="empty"),
        pytest.param(b"\xff\xfe", "it is no text", id="no text"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_what_to_look_at(
    files: ServiceAccountFiles, file: str, content: bytes | None, says: str
):
    path: Path = getattr(files, file)
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BadConfigurationError, match=says) as caught:
        load_service_account(IN_POD, files)
    assert str(path) in str(caught.value)
    assert "automountServiceAccountToken" in str(caught.value)


def test_process_that_reads_no_kubeconfig_loads_no_kubernetes_library():
    program = (
        "import sys, kube.config.discovery, kube.client, kube.informer, kube.event_recorder;"
        "import agent.main, cli.main, demo.main, server.main;"
        "found = [name for name in sys.modules if name.startswith('kubernetes_asyncio')];"
        "print('loaded:', *found[:3])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("loaded:\n", "")
