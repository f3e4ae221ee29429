"""Examples speak the language of the models and of the schemas."""

from typing import Any

import msgspec
import pytest

from api.cache_name import parse_cache_name
from api.csi.names import CACHE_ATTRIBUTE, DRIVER_NAME, NAMESPACE_ATTRIBUTE
from api.kinds.gkmcache import ClusterGKMCache, GKMCache
from api.kinds.gpudevice import GPUDevice
from api.kinds.gpupool import GPUPool
from api.names import POOL_NODE_LABEL_PREFIX
from inventory.products import display_product
from kernelcache.signatures.policy import read_signature_policy
from manifests.caches.crds import build_cache_crds
from manifests.example_files import example_names, example_text
from manifests.install.crds import build_crds
from telemetry.conditions import DeviceCondition, DeviceHealthy
from tests.support.examples import load_device, load_example

MODELS = {
    "GPUDevice": GPUDevice,
    "GPUPool": GPUPool,
    "GKMCache": GKMCache,
    "ClusterGKMCache": ClusterGKMCache,
}
SCHEMAS = {
    crd["spec"]["names"]["kind"]: crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for crd in (*build_crds(), *build_cache_crds())
}
OURS = [
    pytest.param(document, id=name)
    for name in example_names()
    for document in load_example(name)
    if document["kind"] in MODELS
]
OURS.append(pytest.param(load_device(), id="device"))


def unknown_fields(value: Any, schema: dict[str, Any], path: str = "") -> list[str]:
    if isinstance(value, list):
        return [
            fault
            for index, item in enumerate(value)
            for fault in unknown_fields(item, schema["items"], f"{path}[{index}]")
        ]
    if not isinstance(value, dict) or "properties" not in schema:
        return []
    properties = schema["properties"]
    return [f"{path}.{key}" for key in value if key not in properties] + [
        fault
        for key, nested in value.items()
        if key in properties
        for fault in unknown_fields(nested, properties[key], f"{path}.{key}")
    ]


def test_there_is_an_example_of_each_mode_and_of_a_workload():
    modes = {
        document["spec"]["allocation"]["mode"]
        for name in example_names()
        for document in load_example(name)
        if document["kind"] == "GPUPool"
    }
    assert modes == {"Exclusive", "MIG", "TimeSlice"}
    assert {"pod", "deployment"} <= set(example_names())


@pytest.mark.parametrize("document", OURS)
def test_example_has_only_fields_that_the_schema_knows(document):
    assert unknown_fields(document, SCHEMAS[document["kind"]]) == []


@pytest.mark.parametrize("document", OURS)
def test_example_is_what_the_model_reads_and_writes(document):
    model = MODELS[document["kind"]]
    decoded = msgspec.convert(document, model)
    assert msgspec.convert(msgspec.to_builtins(decoded), model) == decoded


def everything() -> list[dict[str, Any]]:
    return [item for name in example_names() for item in load_example(name)]


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [item for item in everything() if item["kind"] == kind]


def test_products_are_spelt_as_the_inventory_writes_them():
    named = [load_device()["status"]["product"]]
    for pool in of_kind("GPUPool"):
        for criteria in pool["spec"]["deviceSelector"].values():
            named += criteria.get("products", [])
    assert len(named) == 3
    for product in named:
        assert display_product(product) == product


def test_taints_have_the_key_of_their_pool():
    tainted = [
        pool for pool in of_kind("GPUPool") if "taints" in pool["spec"].get("scheduling", {})
    ]
    assert tainted
    for pool in tainted:
        keys = [taint["key"] for taint in pool["spec"]["scheduling"]["taints"]]
        assert keys == [POOL_NODE_LABEL_PREFIX + pool["metadata"]["name"]]


def test_conditions_are_those_that_the_server_writes():
    [condition] = load_device()["status"]["conditions"]
    assert condition["type"] == DeviceCondition.HEALTHY.value
    assert condition["reason"] == DeviceHealthy.HEALTHY.value
    assert condition["message"] == "no fault is known"


def test_the_pod_mounts_the_caches_of_the_examples_and_of_its_own_namespace():
    [pod] = load_example("pod-kernel-caches")
    named = [
        parse_cache_name(attributes.get(NAMESPACE_ATTRIBUTE, ""), attributes[CACHE_ATTRIBUTE])
        for volume in pod["spec"]["volumes"]
        if volume["csi"]["driver"] == DRIVER_NAME
        for attributes in [volume["csi"]["volumeAttributes"]]
    ]
    examples = load_example("kernel-cache")
    assert [str(item) for item in named] == [
        f"GKMCache {pod['metadata']['namespace']}/llama",
        "ClusterGKMCache triton-common",
    ]
    assert {(item.namespace, item.name) for item in named} == {
        (example["metadata"].get("namespace", ""), example["metadata"]["name"])
        for example in examples
    }


def test_caches_of_the_examples_say_whose_signature_is_good_and_are_placeholders():
    for document in load_example("kernel-cache"):
        cache = msgspec.convert(document, MODELS[document["kind"]])
        assert cache.spec.image.startswith("registry.example.com/")
        assert cache.spec.verification is not None
        # It raises where no key or identity can be used.
        read_signature_policy(cache.spec.verification)


@pytest.mark.parametrize("name", ["pod", "deployment", "pod-kernel-caches"])
def test_workload_asks_for_a_pool_of_the_examples(name):
    pools = {
        msgspec.convert(document, GPUPool).resource_name
        for example in example_names()
        for document in load_example(example)
        if document["kind"] == "GPUPool"
    }
    [document] = load_example(name)
    spec = document["spec"]["template"]["spec"] if name == "deployment" else document["spec"]
    asked = [key for key in spec["containers"][0]["resources"]["limits"] if "/" in key]
    assert len(asked) == 1
    assert asked[0] in pools


def test_every_namespace_is_among_the_examples():
    names = {item["metadata"].get("namespace") for item in everything()}
    assert names - {None} == {item["metadata"]["name"] for item in of_kind("Namespace")}


def test_text_keeps_its_comments():
    assert example_text("pod").startswith("# ")


def test_unknown_example_is_named_with_those_that_exist():
    with pytest.raises(
        ValueError, match="there is no example 'x'; there are namespaces, pool-autoscaling, "
    ):
        load_example("x")


@pytest.mark.parametrize("name", ["pod", "deployment", "pod-kernel-caches"])
def test_pods_are_admitted_where_pod_security_is_restricted(name):
    (document,) = load_example(name)
    spec = document["spec"].get("template", document)["spec"]
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in spec["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }
