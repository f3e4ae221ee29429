"""The API server's side of rotation: our Secrets, and caBundle in webhook configurations.

Needs get, create and patch of the Secrets, and get and patch of the configurations.
Only the fields in question are written: labels, foreign keys of the Secret and other fields of a
webhook stay as they are. The error of a failed write of the Secret holds only status, reason and fields,
since an admission plugin may put anything into its message.
"""

import base64
from typing import TYPE_CHECKING, Final, final

import msgspec

from api.meta import ObjectMeta
from certs.bundle import SERVING_CERTIFICATE, SERVING_KEY
from certs.errors import InjectionError, SecretConflictError, StoreUnavailableError
from certs.rotation import StoredSecret
from kube.errors import ApiError, Conflict, KubeError, NotFound, one_line
from kube.resources import (
    MUTATING_WEBHOOK_CONFIGURATIONS,
    SECRETS,
    VALIDATING_WEBHOOK_CONFIGURATIONS,
)
from manifests.constants import MUTATING_CONFIGURATION, VALIDATING_CONFIGURATION
from manifests.install.rbac import PolicyRule

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kube.client import KubeClient
    from kube.resources import Resource

RBAC: Final = tuple(
    PolicyRule(
        group="admissionregistration.k8s.io",
        resources=(resource,),
        verbs=("get", "patch"),
        names=(name,),
    )
    for resource, name in (
        ("mutatingwebhookconfigurations", MUTATING_CONFIGURATION),
        ("validatingwebhookconfigurations", VALIDATING_CONFIGURATION),
    )
)
SECRET_TYPE: Final = "kubernetes.io/tls"  # noqa: S105  # the name of a type
"""Demands two keys, and allows more."""
_DEMANDED: Final = {SERVING_CERTIFICATE, SERVING_KEY}


def namespaced_rbac(*secrets: str) -> tuple[PolicyRule, ...]:
    """Return the rights on these Secrets of our namespace; a create cannot be limited to a name."""
    return (
        PolicyRule(resources=("secrets",), verbs=("create",)),
        PolicyRule(resources=("secrets",), verbs=("get", "patch"), names=secrets),
    )


class _Secret(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    data: dict[str, bytes] | None = None  # msgspec takes bytes from base64

    def __repr__(self) -> str:
        return f"_Secret({self.metadata.namespace}/{self.metadata.name})"


class _ClientConfig(msgspec.Struct, frozen=True):
    ca_bundle: str = msgspec.field(default="", name="caBundle")


class _Webhook(msgspec.Struct, frozen=True):
    name: str
    client_config: _ClientConfig = msgspec.field(name="clientConfig")


class _Configuration(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    webhooks: list[_Webhook] | None = None


@final
class KubernetesCertificates:
    """`certs.rotation.CertificateStore` over the API server."""

    def __init__(
        self,
        client: "KubeClient",
        *,
        mutating: "Iterable[str]" = (),
        validating: "Iterable[str]" = (),
    ) -> None:
        """Take the client and the names of our webhook configurations.

        All webhooks of a configuration are taken for ours.
        """
        self._client = client
        self._configurations: tuple[tuple[Resource, str], ...] = (
            *((MUTATING_WEBHOOK_CONFIGURATIONS, name) for name in mutating),
            *((VALIDATING_WEBHOOK_CONFIGURATIONS, name) for name in validating),
        )

    async def read_secret(self, namespace: str, name: str) -> StoredSecret | None:
        try:
            secret = await self._client.get(SECRETS, _Secret, name, namespace=namespace)
        except NotFound:
            return None
        except KubeError as error:
            raise StoreUnavailableError(
                f"Secret {namespace}/{name} cannot be read: {_brief(error)}",
                cause=type(error).__name__,
            ) from None
        return StoredSecret(
            data=secret.data or {}, resource_version=secret.metadata.resource_version
        )

    async def write_secret(
        self,
        namespace: str,
        name: str,
        data: "Mapping[str, bytes]",
        *,
        resource_version: str | None,
    ) -> None:
        """Create the Secret, or with a version merge the keys into the one that has it."""
        try:
            if resource_version is None:
                await self._create(namespace, name, data)
            else:
                patch = {"metadata": {"resourceVersion": resource_version}, "data": data}
                await self._client.merge_patch(SECRETS, patch, name=name, namespace=namespace)
        except Conflict as error:
            raise SecretConflictError(f"Secret {namespace}/{name} has changed") from error
        except NotFound as error:
            # Of a create it is the namespace that is missing, which no new read cures.
            if resource_version is None:
                raise StoreUnavailableError(f"there is no namespace {namespace}") from error
            raise SecretConflictError(f"Secret {namespace}/{name} is gone") from error
        except KubeError as error:
            raise StoreUnavailableError(
                f"Secret {namespace}/{name} cannot be written: {_brief(error)}",
                cause=type(error).__name__,
            ) from None

    async def inject_ca_bundle(self, ca_pem: bytes) -> None:
        """Write caBundle of every webhook that has another one."""
        failures = [
            f"{resource.kind} {name}: {failure}"
            for resource, name in self._configurations
            if (failure := await self._inject(resource, name, ca_pem)) is not None
        ]
        if failures:
            raise InjectionError("; ".join(failures))

    async def _create(self, namespace: str, name: str, data: "Mapping[str, bytes]") -> None:
        body = {
            "apiVersion": SECRETS.api_version,
            "kind": SECRETS.kind,
            "metadata": {"namespace": namespace, "name": name},
            "type": SECRET_TYPE if data.keys() >= _DEMANDED else "Opaque",
            "data": data,
        }
        await self._client.create(SECRETS, body)

    async def _inject(self, resource: "Resource", name: str, ca_pem: bytes) -> str | None:
        """Return the error, or None."""
        try:
            configuration = await self._client.get(resource, _Configuration, name)
            if patch := _ca_patch(configuration.webhooks or (), ca_pem):
                await self._client.json_patch(resource, patch, name=name)
        except NotFound:
            return "does not exist"
        except KubeError as error:
            return str(error)
        return None


def _ca_patch(webhooks: "Sequence[_Webhook]", ca_pem: bytes) -> list[dict[str, str]]:
    required = base64.b64encode(ca_pem).decode("ascii")
    patch: list[dict[str, str]] = []
    for place, webhook in enumerate(webhooks):
        if webhook.client_config.ca_bundle != required:
            path = f"/webhooks/{place}"
            # The list may have been reordered since the read; then nothing is written.
            patch += [
                {"op": "test", "path": f"{path}/name", "value": webhook.name},
                {"op": "add", "path": f"{path}/clientConfig/caBundle", "value": required},
            ]
    return patch


def _brief(error: KubeError) -> str:
    if not isinstance(error, ApiError):
        return type(error).__name__
    causes = (error.details.causes if error.details else None) or ()
    fields = "; ".join(f"{cause.field}: {cause.reason}" for cause in causes)
    return one_line(f"{error.status} {error.reason or type(error).__name__} {fields}")
