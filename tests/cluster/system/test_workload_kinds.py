"""Kinds of others whose templates name a pool that is open to a group, named by the setting `workloads.kinds`."""

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from api.workload_kinds import BUILT_IN_CONTROLLERS
from manifests.yaml import render
from tests.cluster.environment import client, definitions, pods, polling, server_process
from tests.cluster.system.workloads import (
    ACCESS,
    OPEN_TO_GROUP,
    a_stateful_set,
    at,
    refused,
    running,
    template,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.cluster.environment.control_plane import ControlPlane
    from tests.cluster.environment.kubectl import Kubectl
    from tests.cluster.system.conftest import MakePool
    from tests.cluster.system.installation import GpuSystem
    from tests.cluster.system.objects import Pool

GROUP = "kubeflow.org"
CONTROLLER = "notebook-controller"
NOTEBOOKS = {
    "group": GROUP,
    "kind": "Notebook",
    "resource": "notebooks",
    "templates": ["spec.template"],
    "copies_annotations": True,
}
"""As docs/access.md has it: Kubeflow's controller copies annotations of the notebook to the pods."""
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"notebooks.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"kind": "Notebook", "plural": "notebooks", "singular": "notebook"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                        },
                    }
                },
            }
        ],
    },
}


@pytest.fixture
async def controller(
    system: "GpuSystem",
    api: client.ApiClient,
    control_plane: "ControlPlane",
    kubectl: "Kubectl",
    namespace: str,
    tmp_path: "Path",
) -> "AsyncIterator[client.ApiClient]":
    """The account of the controller of notebooks, which the settings name beside their kind."""
    account = f"system:serviceaccount:{namespace}:{CONTROLLER}"
    settings = {"kinds": [NOTEBOOKS], "controllers": [*BUILT_IN_CONTROLLERS, account]}
    core, rbac = f"/api/v1/namespaces/{namespace}", "rbac.authorization.k8s.io"
    await api.create(f"{core}/serviceaccounts", {"metadata": {"name": CONTROLLER}})
    binding = {
        "metadata": {"name": CONTROLLER},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": CONTROLLER, "namespace": namespace}],
    }
    await api.create(f"/apis/{rbac}/v1/namespaces/{namespace}/rolebindings", binding)
    await kubectl("apply", "-f", "-", stdin=render([DEFINITION]))
    await definitions.until_served(kubectl, [DEFINITION])

    async def apply_webhooks(workloads: dict[str, Any]) -> None:
        await system.reconfigure(workloads=workloads)
        file = tmp_path / "settings.yaml"
        file.write_text(yaml.safe_dump(server_process.with_image({"workloads": workloads})))
        rendered = await system.render("webhooks", "--url", system.url, "--settings", str(file))
        await kubectl("apply", "-f", "-", stdin=rendered)

    try:
        await apply_webhooks(settings)
        kubeconfig = await control_plane.service_account_kubeconfig(namespace, CONTROLLER)
        async with client.open_client(kubeconfig) as opened:
            yield opened
    finally:
        await kubectl("delete", f"crd/notebooks.{GROUP}")
        await apply_webhooks({})


def a_notebook(name: str, pool: "Pool") -> dict[str, Any]:
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Notebook",
        "metadata": {"name": name},
        "spec": {"template": template(pool)},
    }


def a_stateful_set_of(notebook: dict[str, Any], pool: "Pool") -> dict[str, Any]:
    """Return what Kubeflow's controller makes of a notebook."""
    made = a_stateful_set(notebook["metadata"]["name"], pool)
    metadata = notebook["metadata"]
    made["metadata"]["ownerReferences"] = [
        {
            "apiVersion": notebook["apiVersion"],
            "kind": "Notebook",
            "name": metadata["name"],
            "uid": metadata["uid"],
            "controller": True,
        }
    ]
    made["spec"]["template"]["metadata"]["annotations"] = metadata.get("annotations", {})
    return made


async def test_notebook_of_a_member_has_a_pod_and_no_other_notebook_has(
    make_pool: "MakePool",
    controller: client.ApiClient,
    member: client.ApiClient,
    stranger: client.ApiClient,
    namespace: str,
) -> None:
    pool = await make_pool(devices=4, **OPEN_TO_GROUP)
    notebooks, sets = at(namespace, "notebooks", GROUP), at(namespace, "statefulsets")

    async def is_asked() -> bool:
        # Not before the server has put its CA into the new webhook.
        try:
            await stranger.create(notebooks, a_notebook("mine", pool), dryRun="All")
        except client.ApiRefusedError as refusal:
            return "written by stranger" in refusal.message
        return False

    await polling.eventually(is_asked, what="the webhook of notebooks")
    written = await member.create(notebooks, a_notebook("jupyter", pool))
    note = written["metadata"]["annotations"][ACCESS]
    changed = {"spec": {"template": {"spec": {"serviceAccountName": "other"}}}}
    assert "is not open to Notebook" in await refused(
        stranger.patch(f"{notebooks}/jupyter", changed)
    )

    await controller.create(sets, a_stateful_set_of(written, pool))
    await running(member, namespace, "jupyter")

    # Its annotation under another notebook: of a stranger who leaves the pool out of the template, so nobody refuses it.
    plain = a_notebook("copy", pool)
    plain["spec"]["template"]["spec"]["containers"][0]["resources"] = {}
    plain["metadata"]["annotations"] = {ACCESS: note}
    copy = await stranger.create(notebooks, plain)
    assert ACCESS not in copy["metadata"].get("annotations", {})
    copy["metadata"]["annotations"] = {ACCESS: note}
    assert "is a copy of that of Notebook jupyter" in await refused(
        controller.create(sets, a_stateful_set_of(copy, pool))
    )
    # And in a pod that names the member's StatefulSet as its controller, without being made by one.
    (pod,) = [
        item
        for item in (await member.get(pods.collection(namespace)))["items"]
        if item["metadata"]["name"].startswith("jupyter")
    ]
    forged = {"name": "forged", "annotations": {ACCESS: note}}
    forged["ownerReferences"] = pod["metadata"]["ownerReferences"]
    body = {"metadata": forged, "spec": template(pool)["spec"]}
    assert "is not open to this pod" in await refused(
        stranger.create(pods.collection(namespace), body)
    )
