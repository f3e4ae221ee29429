"""The release of the chart, and what is left in a cluster after it."""

import json
import re
from typing import TYPE_CHECKING, Any, Final, final

import yaml

from api.names import GKM_GROUP
from manifests import constants
from tests.cluster.environment import binaries
from tests.cluster.environment import helm as helms
from tests.cluster.system.installation import NAMESPACE, GpuSystem, remove

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.cluster.environment.client import ApiClient, JsonObject
    from tests.cluster.environment.control_plane import ControlPlane
    from tests.cluster.environment.kubectl import Kubectl

NAME: Final = "gpu"
_OURS: Final = re.compile(
    r"gpu\.deckhouse\.io|gkm\.io|gpu-kernel-cache|gpu-control-plane|gpu-node-agent|gpu-node-detector|gpu-node-validator|gpu-device-plugin|gpu-scheduler|gpu-mig"
)
_GROUP: Final = "gpu.deckhouse.io"
_KINDS: Final = {
    _GROUP: (
        *("gpupools", "gpudevices", "gpunodeinventories"),
        *("gpucontrolplaneconfigs", "gpucontrolplaneterms"),
    ),
    GKM_GROUP: ("gkmcaches", "clustergkmcaches", "gkmcachenodes", "clustergkmcachenodes"),
}
_KEPT: Final = {
    ("customresourcedefinitions", f"{plural}.{group}")
    for group, plurals in _KINDS.items()
    for plural in plurals
} | {*(("apiservices", f"v1alpha1.{group}") for group in _KINDS), ("namespaces", NAMESPACE)}
"""Definitions are kept by default, the API server makes an APIService of each group, and Helm never deletes
the namespace that it made."""
_WAIT: Final = ("--wait", "--timeout", "110s")


@final
class Release:
    """What an operator does with it by Helm."""

    def __init__(self, control_plane: "ControlPlane", kubectl: "Kubectl", call: helms.Helm) -> None:
        self._control_plane = control_plane
        self._kubectl = kubectl
        self._helm = call

    async def install(self, chart: "Path" = helms.CHART, **values: Any) -> None:
        """Install it, from another chart if one is given, and wait until its Deployments are ready.

        Definitions that other tests applied are taken over: they stay in the cluster. Those of another version differ.
        """
        forced = () if chart is helms.CHART else ("--force-conflicts",)
        options = ("--create-namespace", "--take-ownership", *forced, *_WAIT)
        await self._with_chart("install", *options, values=values, chart=chart)

    async def apply_by_hand(self) -> None:
        """Install without Helm, as docs/install.md says."""
        version = binaries.kubernetes_version()
        rendered = await GpuSystem.render("all", "--kube-version", version)
        # Of definitions, which a release before this one has left with Helm's fields.
        options = ("apply", "--server-side", "--force-conflicts", "-f", "-")
        await self._kubectl(*options, stdin=rendered)

    async def rolled_out(self) -> None:
        """Wait until the pods of the Deployments are those of their templates, and ready."""
        for name in (constants.NAME, constants.SCHEDULER_DEPLOYMENT):
            status = ("rollout", "status", f"deployment/{name}", "--timeout=120s")
            await self._kubectl("-n", NAMESPACE, *status, timeout_s=150)

    async def take_over(self, **values: Any) -> None:
        """Install it over the objects that kubectl applied, as docs/install.md says."""
        options = ("--take-ownership", "--force-conflicts", *_WAIT)
        await self._with_chart("install", *options, values=values)

    async def upgrade(self, *options: str, **values: Any) -> None:
        """Upgrade it, and wait until its Deployments are ready."""
        await self._with_chart("upgrade", *options, *_WAIT, values=values)

    async def refused_upgrade(self, *options: str) -> str:
        """Return why Helm refuses an upgrade, with no values but those that the options mean."""
        chart = (NAME, str(helms.CHART), "--namespace", NAMESPACE)
        done = await self._helm("upgrade", *chart, *options, check=False)
        assert done.returncode != 0, done.stdout
        return done.stderr

    async def applied(self) -> dict[tuple[str, str], str]:
        """Return the version of each object that Helm applied, and of the release's own."""
        manifest = await self._helm("get", "manifest", NAME, "--namespace", NAMESPACE)
        get = ("get", "-o", "json")
        found = await self._kubectl(*get, "-f", "-", stdin=manifest.stdout)
        own = await self._kubectl(*get, "-n", NAMESPACE, "secrets", "-l", "owner=helm")
        items = [item for done in (found, own) for item in json.loads(done.stdout)["items"]]
        # The status of what runs is not Helm's.
        return {
            (item["kind"], item["metadata"]["name"]): str(
                item["metadata"].get("generation", item["metadata"]["resourceVersion"])
            )
            for item in items
        }

    async def template(self, **values: Any) -> str:
        """Return what Helm would apply, but for hooks."""
        done = await self._with_chart("template", "--no-hooks", values=values)
        return done.stdout

    async def service_monitor(self, *, interval: str) -> "JsonObject":
        """Return the ServiceMonitor that the chart has where the Prometheus operator is."""
        current = await self.template(
            monitoring={"serviceMonitor": {"enabled": True, "interval": interval}}
        )
        (monitor,) = (
            item
            for item in yaml.safe_load_all(current)
            if item and item["kind"] == "ServiceMonitor"
        )
        found: JsonObject = monitor
        return found

    async def uninstall(self) -> None:
        """Uninstall it, and wait until its objects are gone."""
        await self._helm("uninstall", NAME, "--namespace", NAMESPACE, *_WAIT)

    async def keep_logs(self) -> None:
        """Write what pods of the namespace logged, and Events, beside the logs of the components."""
        directory = self._control_plane.run.directory
        options = ("-n", NAMESPACE, "--ignore-errors", "--prefix", "--all-containers", "--tail=-1")
        selector = ("-l", "app.kubernetes.io/part-of=gpu-control-plane")
        logs = await self._kubectl("logs", *options, *selector, check=False)
        (directory / "release-pods.log").write_text(logs.stdout + logs.stderr, encoding="utf-8")
        events = await self._kubectl("get", "events", "-A", "-o", "wide", check=False)
        (directory / "release-events.log").write_text(events.stdout, encoding="utf-8")

    async def remove(self) -> None:
        """Leave nothing for the tests after these, whatever happened before."""
        options = ("--namespace", NAMESPACE, "--no-hooks", "--ignore-not-found")
        await self._helm("uninstall", NAME, *options, check=False)
        # Helm leaves the namespace that it made.
        namespace = ("namespace", NAMESPACE, "--ignore-not-found", "--wait=false")
        await self._kubectl("delete", *namespace)
        everything = await self.template(crds={"keep": False})
        await remove(self._control_plane, self._kubectl, everything)

    async def _with_chart(
        self,
        verb: str,
        *options: str,
        values: "Mapping[str, Any]",
        chart: "Path" = helms.CHART,
    ) -> helms.Completed:
        where = (NAME, str(chart), "--namespace", NAMESPACE)
        return await self._helm(verb, *where, *options, values=values)


async def left_behind(api: "ApiClient") -> list[str]:
    """Return what is ours of the objects of every kind, but for definitions that are kept.

    An object is ours by its name, a label, an annotation, a finalizer or a taint. Objects of our own
    kinds stay with their definitions, and have no finalizer.
    """
    found = []
    async for version, resource in api.kinds():
        plural = resource["name"]
        if plural == "events":  # they tell of the past
            continue
        for item in (await api.get(f"{version}/{plural}"))["items"]:
            metadata = item["metadata"]
            if (plural, metadata["name"]) in _KEPT:
                continue
            marks = _marks(item, is_own_kind=f"/{_GROUP}/" in version)
            if marks:
                found.append(
                    f"{plural} {metadata.get('namespace', '')}/{metadata['name']}: {marks}"
                )
    return found


def _marks(one: "JsonObject", *, is_own_kind: bool) -> list[str]:
    metadata = one["metadata"]
    named = [*metadata.get("finalizers", ())]
    if not is_own_kind:
        named += [metadata["name"], *metadata.get("labels", {}), *metadata.get("annotations", {})]
        named += [taint["key"] for taint in one.get("spec", {}).get("taints", ())]
    return [name for name in named if _OURS.search(name)]
