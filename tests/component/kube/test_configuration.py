"""Where the API server is found, and how tokens are kept fresh."""

from pathlib import Path

import pytest
import yaml

from kube.client import KubeClient
from kube.config.connection import BadConfigurationError
from kube.config.discovery import load_configuration
from kube.config.kubeconfig import load_kubeconfig
from kube.config.service_account import ServiceAccount, ServiceAccountFiles
from kube.errors import Unreachable
from kube.resources import NODES
from tests.support.canned_api import CannedApi, Json
from tests.support.loop_clock import LoopClock

pytestmark = pytest.mark.looptime


def write_kubeconfig(path: Path, *, token: str = "t1", server: str = "http://127.0.0.1:1") -> str:
    def named(kind: str, name: str, value: dict[str, str]) -> dict[str, object]:
        return {"name": name, kind: value}

    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "one",
                "clusters": [
                    named("cluster", "one", {"server": server}),
                    named("cluster", "two", {"server": "http://127.0.0.1:2"}),
                ],
                "users": [named("user", "me", {"token": token})],
                "contexts": [
                    named("context", "one", {"cluster": "one", "user": "me"}),
                    named("context", "two", {"cluster": "two", "user": "me"}),
                ],
            }
        )
    )
    return str(path)


@pytest.fixture
def service_account(tmp_path: Path) -> ServiceAccountFiles:
    (tmp_path / "token").write_text("projected-1\n")
    (tmp_path / "ca.crt").write_text("not read here")
    return ServiceAccountFiles(token=tmp_path / "token", ca_file=tmp_path / "ca.crt")


IN_CLUSTER = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


async def test_an_explicit_path_and_context_go_before_everything(
    tmp_path: Path, clock: LoopClock
) -> None:
    path = write_kubeconfig(tmp_path / "config")
    environ = {"KUBECONFIG": "/nowhere", **IN_CLUSTER}
    one = await load_configuration(clock, kubeconfig=path, environ=environ)
    two = await load_configuration(clock, kubeconfig=path, context="two", environ=environ)
    assert (one.host, two.host) == ("http://127.0.0.1:1", "http://127.0.0.1:2")


async def test_the_environment_goes_before_the_service_account(
    tmp_path: Path, clock: LoopClock
) -> None:
    path = write_kubeconfig(tmp_path / "config")
    environ = {"KUBECONFIG": f"/nowhere:{path}", **IN_CLUSTER}
    assert (await load_configuration(clock, environ=environ)).host == "http://127.0.0.1:1"


async def test_outside_of_a_pod_the_file_in_the_home_directory_is_used(
    tmp_path: Path, clock: LoopClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".kube").mkdir()
    write_kubeconfig(tmp_path / ".kube" / "config")
    assert (await load_configuration(clock, environ={})).host == "http://127.0.0.1:1"


async def test_in_a_pod_the_service_account_is_used(
    service_account: ServiceAccountFiles, clock: LoopClock
) -> None:
    configuration = await load_configuration(
        clock, environ=IN_CLUSTER, service_account=service_account
    )
    assert isinstance(configuration, ServiceAccount)
    assert configuration.host == "https://10.0.0.1:443"


async def test_a_rewritten_kubeconfig_is_read_within_a_minute(
    api: CannedApi, tmp_path: Path, clock: LoopClock
) -> None:
    path = write_kubeconfig(tmp_path / "config", token="old", server=api.url)
    configuration = await load_configuration(clock, kubeconfig=path, environ={})
    api.always = Json({})
    async with KubeClient(configuration, clock) as client:
        write_kubeconfig(tmp_path / "config", token="new", server=api.url)
        await client.delete(NODES, "n")
        clock.offset_s += 61
        await client.delete(NODES, "n")
        (tmp_path / "config").unlink()
        clock.offset_s += 61
        await client.delete(NODES, "n")
    tokens = [seen.headers["Authorization"] for seen in api.seen]
    assert tokens == ["Bearer old", "Bearer new", "Bearer new"]


async def test_credentials_that_cannot_be_had_are_a_definite_no(
    api: CannedApi, tmp_path: Path, clock: LoopClock
) -> None:
    path = write_kubeconfig(tmp_path / "config", server=api.url)
    configuration = await load_kubeconfig(path, None, clock)

    def failing(_: object) -> None:
        raise LookupError("no plugin")

    configuration.refresh_api_key_hook = failing
    async with KubeClient(configuration, clock) as client:
        with pytest.raises(Unreachable, match="no plugin") as caught:
            await client.delete(NODES, "n")
    assert caught.value.is_definite
    assert api.seen == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param(None, "no kubeconfig at", id="missing"),
        pytest.param("", "malformed", id="empty"),
        pytest.param(
            "{", "malformed: expected the node content, .*, line 1, column 2", id="no YAML"
        ),
        pytest.param("clusters: 5", "malformed: TypeError: 'int' object is", id="wrong type"),
        pytest.param("a: b", "malformed|Expected", id="something else"),
        pytest.param("[]", "malformed", id="a list"),
    ],
)
async def test_a_kubeconfig_that_cannot_be_used_is_named(
    tmp_path: Path, clock: LoopClock, text: str | None, says: str
) -> None:
    path = tmp_path / "config"
    if text is not None:
        path.write_text(text)
    with pytest.raises(BadConfigurationError, match=says) as caught:
        await load_configuration(clock, kubeconfig=str(path), environ={})
    assert "\n" not in str(caught.value)
    assert " object at 0x" not in str(caught.value)


async def test_an_unknown_context_is_named(tmp_path: Path, clock: LoopClock) -> None:
    path = write_kubeconfig(tmp_path / "config")
    with pytest.raises(BadConfigurationError, match="three"):
        await load_configuration(clock, kubeconfig=path, context="three", environ={})


async def test_a_pod_without_service_account_is_told_so(tmp_path: Path, clock: LoopClock) -> None:
    files = ServiceAccountFiles(token=tmp_path / "no", ca_file=tmp_path / "none")
    with pytest.raises(BadConfigurationError, match="none cannot be read"):
        await load_configuration(clock, environ=IN_CLUSTER, service_account=files)


async def test_loopback_is_never_asked_through_a_proxy(
    tmp_path: Path, clock: LoopClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy.example:3128")
    monkeypatch.delenv("no_proxy", raising=False)
    local = write_kubeconfig(tmp_path / "local")
    remote = write_kubeconfig(tmp_path / "remote", server="http://api.example:8080")
    assert (await load_configuration(clock, kubeconfig=local, environ={})).proxy is None
    configuration = await load_configuration(clock, kubeconfig=remote, environ={})
    assert configuration.proxy == "http://proxy.example:3128"
