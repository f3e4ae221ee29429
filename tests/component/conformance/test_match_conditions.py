"""Match conditions of webhooks: CEL, as our manifests render it and as it fails."""

from typing import Any

import pytest

from api.names import ASSIGNMENT_ANNOTATION
from manifests.install import webhooks
from tests.support.api_servers import Api, unique
from tests.support.conformance import CRDS, Hooks, Widgets, a_definition, a_pod, until

Json = dict[str, Any]

REGISTRATION = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
LIMITS = {"gpu.deckhouse.io/pool": "1"}
FAILS = "object.metadata.labels['missing'] == ''"


def conditions(*expressions: str) -> list[Json]:
    return [{"name": f"c{index}", "expression": item} for index, item in enumerate(expressions)]


async def guard(api: Api, hooks: Hooks, path: str, body: Json, **changes: object) -> None:
    """Have `/validate` called under the conditions; this object meets them."""
    config = hooks.server.config("/validate", hooks.namespace, **changes)
    await hooks.register("Validating", "c", config)
    await until(
        lambda: api.post(path, body, dryRun="All"), lambda _: "/validate" in hooks.server.calls
    )
    hooks.server.calls.clear()


@pytest.mark.parametrize(
    ("pod", "is_called"),
    [
        pytest.param(a_pod("p"), False, id="nothing"),
        pytest.param(a_pod("p", limits={"cpu": "1"}), False, id="cpu only"),
        pytest.param(a_pod("p", limits=LIMITS), True, id="a limit"),
        pytest.param(
            a_pod(
                "p",
                initContainers=[
                    {"name": "i", "image": "localhost/image:1", "resources": {"limits": LIMITS}}
                ],
            ),
            True,
            id="a limit of an init container",
        ),
        pytest.param(
            a_pod("p", metadata={"annotations": {"gpu.deckhouse.io/devices": "{}"}}),
            True,
            id="an annotation",
        ),
        pytest.param(
            a_pod("p", metadata={"annotations": {"example.com/devices": "{}"}}),
            False,
            id="another annotation",
        ),
    ],
)
async def test_pods_that_name_no_pool_do_not_reach_the_webhook(
    pod: Json, is_called: bool, api: Api, pods: str, hooks: Hooks
) -> None:
    rendered = conditions(webhooks.POOL_POD_EXPRESSION, f"!{webhooks.MIRRORED_EXPRESSION}")
    await guard(api, hooks, pods, a_pod("probe", limits=LIMITS), matchConditions=rendered)
    await api.created(pods, pod)
    assert ("/validate" in hooks.server.calls) is is_called


@pytest.mark.parametrize(
    ("expression", "changes"),
    [
        pytest.param(
            webhooks.SPEC_CHANGED_EXPRESSION,
            [
                ({"metadata": {"labels": {"a": "b"}}}, False),
                ({"spec": {"mode": "B"}}, True),
            ],
            id="spec",
        ),
        pytest.param(
            webhooks.NEW_ASSIGNMENT_EXPRESSION,
            [
                ({"metadata": {"labels": {"a": "b"}}}, False),
                ({"metadata": {"annotations": {ASSIGNMENT_ANNOTATION: "other"}}}, True),
                ({"metadata": {"annotations": {ASSIGNMENT_ANNOTATION: None}}}, False),
            ],
            id="assignment",
        ),
    ],
)
async def test_an_update_reaches_the_webhook_by_what_it_changes(
    expression: str,
    changes: list[tuple[Json, bool]],
    api: Api,
    spaced_widgets: Widgets,
    hooks: Hooks,
) -> None:
    rules = [
        {
            "apiGroups": [spaced_widgets.group],
            "apiVersions": ["v1"],
            "operations": ["CREATE", "UPDATE"],
            "resources": ["widgets"],
        }
    ]
    widget = spaced_widgets.make("w", {"mode": "A"})
    widget["metadata"]["annotations"] = {ASSIGNMENT_ANNOTATION: "train"}
    await guard(
        api,
        hooks,
        spaced_widgets.path,
        widget,
        rules=rules,
        matchConditions=conditions(expression),
    )
    await api.created(spaced_widgets.path, widget)
    assert "/validate" in hooks.server.calls
    for change, is_called in changes:
        hooks.server.calls.clear()
        assert (await api.merge(f"{spaced_widgets.path}/w", change)).status == 200
        assert ("/validate" in hooks.server.calls) is is_called, change


@pytest.mark.parametrize(
    ("policy", "expressions", "status"),
    [
        pytest.param("Fail", [FAILS], 403, id="fail closed"),
        pytest.param("Ignore", [FAILS], 201, id="fail open"),
        pytest.param(
            "Fail", [FAILS, "object.metadata.name == 'q'"], 201, id="another one is false"
        ),
    ],
)
async def test_a_condition_that_fails_goes_by_the_failure_policy(
    policy: str, expressions: list[str], status: int, api: Api, pods: str, hooks: Hooks
) -> None:
    # Labels that only the probe has let the condition be evaluated.
    probe = a_pod("q", metadata={"labels": {"missing": ""}})
    await guard(
        api,
        hooks,
        pods,
        probe,
        matchConditions=conditions(*expressions),
        failurePolicy=policy,
    )
    assert (await api.post(pods, a_pod("p"))).status == status
    assert hooks.server.calls == {}


async def test_a_condition_has_to_compile(api: Api, hooks: Hooks) -> None:
    config = hooks.server.config(
        "/validate", hooks.namespace, matchConditions=conditions("true", "object.metadata.")
    )
    body = {"metadata": {"name": unique("v")}, "webhooks": [config]}
    answer = await api.post(REGISTRATION, body)
    assert answer.status == 422
    assert 'webhooks[0].matchConditions[1].expression: Invalid value: "object.metadata."' in (
        answer.message
    )
    assert "compilation failed" in answer.message


async def test_a_rule_of_a_definition_has_to_compile(api: Api) -> None:
    body = a_definition(unique("g") + ".example")
    root = body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    root["x-kubernetes-validations"] = [{"rule": "self.spec.", "message": "no"}]
    answer = await api.post(CRDS, body)
    assert answer.status == 422
    assert "openAPIV3Schema.x-kubernetes-validations[0].rule: Invalid value" in answer.message
    assert "compilation failed" in answer.message
