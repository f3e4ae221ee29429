"""Real registries on free ports of loopback, with TLS: Debian's docker-registry, and one with the referrers API.

docker-registry knows users by htpasswd or asks for tokens; the other one, which keeps everything in memory, knows
one user. Their content goes with the run.
"""

import base64
import datetime as dt
import json
import secrets
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import aiohttp
import yaml
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from tests.support import ports
from tests.support.self_signed import SelfSigned, self_signed, serving_tls

if TYPE_CHECKING:
    from types import TracebackType

    from tests.cluster.environment.processes import ChildProcess, Run

USER, PASSWORD = "puller", "secret-word"
_HTPASSWD = f"{USER}:$2b$05$zPSXgxXETXBY/bp76SnxO.uWLby0YLDxB3BhxtZyfO1UtMRVRqdrW\n"
"""The password's bcrypt, the only form that docker-registry accepts."""
_READY_S = 120
_SERVICE, _ISSUER = "registry.tests", "tests"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningRegistry:
    """One that answers."""

    host: str
    """`127.0.0.1:<port>`."""
    ca_file: Path
    process: "ChildProcess"

    async def restart(self) -> None:
        """Kill it and start it again; returns when it answers."""
        self.process.kill9()
        await _start(self)


async def start_docker_registry(
    run: "Run",
    program: Path,
    *,
    token_server: "TokenServer | None" = None,
    is_public: bool = False,
) -> RunningRegistry:
    """Start docker-registry with users of a file, with tokens of the server, or for everybody."""
    directory, port, files = _prepare(run)
    auth: dict[str, Any] = {}
    if token_server is not None:
        auth = {"token": token_server.registry_settings()}
    elif not is_public:
        htpasswd = directory / "htpasswd"
        htpasswd.write_text(_HTPASSWD, encoding="utf-8")
        auth = {"htpasswd": {"realm": "tests", "path": str(htpasswd)}}
    configuration = directory / "config.yml"
    settings = {
        "version": 0.1,
        "log": {"level": "info"},
        "storage": {"filesystem": {"rootdirectory": str(directory / "data")}},
        "http": {
            "addr": f"127.0.0.1:{port}",
            "tls": {"certificate": files.certificate, "key": files.key},
        },
        **({"auth": auth} if auth else {}),
    }
    configuration.write_text(yaml.safe_dump(settings), encoding="utf-8")
    process = run.child(f"docker-{directory.name}", [str(program), "serve", str(configuration)])
    return await _started(process, port, files)


async def start_referrers_registry(run: "Run", program: Path) -> RunningRegistry:
    """Start the registry with the referrers API, for one user."""
    directory, port, files = _prepare(run)
    user = directory / "user"
    user.write_text(f"{USER}:{PASSWORD}", encoding="utf-8")
    arguments = {
        "listen": f"127.0.0.1:{port}",
        "tls-cert": files.certificate,
        "tls-key": files.key,
        "basic-auth-file": str(user),
    }
    process = run.child(
        f"referrers-{directory.name}",
        [str(program), *(f"-{name}={value}" for name, value in arguments.items())],
    )
    return await _started(process, port, files)


def _prepare(run: "Run") -> tuple[Path, int, SelfSigned]:
    directory = run.scratch / f"registry-{secrets.token_hex(3)}"
    directory.mkdir()
    # A name of its own: a client that trusts several finds the right one by it.
    return directory, ports.free_port(), self_signed(directory, directory.name)


async def _started(process: "ChildProcess", port: int, files: SelfSigned) -> RunningRegistry:
    started = RunningRegistry(
        host=f"127.0.0.1:{port}", ca_file=Path(files.certificate), process=process
    )
    await _start(started)
    return started


async def _start(registry: RunningRegistry) -> None:
    context = ssl.create_default_context(cafile=registry.ca_file)

    async def probe() -> str | None:
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session,
                session.get(f"https://{registry.host}/v2/", ssl=context) as response,
            ):
                return None if response.status in {200, 401} else f"status {response.status}"
        except (aiohttp.ClientError, OSError) as error:
            return repr(error)

    registry.process.start()
    await registry.process.wait_ready(probe, within=_READY_S)


@final
class TokenServer:
    """Gives the user tokens for what is asked, as distribution's docs/spec/auth/token.md has it.

    An async context; in the event loop of the test.
    """

    def __init__(self, directory: Path) -> None:
        self._files = self_signed(directory, "token-server")
        key = serialization.load_pem_private_key(Path(self._files.key).read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        self._key = key
        self.ca_file = Path(self._files.certificate)
        self.asked: list[str] = []
        """Scopes of all requests by the user."""
        self.url = f"https://127.0.0.1:{ports.free_port()}"

    def registry_settings(self) -> dict[str, str]:
        return {
            "realm": f"{self.url}/token",
            "service": _SERVICE,
            "issuer": _ISSUER,
            "rootcertbundle": self._files.certificate,
        }

    async def __aenter__(self) -> "TokenServer":
        self._runner = web.ServerRunner(web.Server(self._answer), shutdown_timeout=0.1)
        await self._runner.setup()
        host, _, port = self.url.removeprefix("https://").partition(":")
        await web.TCPSite(
            self._runner, host, int(port), ssl_context=serving_tls(self._files)
        ).start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: "TracebackType | None",
    ) -> None:
        await self._runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        if request.headers.get("Authorization") != aiohttp.encode_basic_auth(USER, PASSWORD):
            return web.Response(status=401, text="who is it?")
        scope = request.query["scope"]
        self.asked.append(scope)
        kind, name, actions = scope.split(":")
        access = [{"type": kind, "name": name, "actions": actions.split(",")}]
        return web.json_response({"token": self._token(access), "expires_in": 300})

    def _token(self, access: list[dict[str, Any]]) -> str:
        certificate = x509.load_pem_x509_certificate(Path(self._files.certificate).read_bytes())
        der = certificate.public_bytes(serialization.Encoding.DER)
        now = int(dt.datetime.now(dt.UTC).timestamp())  # noqa: TID251  # the registry reads the machine's
        header = {"typ": "JWT", "alg": "ES256", "x5c": [base64.b64encode(der).decode()]}
        claims = {
            "iss": _ISSUER,
            "sub": USER,
            "aud": _SERVICE,
            "exp": now + 300,
            "nbf": now - 60,
            "iat": now,
            "jti": secrets.token_hex(8),
            "access": access,
        }
        signed = (
            f"{_base64url(json.dumps(header).encode())}.{_base64url(json.dumps(claims).encode())}"
        )
        r, s = decode_dss_signature(self._key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{signed}.{_base64url(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"


def _base64url(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
