"""Configurations that would be silently unsafe cannot be built."""

import pytest
import yaml

from cli.main import run
from manifests.install.scheduler import (
    EXTENDER_WEIGHT,
    ExtenderEndpoint,
    ExtenderTls,
    build_extender_snippet,
    build_scheduler_configuration,
)

PLAIN = ExtenderEndpoint(base_url="http://127.0.0.1:8080/")


@pytest.mark.parametrize(
    "files",
    [
        pytest.param({}, id="no authority"),
        pytest.param({"ca_file": "ca.crt", "ca_data": b"ca"}, id="two authorities"),
        pytest.param({"ca_file": "ca.crt", "cert_file": "tls.crt"}, id="certificate alone"),
        pytest.param({"ca_file": "ca.crt", "key_data": b"key"}, id="key alone"),
    ],
)
def test_tls_is_complete(files):
    with pytest.raises(ValueError, match=r"ca_file or ca_data|belong together"):
        ExtenderTls(**files)


def test_key_is_not_shown():
    tls = ExtenderTls(ca_data=b"ca", cert_data=b"certificate", key_data=b"secret")
    assert "secret" not in repr(tls)


def test_https_without_an_authority_is_refused():
    """Lesson 28: without a CA kube-scheduler verifies nothing and says nothing."""
    with pytest.raises(ValueError, match="https needs tls"):
        ExtenderEndpoint(base_url="https://127.0.0.1:8443")


def test_http_with_tls_is_refused():
    with pytest.raises(ValueError, match="http takes none"):
        ExtenderEndpoint(base_url="http://127.0.0.1:8443", tls=ExtenderTls(ca_file="ca.crt"))


def test_data_is_encoded_as_kubernetes_does():
    tls = ExtenderTls(ca_data=b"ca", cert_data=b"certificate", key_data=b"key")
    assert tls.build() == {"caData": "Y2E=", "certData": "Y2VydGlmaWNhdGU=", "keyData": "a2V5"}


def test_own_scheduler_names_no_resources_since_pools_come_and_go():
    [extender] = build_scheduler_configuration(PLAIN)["extenders"]
    assert "managedResources" not in extender
    assert extender["urlPrefix"] == "http://127.0.0.1:8080/scheduler"


def test_a_pod_is_never_bound_without_us():
    """Lesson 30: an ignorable binder that is away leaves the pod to the default one, without devices."""
    configurations = (build_scheduler_configuration(PLAIN), build_extender_snippet(PLAIN, ["a"]))
    for configuration in configurations:
        [extender] = configuration["extenders"]
        assert extender["ignorable"] is False
        assert extender["bindVerb"] == "bind"


def test_snippet_leaves_the_counts_to_the_scheduler_too():
    """Lesson 22: counts that it ignored would let it offer us only nodes that are full."""
    [extender] = build_extender_snippet(PLAIN, ["b", "a", "b"])["extenders"]
    assert extender["managedResources"] == [
        {"name": "a", "ignoredByScheduler": False},
        {"name": "b", "ignoredByScheduler": False},
    ]


def test_snippet_without_resources_would_catch_every_pod():
    with pytest.raises(ValueError, match="every pod of the cluster"):
        build_extender_snippet(PLAIN, [])


def test_one_point_outweighs_all_scores_of_the_default_plugins():
    weights_of_default_plugins = 15
    assert 100 * weights_of_default_plugins < 10 * EXTENDER_WEIGHT


def test_render_prints_the_snippet_for_the_resources_of_pools(capsys: pytest.CaptureFixture[str]):
    resources = ["--resource", "gpu.deckhouse.io/a", "--resource", "gpu.deckhouse.io/b"]
    assert run(["render", "scheduler-config", *resources]) == 0
    [extender] = yaml.safe_load(capsys.readouterr().out)["extenders"]
    assert extender["urlPrefix"] == "https://gpu-control-plane.gpu-control-plane.svc/scheduler"
    assert [resource["name"] for resource in extender["managedResources"]] == resources[1::2]
