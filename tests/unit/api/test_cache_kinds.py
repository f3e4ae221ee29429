"""Kernel caches: what GKM's published kinds accept, ours accept; no field of its CSI generation is missing."""

import functools
import re
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from api.crd.openapi import crd_schema
from api.image_reference import IMAGE_PATTERN
from api.kinds.gkmcache import (
    PUBLIC_KEY_PATTERN,
    ClusterGKMCache,
    GKMCache,
    GKMCacheSpec,
    WarmPolicy,
)
from api.kinds.gkmcachenode import ClusterGKMCacheNode, GKMCacheNode
from api.meta import Model
from api.names import GKM_API_VERSION, cache_node_finalizer
from manifests.caches.crds import build_cache_crds
from simulator.apiserver.schema.structural import StructuralSchema
from tests.support.published_crds import faults, published_crd, published_sample
from tests.support.schema_objects import objects_of

MODELS: dict[str, type[Model]] = {
    kind.__name__: kind for kind in (GKMCache, ClusterGKMCache, GKMCacheNode, ClusterGKMCacheNode)
}
OURS = {crd["spec"]["names"]["kind"]: crd for crd in build_cache_crds()}
SCHEMAS = {
    kind: StructuralSchema(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
    for kind, crd in OURS.items()
}
PUBLISHED = {kind: f"{kind.lower()}s.gkm.io" for kind in MODELS}


@functools.cache
def published(kind: str) -> dict[str, Any]:
    return published_crd(PUBLISHED[kind])


COUNTS = {
    "nodeCnt",
    "nodeInUseCnt",
    "nodeNotInUseCnt",
    "nodeErrorCnt",
    "podRunningCnt",
    "podOutdatedCnt",
    "podDeletingCnt",
}
FIELDS = {
    "GKMCache": {
        ".spec": {"image", "verification", "pullSecrets", "warm"},
        ".status": {"resolvedDigest", "conditions", "counts", "lastUpdated"},
        ".status.counts": COUNTS,
    },
    "GKMCacheNode": {
        ".status": {"nodeName", "counts", "gpus", "caches"},
        ".status.counts": COUNTS,
        ".status.gpus[]": {"gpuType", "driverVersion", "ids"},
        ".status.caches[][]": {
            "compatibleGPUs",
            "incompatibleGPUs",
            "conditions",
            "lastUpdated",
            "volumeSize",
            "pods",
        },
        ".status.caches[][].pods[]": {"podNamespace", "podName", "volumeId"},
    },
}
"""Section 1 of GKM's behaviour, CSI generation, with podDeletingCnt and what we add."""
PVC_SPEC = {"podTemplate", "storageClassName", "accessModes", "workloadNamespaces"}
"""Of the later generation: accepted, without effect."""
OURS_IN_STATUS = {"image", "warmBelow", "pools"}
"""Of the status of a cache."""
PVC_STATUS = re.compile(r"status(\.caches\.[a-z.]+)*\.(pvcOwner|pvcStatus)")
"""Not served: the status is ours to write."""


def properties(schema: dict[str, Any], path: str) -> set[str]:
    for step in re.findall(r"\.\w+|\[\]", path):
        if step != "[]":
            schema = schema["properties"][step[1:]]
        else:
            schema = schema.get("items") or schema["additionalProperties"]
    return set(schema["properties"])


@pytest.mark.parametrize("kind", MODELS)
def test_no_field_of_the_csi_generation_is_missing(kind):
    schema = crd_schema(MODELS[kind])
    for path, names in FIELDS[kind.removeprefix("Cluster")].items():
        further = {
            ".spec": PVC_SPEC,
            ".status": OURS_IN_STATUS if "GKMCacheNode" not in kind else set(),
        }
        assert properties(schema, path) == names | further.get(path, set())


@pytest.mark.parametrize("kind", MODELS)
def test_names_scope_and_columns_are_the_published_ones(kind):
    """Columns keep their names and fields; those of counts are numbers."""
    ours, theirs = OURS[kind]["spec"], published(kind)["spec"]
    assert OURS[kind]["metadata"]["name"] == PUBLISHED[kind]
    assert (ours["group"], ours["scope"]) == (theirs["group"], theirs["scope"])
    assert {key: ours["names"][key] for key in theirs["names"]} == theirs["names"]
    assert ours["versions"][0]["name"] == theirs["versions"][0]["name"]
    columns = [
        {
            (column["name"], column["jsonPath"], column.get("priority", 0))
            for column in spec["versions"][0]["additionalPrinterColumns"]
        }
        for spec in (ours, theirs)
    ]
    # GKM's later generation dropped the column Node; the CSI generation has it.
    added = {("Node", ".status.nodeName", 0)} if kind.endswith("Node") else set()
    assert columns[0] == columns[1] | added


IMAGES = st.sampled_from(["quay.io/gkm/cache:v1", "host:5000/img", f"a@sha256:{'0' * 64}"])


def published_objects(kind: str) -> st.SearchStrategy[dict[str, Any]]:
    schema = published(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    defaults = {
        ".apiVersion": st.just(GKM_API_VERSION),
        ".kind": st.just(kind),
        ".metadata": st.fixed_dictionaries({"name": st.just("a")}),
        ".spec.image": IMAGES,
    }
    # 300 fields of a pod's affinity need no second generator: unknown fields are kept there.
    defaults[".spec.podTemplate"] = st.just({"spec": {"tolerations": [{"key": "gpu"}]}})
    return objects_of(schema | {"required": ["apiVersion", "kind", "metadata"]}, defaults)


@pytest.mark.parametrize("kind", MODELS)
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_what_the_published_schema_accepts_ours_accepts(kind, data):
    body = data.draw(published_objects(kind))
    assert faults(body, published(kind)) == []
    unknown, refused = served(body)
    assert [field for field in unknown if not PVC_STATUS.fullmatch(field)] == []
    assert refused == []
    msgspec.convert(body, MODELS[kind])


def served(body: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Return the unknown fields and the refusals of our schema, in the order of the API server; fill in defaults."""
    schema = SCHEMAS[body["kind"]]
    unknown = schema.prune(body)
    schema.default(body)
    return unknown, [fault.message for fault in schema.validate(body, None)]


@pytest.mark.parametrize("kind", ["GKMCache", "ClusterGKMCache"])
def test_published_samples_are_accepted(kind):
    sample = published_sample(PUBLISHED[kind])
    assert served(sample) == ([], [])
    assert "image" not in sample.get("spec", {})
    msgspec.convert(sample, MODELS[sample["kind"]])


@pytest.mark.parametrize(
    ("name", "spec", "why"),
    [
        ("a" * 247, {"image": "a"}, "metadata.name is longer than 246 characters"),
        ("a", {"image": "a", "verification": {}}, "verification accepts no signature"),
        ("a", {"image": "a", "verification": {"keys": []}}, "verification accepts no signature"),
        ("a", {"image": "A b"}, "spec.image in body should match"),
        ("a", {"image": "a", "warm": "3"}, "spec.warm in body should match '^(All|Demand)$'"),
        ("a", {"image": "a", "warm": 0}, "spec.warm in body should be greater than or equal to 1"),
        ("a", {}, "Required value"),
    ],
)
@pytest.mark.parametrize("kind", ["GKMCache", "ClusterGKMCache"])
def test_rules_of_the_api_server_refuse_with_the_cure(kind, name, spec, why):
    body = {"apiVersion": GKM_API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}
    _, refused = served(body)
    assert [text for text in refused if why in text]


def test_verification_by_identity_alone_is_accepted_and_enforced():
    signer = {"subject": "https://ci.example.com/build", "issuer": "https://ci.example.com"}
    spec: dict[str, Any] = {"image": "a", "warm": 3, "verification": {"identities": [signer]}}
    body = {"apiVersion": GKM_API_VERSION, "kind": "GKMCache", "metadata": {"name": "a"}}
    body |= {"spec": spec}
    assert served(body) == ([], [])
    assert spec["verification"]["mode"] == "Enforce"


def test_published_pattern_of_an_image_is_near_useless_and_ours_is_anchored():
    """Section 1.1: GKM's pattern is unanchored, so that any text with a letter passes."""
    image = crd_schema(GKMCache)["properties"]["spec"]["properties"]["image"]
    assert image["pattern"] == IMAGE_PATTERN
    assert image["maxLength"] == 525
    assert re.search("[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}", "http:// no image!")
    assert not re.search(image["pattern"], "http:// no image!")


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"image": "not an image"}, r"matching regex .* `\$.spec.image`"),
        ({"image": "a", "warm": 0}, r">= 1 - at `\$.spec.warm`"),
        ({"image": "a", "warm": "Some"}, r"Invalid enum value 'Some' - at `\$.spec.warm`"),
        ({"image": "a", "verification": {"mode": "Off"}}, "Invalid enum value 'Off'"),
        ({"image": "a", "verification": {"identities": [{"subject": "a"}]}}, "`issuer`"),
        ({"image": "a", "verification": {"keys": ["-----BEGIN PRIVATE KEY-----"]}}, "regex"),
        ({"image": "a", "pullSecrets": [{}]}, "`name`"),
    ],
)
def test_spec_outside_the_schema_is_not_decoded(fields, fault):
    """W1: an identity is a subject and an issuer."""
    with pytest.raises(msgspec.ValidationError, match=fault):
        msgspec.convert({"spec": fields}, GKMCache)


@pytest.mark.parametrize(
    ("warm", "want"),
    [(None, WarmPolicy.ALL), ("All", WarmPolicy.ALL), ("Demand", WarmPolicy.DEMAND), (3, 3)],
)
def test_caches_are_warm_everywhere_unless_the_spec_says_otherwise(warm, want):
    fields = {"image": "a"} | ({"warm": warm} if warm is not None else {})
    assert msgspec.convert(fields, GKMCacheSpec).warm_nodes == want


@pytest.mark.parametrize(
    ("key", "is_public"),
    [
        ("-----BEGIN PUBLIC KEY-----\nMFkw\n-----END PUBLIC KEY-----\n", True),
        ("\n-----BEGIN RSA PUBLIC KEY-----", True),
        ("-----BEGIN EC PRIVATE KEY-----", False),
        ("-----BEGIN CERTIFICATE-----", False),
    ],
)
def test_only_public_keys_are_stored(key, is_public):
    assert bool(re.search(PUBLIC_KEY_PATTERN, key)) is is_public


def test_fields_without_effect_are_named():
    spec = msgspec.convert(
        {"image": "a", "accessModes": ["ReadOnlyMany"], "podTemplate": {"spec": {}}}, GKMCacheSpec
    )
    assert spec.ignored_fields == ("podTemplate", "accessModes")
    assert GKMCacheSpec(image="a").ignored_fields == ()


def test_cache_knows_its_name_its_digest_and_its_deletion():
    metadata = {
        "name": "a",
        "namespace": "ml",
        "annotations": {"gkm.io/resolvedDigest": "sha256:1"},
        "deletionTimestamp": "2026-11-23T00:00:00Z",
    }
    found = msgspec.convert({"metadata": metadata}, GKMCache)
    assert (found.cache_name.namespace, found.cache_name.name) == ("ml", "a")
    assert found.annotated_digest == "sha256:1"
    assert found.is_deleting
    assert not GKMCache().is_deleting
    assert ClusterGKMCache().annotated_digest is None


def test_node_object_without_a_status_has_no_digests():
    """GKM's issue 54: its agent loops where a GKMCacheNode has no status."""
    assert msgspec.convert({"metadata": {"name": "n"}}, GKMCacheNode).digests_of("a") == {}


def test_node_object_has_digests_by_cache():
    status = {"nodeName": "n", "caches": {"a": {"sha256:1": {"volumeSize": 5}}}}
    found = msgspec.convert({"status": status}, ClusterGKMCacheNode)
    assert found.node == "n"
    assert found.digests_of("a")["sha256:1"].volume_size == 5


def test_counts_are_written_with_their_zeros():
    """Columns of `kubectl get` would be empty otherwise."""
    found = msgspec.to_builtins(
        msgspec.convert({"status": {"counts": {"nodeCnt": 1}}}, GKMCache).status
    )
    assert found["counts"] == dict.fromkeys(COUNTS, 0) | {"nodeCnt": 1}


def test_finalizer_of_a_node_object_names_the_cache():
    assert cache_node_finalizer("llama") == "gkm.io.llama/finalizer"
