"""Kernel caches in an installation: present by one value, with rights on no Secret that was not named."""

from typing import Any

import msgspec
import pytest
import yaml

from admission.caches.required_signers import SIGNER_LINE, UNSIGNED_LINE
from api.kinds.gkmcache import GKMCache
from cli.installed_objects import build_installed_objects
from manifests.install.installation import overlaid
from manifests.install.rbac import build_pull_secret_rights
from manifests.install.values import ChartValues
from server.settings import BadSettingsError, Settings
from server.values_file import build_installation
from tests.support.installed_settings import installed_settings

CACHES: dict[str, Any] = {
    "pullSecrets": ["registry-a", "registry-b"],
    "registries": {"caConfigMap": "registries"},
    "verification": {"trustRootConfigMap": "sigstore"},
}
OF_CACHES = {
    "gkmcaches.gkm.io",
    "clustergkmcaches.gkm.io",
    "gkmcachenodes.gkm.io",
    "clustergkmcachenodes.gkm.io",
}


def objects_of(caches: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    defaults = ChartValues().model_dump(mode="json", by_alias=True)
    values = ChartValues.model_validate(overlaid(defaults, {"kernelCaches": caches, **more}))
    return build_installed_objects(build_installation(values, namespace="gpu"))


def names_of(objects: list[dict[str, Any]], kind: str) -> set[str]:
    return {object_["metadata"]["name"] for object_ in objects if object_["kind"] == kind}


def server_of(objects: list[dict[str, Any]]) -> dict[str, Any]:
    (spec,) = [
        object_["spec"]["template"]["spec"]
        for object_ in objects
        if object_["kind"] == "Deployment" and object_["metadata"]["name"] == "gpu-control-plane"
    ]
    return dict(spec)


def settings_of(objects: list[dict[str, Any]]) -> Settings:
    return Settings.model_validate(installed_settings(objects))


def test_one_value_takes_all_of_it_away():
    on, off = objects_of({}), objects_of({"enabled": False})
    assert names_of(on, "CustomResourceDefinition") >= OF_CACHES
    assert names_of(on, "CSIDriver") == {"csi.gkm.io"}
    assert OF_CACHES.isdisjoint(names_of(off, "CustomResourceDefinition"))
    assert names_of(off, "CSIDriver") == set()
    policies = {"gpu-control-plane-cache-claims", "gpu-control-plane-cluster-cache-claims"}
    assert names_of(on, "ValidatingAdmissionPolicyBinding") >= policies
    assert policies.isdisjoint(names_of(off, "ValidatingAdmissionPolicy"))
    assert not any("gpu-kernel-cache" in name for name in names_of(off, "ClusterRole"))
    assert settings_of(on).kernel_caches.enabled
    assert not settings_of(off).kernel_caches.enabled


def test_the_lines_that_a_refusal_of_an_unsigned_image_names_do_what_it_says():
    cache = msgspec.convert(yaml.safe_load(SIGNER_LINE), GKMCache, strict=True)
    assert cache.spec.verification is not None
    assert cache.spec.verification.keys == ["-----BEGIN PUBLIC KEY-----…"]
    values = yaml.safe_load(UNSIGNED_LINE)
    verification = settings_of(objects_of({}, **values)).kernel_caches.verification
    assert verification.allow_unsigned


@pytest.mark.parametrize("keep", [True, False])
def test_definitions_of_caches_are_kept_as_those_of_pools_are(keep: bool):
    objects = objects_of({}, crds={"keep": keep})
    crds = [object_ for object_ in objects if object_["kind"] == "CustomResourceDefinition"]
    policies = {
        crd["metadata"].get("annotations", {}).get("helm.sh/resource-policy") for crd in crds
    }
    assert policies == {"keep" if keep else None}
    assert not OF_CACHES & names_of(objects_of({}, crds={"enabled": False}), crds[0]["kind"])


def test_the_role_for_pull_secrets_is_bound_to_nobody():
    objects = objects_of(CACHES)
    (role,) = [
        object_
        for object_ in objects
        if object_["kind"] == "ClusterRole" and object_["metadata"]["name"].endswith("pull-secrets")
    ]
    assert role["rules"] == [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]
    bound = {
        object_["roleRef"]["name"] for object_ in objects if object_["kind"] == "ClusterRoleBinding"
    }
    assert role["metadata"]["name"] not in bound
    # An aggregated role would be bound to every user of `view`.
    assert not [label for label in role["metadata"]["labels"] if "aggregate" in label]


def test_server_and_agents_read_the_named_secrets_of_our_namespace_and_no_others():
    objects = objects_of(CACHES)
    role, binding = [
        object_
        for object_ in objects
        if object_["metadata"]["name"] == "gpu-kernel-cache-pull-secrets"
        and object_["kind"] in {"Role", "RoleBinding"}
    ]
    assert role["rules"] == [
        {
            "apiGroups": [""],
            "resources": ["secrets"],
            "resourceNames": ["registry-a", "registry-b"],
            "verbs": ["get"],
        }
    ]
    assert {subject["name"] for subject in binding["subjects"]} == {
        "gpu-control-plane",
        "gpu-node-agent",
    }
    assert binding["roleRef"]["kind"] == "Role"
    assert "gpu-kernel-cache-pull-secrets" not in names_of(objects_of({}), "Role")
    # A rule without names would be one for every Secret.
    assert build_pull_secret_rights((), "gpu") == []


def test_no_role_of_users_writes_a_status():
    roles = [
        object_
        for object_ in objects_of({})
        if object_["kind"] == "ClusterRole"
        and object_["metadata"]["name"].startswith("gpu-kernel-cache-")
    ]
    assert len(roles) == 4
    resources = [name for role in roles for rule in role["rules"] for name in rule["resources"]]
    assert not [name for name in resources if "/" in name]


def test_server_finds_authorities_and_trust_root_where_they_are_mounted():
    objects = objects_of(CACHES)
    spec, settings = server_of(objects), settings_of(objects).kernel_caches
    (container,) = spec["containers"]
    paths = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    sources = {
        volume["name"]: volume.get("configMap", {}).get("name") for volume in spec["volumes"]
    }
    assert (sources["registries-ca"], sources["trust-root"]) == ("registries", "sigstore")
    assert str(settings.registries.ca_file) == f"{paths['registries-ca']}/ca.crt"
    assert str(settings.verification.trust_root_file) == f"{paths['trust-root']}/trusted_root.json"
    assert settings_of(objects_of({})).kernel_caches.registries.ca_file is None


def test_a_file_that_is_named_is_preferred_to_that_of_the_config_map():
    given = {"registries": {"ca_config_map": "a", "ca_file": "/etc/ca.pem"}}
    settings = Settings.model_validate({"kernel_caches": given})
    assert str(settings.kernel_caches.registries.ca_file) == "/etc/ca.pem"


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"enabled": False}, "enabled is not what kernelCaches.enabled is"),
        ({"pull_secrets": ["other"]}, "pull_secrets is not what kernelCaches.pullSecrets is"),
        (
            {"registries": {"ca_config_map": "other"}},
            "registries.ca_config_map is not what kernelCaches.registries.caConfigMap is",
        ),
        (
            {"verification": {"trust_root_config_map": "other"}},
            "trust_root_config_map is not what kernelCaches.verification.trustRootConfigMap is",
        ),
    ],
)
def test_settings_that_contradict_the_values_are_refused(given: dict[str, Any], complaint: str):
    with pytest.raises(BadSettingsError, match=complaint):
        objects_of({}, settings={"kernel_caches": given})


def test_servers_and_agents_reach_every_registry():
    """Registries are at addresses that no policy can name: nothing that is installed limits what leaves a pod."""
    policies = [
        object_
        for object_ in objects_of(CACHES, networkPolicy={"enabled": True})
        if object_["kind"] == "NetworkPolicy"
    ]
    assert policies
    for policy in policies:
        assert policy["spec"]["policyTypes"] == ["Ingress"]
        assert "egress" not in policy["spec"]
