"""Of all writes, only those of templates that name a pool, or did, depend on the control plane."""

from typing import Any

import pytest

from api.workload_kinds import BUILT_IN_KINDS, WorkloadKind
from manifests.install.webhooks import UrlClient, WebhookSettings, build_mutating_configuration
from simulator.apiserver import cel_evaluator
from tests.support.workloads import a_template, a_workload, annotated

RAY_CLUSTER = WorkloadKind(
    group="ray.io",
    kind="RayCluster",
    resource="rayclusters",
    templates=("spec.headGroupSpec.template", "spec.workerGroupSpecs.*.template"),
)
TORCH_JOB = WorkloadKind(
    group="kubeflow.org",
    kind="PyTorchJob",
    resource="pytorchjobs",
    templates=("spec.pytorchReplicaSpecs.*.template",),
)
POOL, PLAIN = a_template(), a_template(None)
WITHOUT: dict[str, Any] = {"metadata": {}}


def is_sent(
    resource: str, new: dict[str, Any], old: dict[str, Any] | None = None, **options: Any
) -> bool:
    settings = WebhookSettings(
        client=UrlClient(base_url="https://127.0.0.1:1"), workloads=(RAY_CLUSTER, TORCH_JOB)
    )
    [webhook] = [
        webhook
        for webhook in build_mutating_configuration(settings)["webhooks"]
        if any(resource in rule["resources"] for rule in webhook["rules"])
    ]
    variables = {"object": new, "oldObject": old, "request": {"options": options}}
    return all(
        cel_evaluator.holds(condition["expression"], variables)
        for condition in webhook["matchConditions"]
    )


@pytest.mark.parametrize("kind", BUILT_IN_KINDS, ids=str)
def test_template_of_kubernetes_is_sent_where_it_names_a_pool_and_changes(kind):
    pool, plain = a_workload(kind.kind), a_workload(kind.kind, template=PLAIN)
    scaled = {**pool, "spec": {**pool["spec"], "replicas": 2}}

    assert is_sent(kind.resource, pool)
    assert is_sent(kind.resource, pool, plain)
    assert is_sent(kind.resource, plain, pool)
    assert is_sent(kind.resource, annotated(pool, "forged"), pool)
    assert is_sent(kind.resource, pool, pool, force=False), "applied again"
    assert not is_sent(kind.resource, plain)
    assert not is_sent(kind.resource, plain, a_workload(kind.kind, template=PLAIN), force=True)
    assert not is_sent(kind.resource, scaled, pool)
    # A LimitRange may have its pods ask for a pool.
    assert is_sent(kind.resource, annotated(plain, "copied"))
    assert is_sent(kind.resource, annotated(plain, "copied"), plain)
    assert not is_sent(kind.resource, WITHOUT)


@pytest.mark.parametrize(
    "spec",
    [
        {"headGroupSpec": {"template": POOL}},
        {"headGroupSpec": {}, "workerGroupSpecs": [{}, {"template": PLAIN}, {"template": POOL}]},
    ],
)
def test_template_in_a_list_is_found(spec):
    assert is_sent("rayclusters", {"metadata": {}, "spec": spec})


def test_template_in_a_map_is_found():
    spec = {"pytorchReplicaSpecs": {"Master": {"template": PLAIN}, "Worker": {"template": POOL}}}
    assert is_sent("pytorchjobs", {"metadata": {}, "spec": spec})


@pytest.mark.parametrize("resource", ["rayclusters", "pytorchjobs"])
def test_other_objects_of_such_kinds_depend_on_nothing(resource):
    plain = {
        "headGroupSpec": {"template": PLAIN},
        "pytorchReplicaSpecs": {"A": {"template": PLAIN}},
    }
    specs: list[dict[str, Any]] = [{}, {"workerGroupSpecs": []}, {"pytorchReplicaSpecs": {}}, plain]
    for spec in specs:
        assert not is_sent(resource, {"metadata": {}, "spec": spec})
    assert not is_sent(resource, WITHOUT)


def test_annotation_of_such_an_object_is_sent_too():
    """Pods of a Notebook have the annotations of the Notebook."""
    old = {"metadata": {}, "spec": {"headGroupSpec": {"template": POOL}}}
    annotations = {"gpu.deckhouse.io/access": "copied"}

    assert is_sent("rayclusters", {**old, "metadata": {"annotations": annotations}}, old)
    assert not is_sent("rayclusters", {**old, "metadata": {"labels": {"a": "b"}}}, old)


def test_copied_annotation_is_sent_with_templates_that_name_no_pool():
    """A LimitRange or another webhook may have their pods ask for one."""
    copied = {"annotations": {"gpu.deckhouse.io/access": "copied"}}
    worker = {"template": {**PLAIN, "metadata": copied}}

    assert is_sent("rayclusters", {"metadata": {}, "spec": {"workerGroupSpecs": [worker]}})
    assert is_sent("rayclusters", {"metadata": copied, "spec": {}})
