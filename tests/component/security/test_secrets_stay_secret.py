"""A whole run of the process at debug level: no key and no token in what it logs, answers or refuses."""

import base64
import secrets
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import msgspec
import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric import ec

from certs.bundle import SERVING_KEY, Bundle
from cli.render import RenderTarget
from kube.client import KubeClient
from kube.config.connection import StaticConnection
from kube.resources import SECRETS
from manifests import constants
from manifests.example_files import example_text
from server.reservations.signer import KEY
from simulator.apiserver.server import InMemoryApiServer
from simulator.apiserver.webhooks.chain import User
from tests.component.server.test_process import a_process, end_of, settings_file
from tests.support.loop_clock import LoopClock
from tests.support.polling import until_async
from tests.support.reviews import a_pod_object, a_review
from tests.support.running_server import (
    ADMIN_TOKEN,
    SERVER_USER,
    Cluster,
    RunningServer,
    settings_for,
)
from tests.support.scheduling import binding_args
from tests.unit.certs.builders import pem_of

PATHS = (
    constants.MUTATE_PODS_PATH,
    constants.VALIDATE_PODS_PATH,
    constants.FILTER_PATH,
    constants.BIND_PATH,
)


class Tokens:
    """Words that occur nowhere else."""

    def __init__(self) -> None:
        self.api, self.extender, self.wrong, self.garbage = (
            f"token-{secrets.token_hex(12)}" for _ in range(4)
        )


def material_of(bundle: Bundle) -> Iterator[str]:
    """Yield each line of each key, as PEM has it and as a Secret's JSON has it."""
    for key in (bundle.authority_key_pem, bundle.serving.key_pem, bundle.client.key_pem):
        lines = key.decode().splitlines()
        assert len(lines) > 3
        yield from (line for line in lines if not line.startswith("-----"))
        yield base64.b64encode(key).decode()[40:120]


def kubeconfig_with(cluster: Cluster, token: str, folder: Path) -> str:
    content = yaml.safe_load(cluster.kubeconfig().read_text())
    content["users"][0]["user"]["token"] = token
    file = folder / "kubeconfig-with-token"
    file.write_text(yaml.safe_dump(content))
    return str(file)


async def call_everything(url: str, tokens: Tokens) -> str:
    """Ask rightly and wrongly; return all that was answered."""
    answers = []
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as session:
        for token in (tokens.extender, tokens.wrong):
            headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
            for path in PATHS:
                for body in (a_review(a_pod_object()), binding_args(), b"{", b'{"request": 1}'):
                    async with session.post(url + path, data=body, headers=headers) as reply:
                        answers.append(await reply.text())
        for path in (constants.METRICS_PATH, constants.READINESS_PATH, "/nowhere"):
            async with session.get(url + path) as reply:
                answers.append(await reply.text())
    return "\n".join(answers)


async def damage_the_secret(cluster: Cluster, tokens: Tokens) -> Bundle:
    """Put a key there that is none; return what is made instead."""
    before = await cluster.bundle()
    garbage = base64.b64encode(f"-----BEGIN PRIVATE KEY-----\n{tokens.garbage}\n".encode())
    await cluster.client.merge_patch(
        SECRETS,
        {"data": {SERVING_KEY: garbage.decode()}},
        name=constants.SERVING_SECRET,
        namespace=constants.DEFAULT_NAMESPACE,
    )

    async def is_renewed() -> bool:
        bundle = await cluster.bundle()
        return bundle.serving != before.serving and tokens.garbage.encode() not in (
            bundle.serving.key_pem
        )

    await until_async(is_renewed)
    return await cluster.bundle()


class _Secret(msgspec.Struct):
    data: dict[str, str]


async def reservation_key_of(cluster: Cluster) -> str:
    """Return the key that signs reservations, in base64."""
    secret = await cluster.client.get(
        SECRETS, _Secret, constants.RESERVATION_KEY_SECRET, namespace=constants.DEFAULT_NAMESPACE
    )
    return secret.data[KEY]


async def test_no_key_and_no_token_is_told_to_anybody(tmp_path: Path) -> None:
    tokens, clock = Tokens(), LoopClock()
    users = {
        ADMIN_TOKEN: User(name="kubernetes-admin", groups=("system:masters",)),
        tokens.api: User(name=SERVER_USER, groups=("system:serviceaccounts",)),
    }
    token_file = tmp_path / "token"
    token_file.write_text(tokens.extender)
    api = InMemoryApiServer(clock, tokens=users)
    async with api, KubeClient(StaticConnection(api.url, token=ADMIN_TOKEN), clock) as client:
        cluster = Cluster(api, client, tmp_path)
        await cluster.install()
        settings = settings_file(
            cluster,
            tmp_path,
            log_level="debug",
            kubeconfig=kubeconfig_with(cluster, tokens.api, tmp_path),
            extender={"token_file": str(token_file)},
        )
        probe = RunningServer(cluster, cluster.port, settings_for(cluster, cluster.port))
        async with a_process("serve", "--settings", settings) as process:
            await probe.until_ready()
            bundles = [await cluster.bundle()]
            answers = await call_everything(probe.url, tokens)
            bundles.append(await damage_the_secret(cluster, tokens))
            reservation_key = await reservation_key_of(cluster)
            process.terminate()
            status, out, err = await end_of(process)
    assert (status, out) == (0, "")
    assert "certificates renewed" in err
    assert "extender call refused" in err
    assert len(reservation_key) > 20
    hidden = [reservation_key, tokens.api, tokens.extender, tokens.wrong, tokens.garbage]
    for bundle in bundles:
        hidden += material_of(bundle)
    reported = err + answers
    assert [word for word in hidden if word in reported] == []


@pytest.mark.parametrize("target", [target.value for target in RenderTarget])
async def test_render_prints_no_key(target: str, tmp_path: Path) -> None:
    """Not even where it is told where a key lies."""
    key = pem_of(ec.generate_private_key(ec.SECP256R1()))
    file = tmp_path / "scheduler.key"
    file.write_bytes(key)
    pool = tmp_path / "pool.yaml"
    pool.write_text(example_text("pool-autoscaling"))
    settings = tmp_path / "settings.yaml"
    settings.write_text("device_plugin: {image: registry.example/gpu}\n")
    arguments = {
        RenderTarget.OPERANDS.value: ("--settings", str(settings)),
        RenderTarget.SCHEDULER_CONFIG.value: ("--client-key", str(file)),
        RenderTarget.NODEPOOL.value: ("--pool-file", str(pool)),
    }.get(target, ())
    async with a_process("render", target, *arguments) as process:
        status, out, err = await end_of(process)
    assert (status, err) == (0, "")
    assert "PRIVATE KEY" not in out
    assert key.decode().splitlines()[1] not in out
    assert "kind: Secret\n" not in out
