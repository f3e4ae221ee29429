"""Everything that `render all` prints, and that the chart is made of."""

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pydantic import ValidationError

from api.meta import LabelSelector
from cli.command_parser import CommandParser
from cli.console import add_arguments, settings_of
from cli.installed_objects import build_groups, build_installed_objects
from manifests.install.installation import Installation, overlaid, release_of
from manifests.install.values import ChartValues
from manifests.node.agent_daemonset import build_node_agent
from manifests.node.detector_daemonset import build_node_detector
from manifests.node.device_plugin import WorkloadSettings
from operands.nvidia.policy_states import build_operands
from operands.operand_state import ALL_KINDS_SERVED
from server.setting_fields import setting_fields
from server.settings import BadSettingsError, Settings
from server.values_file import build_installation, load_values
from tests.support.installed_settings import installed_settings
from tests.unit.manifests import pool_objects
from tests.unit.operands.operand_cases import ALL_ON

CLUSTER_SCOPED = {
    "Namespace",
    "CustomResourceDefinition",
    "ClusterRole",
    "ClusterRoleBinding",
    "CSIDriver",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "NodeFeatureRule",
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
}
EVERYTHING: dict[str, Any] = {
    "kernelCaches": {
        "pullSecrets": ["registry"],
        "registries": {"caConfigMap": "registries"},
        "verification": {"trustRootConfigMap": "sigstore"},
    },
    "networkPolicy": {"enabled": True},
    "monitoring": {
        "serviceMonitor": {"enabled": True},
        "podMonitor": {"enabled": True},
        "prometheusRule": {"enabled": True},
        "dashboards": {"enabled": True},
    },
    "tls": {"source": "CertManager"},
    "console": {"enabled": True, "hosts": ["gpu.example.com"]},
    "nodeFeatureRule": {"enabled": True},
}
CONSOLE: dict[str, Any] = {"console": {"enabled": True, "tls": {"secretName": "console"}}}


def installation_of(given: dict[str, Any], *, namespace: str = "gpu") -> Installation:
    defaults = ChartValues().model_dump(mode="json", by_alias=True)
    values = ChartValues.model_validate(overlaid(defaults, given))
    return build_installation(values, namespace=namespace)


def objects_of(given: dict[str, Any], *, namespace: str = "gpu") -> list[dict[str, Any]]:
    return build_installed_objects(installation_of(given, namespace=namespace))


def find(objects: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    (found,) = [
        object_
        for object_ in objects
        if object_["kind"] == kind and object_["metadata"]["name"] == name
    ]
    return found


def write(directory: Path, text: str) -> Path:
    file = directory / "values.yaml"
    file.write_text(text, encoding="utf-8")
    return file


@pytest.mark.parametrize("given", [{}, EVERYTHING], ids=["default", "everything"])
def test_no_object_comes_twice_and_namespaced_ones_are_in_the_namespace(given: dict[str, Any]):
    objects = objects_of(given)
    names = Counter(
        (
            object_["apiVersion"],
            object_["kind"],
            object_["metadata"].get("namespace"),
            object_["metadata"]["name"],
        )
        for object_ in objects
    )
    assert [item for item, count in names.items() if count > 1] == []
    for object_ in objects:
        expected = {None} if object_["kind"] in CLUSTER_SCOPED else {"gpu", "kube-system"}
        assert object_["metadata"].get("namespace") in expected, object_["metadata"]


def test_what_others_need_comes_first():
    kinds = [object_["kind"] for object_ in objects_of(EVERYTHING)]
    assert kinds[0] == "Namespace"
    assert kinds[-2:] == ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"]
    order = ["CustomResourceDefinition", "ServiceAccount", "Service", "Deployment"]
    first = [kinds.index(kind) for kind in order]
    assert first == sorted(first)


def test_no_ca_bundle_is_rendered():
    for object_ in objects_of({}):
        for webhook in object_.get("webhooks", []):
            assert set(webhook["clientConfig"]) == {"service"}
            assert webhook["clientConfig"]["service"]["namespace"] == "gpu"


@pytest.mark.parametrize("given", [{}, EVERYTHING], ids=["default", "everything"])
def test_pods_are_restricted(given: dict[str, Any]):
    deployments = [object_ for object_ in objects_of(given) if object_["kind"] == "Deployment"]
    assert len(deployments) == (3 if given else 2)
    for deployment in deployments:
        spec = deployment["spec"]["template"]["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        (container,) = spec["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        }
        allowed = {"configMap", "secret", "projected"}
        assert all((set(volume) - {"name"}) <= allowed for volume in spec.get("volumes", ()))


@pytest.mark.parametrize("given", [{}, EVERYTHING], ids=["default", "everything"])
def test_each_mount_has_a_volume_and_each_selector_its_pods(given: dict[str, Any]):
    objects = objects_of(given)
    deployments = [object_ for object_ in objects if object_["kind"] == "Deployment"]
    for deployment in deployments:
        spec = deployment["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        mounted = {mount["name"] for mount in container.get("volumeMounts", ())}
        assert mounted == {volume["name"] for volume in spec.get("volumes", ())}
        labels = deployment["spec"]["template"]["metadata"]["labels"].items()
        assert deployment["spec"]["selector"]["matchLabels"].items() <= labels
    pods = [
        deployment["spec"]["template"]["metadata"]["labels"].items() for deployment in deployments
    ]
    metrics = find(objects, "Service", "gpu-control-plane-metrics")
    budgets = [object_ for object_ in objects if object_["kind"] == "PodDisruptionBudget"]
    selectors = [
        metrics["spec"]["selector"],
        *(budget["spec"]["selector"]["matchLabels"] for budget in budgets),
    ]
    if given:
        selectors.append(find(objects, "Service", "gpu-console")["spec"]["selector"])
    assert len(selectors) == (4 if given else 3)
    for selector in selectors:
        assert sum(selector.items() <= labels for labels in pods) == 1


def test_service_leads_to_the_replica_that_says_so():
    """It selects no pods; of those, all that are synced are ready, so that rollouts go on."""
    objects = objects_of({})
    assert "selector" not in find(objects, "Service", "gpu-control-plane")["spec"]
    server = find(objects, "Deployment", "gpu-control-plane")
    (container,) = server["spec"]["template"]["spec"]["containers"]
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz/synced"
    (variable,) = container["env"]
    fields = {field.variable for field in setting_fields(Settings.model_json_schema())}
    assert variable["name"] in fields
    assert variable["name"].endswith("LISTEN__ADVERTISED_ADDRESS")
    assert variable["valueFrom"] == {"fieldRef": {"fieldPath": "status.podIP"}}


def test_monitor_selects_the_service_of_all_replicas():
    objects = objects_of(EVERYTHING)
    monitor = find(objects, "ServiceMonitor", "gpu-control-plane")
    selector = monitor["spec"]["selector"]["matchLabels"].items()
    selected = [
        object_["metadata"]["name"]
        for object_ in objects
        if object_["kind"] == "Service" and selector <= object_["metadata"]["labels"].items()
    ]
    assert selected == ["gpu-control-plane-metrics"]
    (endpoint,) = monitor["spec"]["endpoints"]
    ports = find(objects, "Service", "gpu-control-plane-metrics")["spec"]["ports"]
    assert [port["name"] for port in ports] == [endpoint["port"]]


def test_usage_is_read_with_the_token_of_prometheus_where_that_is_wanted():
    values = {"monitoring": {"serviceMonitor": {"enabled": True, "usage": True}}}
    monitor = find(objects_of(values), "ServiceMonitor", "gpu-control-plane")
    open_page, usage = monitor["spec"]["endpoints"]
    assert (open_page["path"], usage["path"]) == ("/metrics", "/metrics/usage")
    assert "bearerTokenFile" not in open_page
    assert usage["bearerTokenFile"].endswith("/serviceaccount/token")
    assert usage["tlsConfig"] == open_page["tlsConfig"]


@pytest.mark.parametrize("page", ["&x", "https://a b", "https://a#b", "a: b", ""])
def test_a_page_of_runbooks_is_an_address(page: str):
    rule = {"enabled": True, "runbookPage": page}
    with pytest.raises(ValidationError):
        objects_of({"monitoring": {"prometheusRule": rule}})


def test_server_gets_a_dollar_of_a_setting_as_it_was_written():
    selector = {"a": "$(HOME) $$ $"}
    given = {"settings": {"node_agent": {"node_selector": selector}}}
    server = find(objects_of(given), "Deployment", "gpu-control-plane")
    (container,) = server["spec"]["template"]["spec"]["containers"]
    assert '"$$(HOME) $$$$ $$"' in container["args"][2]
    assert installed_settings(objects_of(given))["node_agent"]["node_selector"] == selector


def test_scheduler_mounts_what_it_reads_and_no_key_of_a_ca():
    scheduler = find(objects_of({}), "Deployment", "gpu-scheduler")
    volumes = {
        volume["name"]: volume for volume in scheduler["spec"]["template"]["spec"]["volumes"]
    }
    secret = volumes["tls"]["secret"]
    assert secret["secretName"] == "gpu-control-plane-scheduler"
    assert [item["key"] for item in secret["items"]] == ["ca.crt", "scheduler.crt", "scheduler.key"]


def test_the_container_has_the_port_of_the_settings():
    server = find(
        objects_of({"settings": {"listen": {"port": 9443}}}), "Deployment", "gpu-control-plane"
    )
    (container,) = server["spec"]["template"]["spec"]["containers"]
    assert container["ports"][0]["containerPort"] == 9443


def test_image_reaches_the_server_its_operands_and_the_policy():
    digest = "sha256:" + "0" * 64
    given = {
        "image": {
            "registry": "registry.test:5000",
            "tag": "1.0",
            "digest": digest,
            "pullPolicy": "Always",
            "pullSecrets": ["registry"],
        }
    }
    image = f"registry.test:5000/gpu-control-plane:1.0@{digest}"
    objects = objects_of(given)
    server = find(objects, "Deployment", "gpu-control-plane")
    pods = server["spec"]["template"]["spec"]
    assert pods["containers"][0]["image"] == image
    assert pods["containers"][0]["imagePullPolicy"] == "Always"
    assert pods["imagePullSecrets"] == [{"name": "registry"}]
    settings = installed_settings(objects)
    assert settings["device_plugin"] == {"image": image}
    assert settings["node_agent"] == {
        "image": image,
        "image_pull_policy": "Always",
        "image_pull_secrets": ["registry"],
    }
    policy = find(objects, "ValidatingAdmissionPolicy", "gpu-control-plane-server-objects")
    assert any(f"in ['{image}']" in rule["expression"] for rule in policy["spec"]["validations"])


def test_change_of_a_setting_restarts_the_servers():
    def template(given: dict[str, Any]) -> dict[str, Any]:
        server = find(objects_of(given), "Deployment", "gpu-control-plane")
        found: dict[str, Any] = server["spec"]["template"]
        return found

    assert template({}) == template({"server": {"replicas": 3}})
    assert template({}) != template({"settings": {"drain_s": 6}})


@pytest.mark.parametrize(
    ("version", "expected"),
    [("v1.34.2-eks-1", "v1.34.2"), ("v1.33.5+k3s1", "v1.33.5"), ("v1.36.3", "v1.36.3")],
)
def test_vendor_of_a_cluster_is_cut_off_its_version(version: str, expected: str):
    assert release_of(version) == expected


def test_kube_scheduler_has_the_version_of_the_cluster():
    installation = build_installation(
        ChartValues(), namespace="gpu", kubernetes_version="v1.34.2-eks-1"
    )
    assert installation.scheduler_image == "registry.k8s.io/kube-scheduler:v1.34.2"


def test_certificates_of_cert_manager_are_those_that_pods_mount():
    objects = objects_of(EVERYTHING)
    made = {
        object_["spec"]["secretName"] for object_ in objects if object_["kind"] == "Certificate"
    }
    mounted = {
        source["secret"].get("secretName") or source["secret"]["name"]
        for object_ in objects
        if object_["kind"] == "Deployment"
        for volume in object_["spec"]["template"]["spec"]["volumes"]
        for source in (volume, *volume.get("projected", {}).get("sources", []))
        if "secret" in source
    }
    assert mounted <= made
    assert installed_settings(objects)["tls"] == {
        "source": "Files",
        "directory": "/etc/gpu-control-plane/tls",
    }
    for object_ in objects:
        if object_["kind"].endswith("WebhookConfiguration"):
            annotation = object_["metadata"]["annotations"]["cert-manager.io/inject-ca-from"]
            assert annotation == "gpu/gpu-control-plane-tls"
    given = {"tls": {"source": "CertManager", "certManager": {"issuerRef": {"name": "corporate"}}}}
    serving = find(objects_of(given), "Certificate", "gpu-control-plane-tls")
    assert serving["spec"]["issuerRef"] == {"name": "corporate"}


def test_a_server_whose_certificates_others_issue_writes_neither_webhooks_nor_their_secrets():
    def written(given: dict[str, Any]) -> set[str]:
        objects = objects_of(given)
        roles = [find(objects, kind, "gpu-control-plane") for kind in ("ClusterRole", "Role")]
        return {
            name
            for role in roles
            for rule in role["rules"]
            if "patch" in rule["verbs"]
            for name in rule.get("resourceNames", [])
        }

    ours = {"zz-gpu-control-plane", "gpu-control-plane-scheduler", "gpu-control-plane-tls"}
    assert written({}) >= ours
    assert not written({"tls": {"source": "CertManager"}}) & ours


def test_the_console_is_off_unless_it_is_asked_for():
    assert not [object_ for object_ in objects_of({}) if is_of_console(object_)]


def is_of_console(one: dict[str, Any]) -> bool:
    name = one["metadata"]["name"]
    return bool(name.startswith("gpu-console") and name != "gpu-console-viewer")


def test_the_console_has_an_account_of_its_own_that_writes_nothing_but_reviews():
    objects = [object_ for object_ in objects_of(CONSOLE) if is_of_console(object_)]
    pods = find(objects, "Deployment", "gpu-console")["spec"]["template"]["spec"]
    assert pods["serviceAccountName"] == "gpu-console"
    roles = [find(objects, kind, "gpu-console") for kind in ("ClusterRole", "Role")]
    rules = [rule for role in roles for rule in role["rules"]]
    written = {
        resource
        for rule in rules
        for resource in rule["resources"]
        if not set(rule["verbs"]) <= {"get", "list", "watch"}
    }
    assert written == {"tokenreviews", "subjectaccessreviews"}
    assert all(rule["apiGroups"] != ["*"] and "*" not in rule["resources"] for rule in rules)
    bindings = [find(objects, f"{role['kind']}Binding", "gpu-console") for role in roles]
    for binding in bindings:
        (subject,) = binding["subjects"]
        assert (subject["name"], subject["namespace"]) == ("gpu-console", "gpu")


@pytest.mark.parametrize(
    ("given", "scheme"),
    [
        ({"tls": {"secretName": "console"}}, "https"),
        ({"plainHttp": True}, "http"),
    ],
    ids=["TLS", "behind an ingress"],
)
def test_service_probes_and_policy_of_the_console_agree_on_the_port(
    given: dict[str, Any], scheme: str
):
    values = {"console": {"enabled": True, **given}, "networkPolicy": {"enabled": True}}
    objects = objects_of(values)
    (container,) = container_of_console(objects)
    assert [item["name"] for item in container["ports"]] == [scheme]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = container[probe]["httpGet"]
        assert (asked["port"], asked["scheme"]) == (scheme, scheme.upper())
    (port,) = find(objects, "Service", "gpu-console")["spec"]["ports"]
    assert port["targetPort"] == scheme
    policy = find(objects, "NetworkPolicy", "gpu-console")["spec"]
    assert policy["ingress"] == [{"ports": [{"port": scheme, "protocol": "TCP"}]}]
    mounted = [item["name"] for item in container.get("volumeMounts", [])]
    assert mounted == (["tls"] if scheme == "https" else [])


def test_pods_on_nodes_are_reached_by_ours_and_the_given_peers_alone():
    peers = [{"ipBlock": {"cidr": "192.0.2.0/24"}}]
    objects = objects_of({"networkPolicy": {"enabled": True, "ingressFrom": peers}})
    spec = find(objects, "NetworkPolicy", "gpu-node-agent")["spec"]
    ours, given = spec["ingress"]
    part_of_us = {"app.kubernetes.io/part-of": "gpu-control-plane"}
    assert ours == {"from": [{"podSelector": {"matchLabels": part_of_us}}]}
    assert given["from"] == peers
    assert [port["port"] for port in given["ports"]] == ["probes", "metrics"]
    selector = msgspec.convert(spec["podSelector"], LabelSelector)

    def selected(documents: list[dict[str, Any]]) -> set[bool]:
        return {
            selector.matches(document["spec"]["template"]["metadata"]["labels"])
            for document in documents
            if document["kind"] in {"DaemonSet", "Deployment"}
        }

    workloads = WorkloadSettings(image="i")
    assert selected(build_operands(ALL_ON, ALL_KINDS_SERVED)) == {True}
    assert selected(pool_objects.objects_of(pool_objects.a_pool("train"))) == {True}
    assert selected([*build_node_agent(workloads), *build_node_detector(workloads)]) == {True}
    assert selected(objects_of(EVERYTHING)) == {False}


@pytest.mark.parametrize(
    "given", [{"tls": {"secretName": "console"}}, {"plainHttp": True}], ids=str
)
def test_the_command_takes_the_arguments_of_the_console(given: dict[str, Any]):
    values = {"console": {"enabled": True, "hosts": ["gpu.example.com", "gpu"], **given}}
    (container,) = container_of_console(objects_of(values))
    command, *arguments = container["args"]
    assert command == "console"
    parser = CommandParser(command, "")
    add_arguments(parser)
    settings = settings_of(parser.parse_flags(arguments))
    assert (settings.namespace, settings.hosts) == ("gpu", ("gpu.example.com", "gpu"))
    assert settings.listen.port == container["ports"][0]["containerPort"]
    assert settings.is_plain is ("plainHttp" in given)
    if settings.certificate is not None:
        (mount,) = container["volumeMounts"]
        files = {settings.certificate.certificate, settings.certificate.key}
        assert {str(file.parent) for file in files} == {mount["mountPath"]}


def container_of_console(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    console = find(objects, "Deployment", "gpu-console")
    containers: list[dict[str, Any]] = console["spec"]["template"]["spec"]["containers"]
    return containers


def test_cert_manager_issues_the_certificate_of_a_console_that_has_none():
    objects = objects_of(EVERYTHING)
    certificate = find(objects, "Certificate", "gpu-console-tls")["spec"]
    assert certificate["dnsNames"] == [
        "gpu-console.gpu.svc",
        "gpu-console.gpu.svc.cluster.local",
        "gpu.example.com",
    ]
    given = {**EVERYTHING, "console": {"enabled": True, "tls": {"secretName": "own"}}}
    names = [
        object_["metadata"]["name"]
        for object_ in objects_of(given)
        if object_["kind"] == "Certificate"
    ]
    assert "gpu-console-tls" not in names
    volumes = find(objects_of(given), "Deployment", "gpu-console")["spec"]["template"]["spec"]
    assert volumes["volumes"][0]["secret"]["secretName"] == "own"


@pytest.mark.parametrize("given", [{}, EVERYTHING], ids=["default", "everything"])
def test_each_group_is_there_exactly_when_it_is_asked_for(given: dict[str, Any]):
    installation = installation_of(given)
    groups = build_groups(installation)
    expected = [
        object_
        for group in groups
        if group.is_selected(installation.values) and not group.is_hook
        for object_ in group.objects
    ]
    assert expected == build_installed_objects(installation)
    assert len({group.name for group in groups}) == len(groups)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("sever: {}", "values.yaml: sever: no such setting; did you mean server?"),
        (
            "server: {replicas: 0}",
            "values.yaml: server.replicas is 0; expected: integer, at least 1",
        ),
        ("server: {replicas: two}", "values.yaml: server.replicas is 'two'; expected: integer"),
        (
            "image: {registry: docker}",
            "values.yaml: image.registry: 'docker' is not a registry, as registry.example.com",
        ),
        ("settings: {lissten: {}}", "settings.lissten: no such setting; did you mean listen?"),
        ("settings: {namespace: other}", "settings.namespace is other, and the installation's is"),
        (
            "settings: {device_plugin: {image: registry.test/plugin}}",
            "image registry.test/plugin has neither tag nor digest",
        ),
        (
            "console: {enabled: true}",
            "console.enabled needs a certificate: set console.tls.secretName to a Secret of the type",
        ),
        (
            "console: {enabled: true, plainHttp: true, tls: {secretName: a}}",
            "console.plainHttp and console.tls.secretName exclude each other",
        ),
        (
            "console: {hosts: [gpu.example.com/path]}",
            "'gpu.example.com/path' is not a host name, as gpu.example.com",
        ),
        ("[]", "holds no mapping"),
    ],
)
def test_bad_values_are_one_line(tmp_path: Path, text: str, complaint: str):
    with pytest.raises(BadSettingsError) as error:
        build_installation(load_values(write(tmp_path, text)), namespace="gpu")
    assert complaint in str(error.value)
    assert "\n" not in str(error.value)


def test_settings_of_this_process_do_not_reach_the_objects(monkeypatch: pytest.MonkeyPatch):
    before = objects_of({})
    monkeypatch.setenv("GPU_CONTROL_PLANE_LEADERSHIP__LEASE", "other")
    assert objects_of({}) == before


def test_rights_of_a_backend_are_there_where_settings_name_it():
    names = ["karpenter-signal", "karpenter-static"]
    for backends, want in ((None, set()), (names, {"gpu-control-plane-karpenter-static"})):
        settings = {} if backends is None else {"autoscaling": {"backends": backends}}
        roles = {
            object_["metadata"]["name"]
            for object_ in objects_of({"settings": settings})
            if object_["kind"] == "ClusterRole"
        }
        assert {name for name in roles if "karpenter" in name} == want
