"""Reads and writes of the GPUControlPlaneConfig, at the start of a server and afterwards.

The server writes the installation's values into the object, and not Helm or kubectl: both ask which kinds there are
before they write the first object, and would not find this one in the release that brings its definition. It writes
when they differ from those that it wrote last, so that a change by hand outlives a restart. In a roll-out only pods of
the values that the Deployment has now write: a pod of an earlier revision that restarts would undo the newer ones.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import structlog

from api.foreign.deckhouse import ModuleConfig
from api.kinds.gpucontrolplaneconfig import GPUControlPlaneConfig
from api.meta import Model
from api.names import INSTALLATION_HASH_ANNOTATION
from kube.backoff import Backoff
from kube.errors import ApiError, Conflict, KubeError, NotFound
from kube.resources import DEPLOYMENTS, GPU_CONTROL_PLANE_CONFIGS, MODULE_CONFIGS
from manifests import constants
from manifests.install.rbac import PolicyRule
from server.configuration.config_state import ConfigState, StoredConfig, first_state

if TYPE_CHECKING:
    from kube.client import KubeClient
    from server.configuration.config_source import ConfigSource

RBAC: Final = (
    # A create carries no name: the definition allows one only.
    PolicyRule(
        group=GPU_CONTROL_PLANE_CONFIGS.group,
        resources=(GPU_CONTROL_PLANE_CONFIGS.plural,),
        verbs=("create",),
    ),
    PolicyRule(
        group=GPU_CONTROL_PLANE_CONFIGS.group,
        resources=(GPU_CONTROL_PLANE_CONFIGS.plural,),
        verbs=("get", "list", "watch", "patch"),
        names=(constants.NAME,),
    ),
    PolicyRule(
        group=GPU_CONTROL_PLANE_CONFIGS.group,
        resources=(f"{GPU_CONTROL_PLANE_CONFIGS.plural}/status",),
        verbs=("patch",),
        names=(constants.NAME,),
    ),
    PolicyRule(
        group=MODULE_CONFIGS.group,
        resources=(MODULE_CONFIGS.plural,),
        verbs=("get", "list", "watch"),
        names=(constants.NAME,),
    ),
)
NAMESPACED_RBAC: Final = (
    PolicyRule(
        group=DEPLOYMENTS.group,
        resources=(DEPLOYMENTS.plural,),
        verbs=("get",),
        names=(constants.NAME,),
    ),
)
FIELD_MANAGER: Final = "gpu-control-plane/installation"

_log = structlog.get_logger()


class _Container(Model, frozen=True):
    name: str
    args: list[str] | None = None


class _PodSpec(Model, frozen=True):
    containers: list[_Container]


class _Template(Model, frozen=True):
    spec: _PodSpec


class _DeploymentSpec(Model, frozen=True):
    template: _Template


class _Deployment(Model, frozen=True):
    """The server's Deployment, as far as it is read."""

    spec: _DeploymentSpec


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedConfig:
    """What a server starts with."""

    source: "ConfigSource"
    stored: StoredConfig
    state: ConfigState


async def prepare_config(client: "KubeClient", source: "ConfigSource") -> PreparedConfig:
    """Write the installation's values where they changed, and read the objects; wait for an API server that does not answer."""
    backoff = Backoff(cap_s=5.0)
    while True:
        try:
            stored = await _written(client, source)
            return PreparedConfig(source=source, stored=stored, state=first_state(source, stored))
        except KubeError as error:
            _log.warning(
                "settings cannot be read yet", error=str(error), cause=type(error).__name__
            )
            await asyncio.sleep(backoff.fail())


async def read_config(client: "KubeClient") -> StoredConfig:
    """Read the objects."""
    config = module = None
    with suppress(NotFound):
        config = await client.get(GPU_CONTROL_PLANE_CONFIGS, GPUControlPlaneConfig, constants.NAME)
    with suppress(NotFound):
        module = await client.get(MODULE_CONFIGS, ModuleConfig, constants.NAME)
    return StoredConfig(config=config, module=module)


async def _written(client: "KubeClient", source: "ConfigSource") -> StoredConfig:
    stored = await read_config(client)
    config = stored.config
    if config is not None and (
        config.metadata.annotation(INSTALLATION_HASH_ANNOTATION) == source.checksum
    ):
        return stored
    # Of what was read before the Deployment: a newer pod may write while this one decides.
    precondition = {} if config is None else {"resourceVersion": config.metadata.resource_version}
    body = {
        "apiVersion": GPU_CONTROL_PLANE_CONFIGS.api_version,
        "kind": GPU_CONTROL_PLANE_CONFIGS.kind,
        "metadata": {
            "name": constants.NAME,
            "labels": dict(constants.LABELS),
            "annotations": {INSTALLATION_HASH_ANNOTATION: source.checksum},
            **precondition,
        },
        "spec": source.stored,
    }
    try:
        if not await _is_deployed(client, source):
            _log.info("settings of the installation not written: the Deployment has others")
            return stored
        written = await client.apply(GPU_CONTROL_PLANE_CONFIGS, body, field_manager=FIELD_MANAGER)
    except ApiError as error:
        if error.is_transient or isinstance(error, Conflict):
            raise
        # The definition is missing, or that of another version: the installation's values are in force then.
        _log.warning(
            "settings of the installation cannot be written into GPUControlPlaneConfig",
            error=str(error),
        )
        return stored
    _log.info("settings of the installation written", checksum=source.checksum)
    return StoredConfig(config=written.decode(GPUControlPlaneConfig), module=stored.module)


async def _is_deployed(client: "KubeClient", source: "ConfigSource") -> bool:
    """Say whether the values are those of the Deployment; without one, the server is run by hand with its own."""
    try:
        deployment = await client.get(
            DEPLOYMENTS, _Deployment, constants.NAME, namespace=source.initial.namespace
        )
    except NotFound:
        return True
    return any(
        container.name == constants.NAME and source.is_deployed(container.args or ())
        for container in deployment.spec.template.spec.containers
    )
