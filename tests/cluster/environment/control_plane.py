"""etcd and kube-apiserver, unmodified, on free loopback ports.

Ports, certificates, tokens and data last as long as the `ControlPlane`, so that clients come back
after `restart_apiserver`. RBAC is on and so is the ServiceAccount admission plugin; service-account
tokens are real (TokenRequest). What is bent: etcd does not fsync, and nothing publishes endpoints
of the `kubernetes` Service, because a loopback address is not allowed there.
"""

import asyncio
import secrets
import shutil
import subprocess
from typing import TYPE_CHECKING, final

from tests.cluster.environment import (
    audit,
    client,
    credentials,
    kubeconfigs,
    polling,
    webhook_identity,
)
from tests.support import ports

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.cluster.environment import binaries, processes

ISSUER = "https://kubernetes.default.svc.cluster.local"

_ETCD_READY_S = 120
_APISERVER_READY_S = 120
"""2.6 s on an idle machine; a loaded CI machine gets all the time that is still sane."""

_MEMBER_FLAGS = ("--data-dir=", "--initial-advertise-peer-urls=", "--initial-cluster=")
_TOKEN_S = 365 * 24 * 3600
_BACKEND_BYTES = 8 * 1024**3
_AUDIT_MEGABYTES = 10_000
"""Beyond what any run writes: a rotated log would lose records."""


@final
class ControlPlane:
    """Lives in a `Run`, which kills it; `start` it once."""

    def __init__(
        self,
        run: "processes.Run",
        programs: "binaries.Binaries",
        *,
        plain_users: "Sequence[str]" = (),
        apiserver_flags: "Sequence[str]" = (),
    ) -> None:
        """`plain_users` get tokens and no rights; any other user gets a certificate on demand.

        `apiserver_flags` come after those that are always set.
        """
        self.run = run
        self.programs = programs
        self.port = ports.free_port()
        self.url = f"https://127.0.0.1:{self.port}"
        self.guarded_port = ports.free_port()
        """Webhooks at this port of 127.0.0.1 are called with a certificate of `kube-apiserver`."""
        self.credentials = credentials.Credentials(
            run.directory / "credentials", plain_users=plain_users
        )
        self._kubeconfigs: dict[tuple[str, frozenset[str]], Path] = {}
        self._etcd_url = f"http://127.0.0.1:{ports.free_port()}"
        self._etcd_data = run.scratch / "etcd"
        self._etcd_flags = self._etcd_argv()
        self.etcd = run.child("etcd", self._etcd_flags)
        audit_log = run.directory / "audit.json"
        self.apiserver = run.child(
            "kube-apiserver", [*self._apiserver_argv(audit_log), *apiserver_flags]
        )
        self.audit = audit.AuditLog(audit_log, self.kubeconfig)
        self.clients: list[processes.ChildProcess] = []
        """Components of Kubernetes, each of which keeps what it has read."""

    @property
    def ca_file(self) -> "Path":
        return self.credentials.ca_file

    def token(self, user: str = credentials.ADMIN) -> str:
        """Return the bearer token of a user that was declared beforehand."""
        tokens = self.credentials.users
        if user not in tokens:
            raise AssertionError(
                f"user {user} has no token (those that have: {', '.join(sorted(tokens))}); "
                "a kubeconfig with a certificate is made for any user"
            )
        return tokens[user]

    def kubeconfig(self, user: str = credentials.ADMIN, *, groups: "Sequence[str]" = ()) -> "Path":
        """Return the user's kubeconfig: with a token for a declared user, else with a certificate.

        `groups` always makes it a certificate, which carries them.
        """
        identity = (user, frozenset(groups))
        if identity not in self._kubeconfigs:
            self._kubeconfigs[identity] = self._write_kubeconfig(user, groups)
        return self._kubeconfigs[identity]

    async def service_account_kubeconfig(
        self, namespace: str, name: str, *, node: str = ""
    ) -> "Path":
        """Return a kubeconfig with a fresh token of an existing service account, which nobody renews.

        With `node` it is bound to that node and names it, as the token of a pod there does.
        """
        async with client.open_client(self.kubeconfig()) as api:
            bound = {"boundObjectRef": {"apiVersion": "v1", "kind": "Node", "name": node}}
            answer = await api.create(
                f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token",
                {
                    "apiVersion": "authentication.k8s.io/v1",
                    "kind": "TokenRequest",
                    "spec": {"expirationSeconds": _TOKEN_S, **(bound if node else {})},
                },
            )
        login = {"token": answer["status"]["token"]}
        return self._save(f"system:serviceaccount:{namespace}:{name}", login)

    async def start(self) -> None:
        """Start both; returns when the API server is ready."""
        self.etcd.start()
        ready = polling.https_probe(f"{self._etcd_url}/readyz", ca_file=None)
        await self.etcd.wait_ready(ready, within=_ETCD_READY_S)
        await self.start_apiserver()

    async def start_apiserver(self) -> None:
        self.apiserver.start()
        await self.apiserver.wait_ready(self.ready, within=_APISERVER_READY_S)

    async def stop_apiserver(self) -> None:
        """Stop it the orderly way; etcd keeps everything."""
        await self.apiserver.terminate()

    async def restart_apiserver(self) -> None:
        """Stop and start it on the same port with the same data; returns when it is ready."""
        await self.stop_apiserver()
        await self.start_apiserver()

    async def back_up(self, name: str) -> "Path":
        """Return a copy of etcd's data, made while both are stopped; they run again afterwards."""
        backup = self.run.scratch / name
        await self._stop()
        shutil.copytree(self._etcd_data, backup)
        await self.start()
        return backup

    async def restore(self, backup: "Path") -> None:
        """Go back to a copy of etcd's data; revisions go back too, and no client is told."""
        await self._stop()
        shutil.rmtree(self._etcd_data)
        shutil.copytree(backup, self._etcd_data)
        await self.start()

    async def restore_by(self, command: "Sequence[str]", backup: "Path") -> None:
        """Go back to a copy of etcd's data by a command of etcdutl, which may raise the revisions."""
        await self._stop()
        shutil.rmtree(self._etcd_data)
        # A copy has no checksum, which `etcdctl snapshot save` appends.
        snapshot = [str(backup / "member" / "snap" / "db"), "--skip-hash-check"]
        member = [flag for flag in self._etcd_flags if flag.startswith(_MEMBER_FLAGS)]
        await asyncio.to_thread(subprocess.run, [*command, *snapshot, *member], check=True)
        await self.start()

    async def restore_with_clients(self, backup: "Path") -> None:
        """Go back as docs/restore.md says: the components of Kubernetes that run are started again."""
        running = [process for process in self.clients if process.running]
        for process in running:
            process.kill9()
        await self.restore(backup)
        for process in running:
            process.start()

    async def _stop(self) -> None:
        await self.stop_apiserver()
        await self.etcd.terminate()

    async def ready(self) -> str | None:
        probe = polling.https_probe(
            f"{self.url}/readyz?verbose", ca_file=self.ca_file, token=self.token()
        )
        return await probe()

    def _write_kubeconfig(self, user: str, groups: "Sequence[str]") -> "Path":
        if not groups and user in self.credentials.users:
            return self._save(user, {"token": self.credentials.users[user]})
        pair = self.credentials.client_certificate(user, groups)
        return self._save(
            user, {"client-certificate": str(pair.certificate), "client-key": str(pair.key)}
        )

    def _save(self, user: str, login: dict[str, str]) -> "Path":
        stem = f"{user.replace(':', '-')}-{secrets.token_hex(3)}"
        return kubeconfigs.write_kubeconfig(
            self.run.directory / f"{stem}.kubeconfig",
            url=self.url,
            ca_file=self.ca_file,
            user=user,
            login=login,
        )

    def _etcd_argv(self) -> list[str]:
        peer_url = f"http://127.0.0.1:{ports.free_port()}"
        return [
            str(self.programs.etcd),
            f"--data-dir={self._etcd_data}",
            f"--listen-client-urls={self._etcd_url}",
            f"--advertise-client-urls={self._etcd_url}",
            f"--listen-peer-urls={peer_url}",
            f"--initial-advertise-peer-urls={peer_url}",
            f"--initial-cluster=default={peer_url}",
            f"--quota-backend-bytes={_BACKEND_BYTES}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        ]

    def _apiserver_argv(self, audit_log: "Path") -> list[str]:
        policy = self.run.directory / "audit-policy.yaml"
        policy.write_text(audit.POLICY, encoding="utf-8")
        key = self.credentials.service_account_key
        admission = webhook_identity.write_admission_configuration(
            self.run.directory,
            f"127.0.0.1:{self.guarded_port}",
            self.credentials.client_certificate("kube-apiserver", []),
        )
        kubelet_client = self.credentials.client_certificate("kube-apiserver", ["system:masters"])
        return [
            str(self.programs.kube_apiserver),
            f"--etcd-servers={self._etcd_url}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",
            f"--secure-port={self.port}",
            f"--tls-cert-file={self.credentials.serving.certificate}",
            f"--tls-private-key-file={self.credentials.serving.key}",
            f"--client-ca-file={self.ca_file}",
            f"--token-auth-file={self.credentials.token_file}",
            "--authorization-mode=Node,RBAC",
            f"--service-account-issuer={ISSUER}",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--allow-privileged=true",
            # `kubectl logs` and `exec`, where a node has a kubelet; its name is not in any DNS.
            "--kubelet-preferred-address-types=InternalIP",
            f"--kubelet-client-certificate={kubelet_client.certificate}",
            f"--kubelet-client-key={kubelet_client.key}",
            f"--admission-control-config-file={admission}",
            f"--audit-policy-file={policy}",
            f"--audit-log-path={audit_log}",
            f"--audit-log-maxsize={_AUDIT_MEGABYTES}",
            # Without it a stopping server serves its watches for 60 s more before it ends them.
            "--shutdown-watch-termination-grace-period=2s",
        ]
