"""DaemonSets: defaults, and the rules of the selector."""

from typing import Any

import pytest

from tests.support.api_servers import Api

Json = dict[str, Any]


@pytest.fixture
def daemonsets(namespace: str) -> str:
    return f"/apis/apps/v1/namespaces/{namespace}/daemonsets"


def a_daemonset(name: str = "d", **spec: Any) -> Json:
    container = {
        "name": "main",
        "image": "i:1",
        "env": [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "livenessProbe": {"httpGet": {"path": "/", "port": 80}},
    }
    volumes = [
        {"name": "host", "hostPath": {"path": "/x"}},
        {"name": "config", "configMap": {"name": "c"}},
    ]
    pod = {"containers": [container], "volumes": volumes, "serviceAccountName": "a"}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name, "more": "yes"}}, "spec": pod},
            **spec,
        },
    }


async def test_a_daemonset_is_filled_in(api: Api, daemonsets: str) -> None:
    spec = (await api.created(daemonsets, a_daemonset())).body["spec"]
    assert spec["updateStrategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0},
    }
    pod = spec["template"]["spec"]
    assert (pod["restartPolicy"], pod["dnsPolicy"], pod["serviceAccount"]) == (
        "Always",
        "ClusterFirst",
        "a",
    )
    assert "enableServiceLinks" not in pod, "that is a default of pods, not of their templates"
    (container,) = pod["containers"]
    assert container["imagePullPolicy"] == "IfNotPresent"
    assert container["env"][0]["valueFrom"]["fieldRef"]["apiVersion"] == "v1"
    assert container["livenessProbe"] == {
        "httpGet": {"path": "/", "port": 80, "scheme": "HTTP"},
        "timeoutSeconds": 1,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    }
    assert [volume.get("configMap", {}).get("defaultMode") for volume in pod["volumes"]] == [
        None,
        420,
    ]


@pytest.mark.parametrize(
    "selector",
    [pytest.param({"matchLabels": {"app": "other"}}, id="others"), pytest.param(None, id="none")],
)
async def test_the_selector_selects_the_template(
    api: Api, daemonsets: str, selector: Json | None
) -> None:
    answer = await api.post(daemonsets, a_daemonset(selector=selector))
    assert answer.status == 422
    assert "`selector` does not match template `labels`" in answer.message


async def test_the_selector_cannot_change(api: Api, daemonsets: str) -> None:
    await api.created(daemonsets, a_daemonset())
    patch = {"spec": {"selector": {"matchLabels": {"app": "d", "more": "yes"}}}}
    answer = await api.merge(f"{daemonsets}/d", patch)
    assert answer.status == 422
    assert "spec.selector: Invalid value" in answer.message
    assert "field is immutable" in answer.message


async def test_generation_moves_with_the_spec_only(api: Api, daemonsets: str) -> None:
    await api.created(daemonsets, a_daemonset())
    path = f"{daemonsets}/d"
    labelled = await api.merge(path, {"metadata": {"labels": {"a": "b"}}})
    assert labelled.body["metadata"]["generation"] == 1
    changed = await api.merge(path, {"spec": {"minReadySeconds": 3}})
    assert changed.body["metadata"]["generation"] == 2
