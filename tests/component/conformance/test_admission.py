"""Admission webhooks, called over https."""

from typing import TYPE_CHECKING, Any

from tests.support.api_servers import Answer, Api
from tests.support.conformance import Hooks, a_pod, until
from tests.support.webhook_server import deny, patch

if TYPE_CHECKING:
    from collections.abc import Callable

Json = dict[str, Any]

GPU_LIMITS = {"gpu.deckhouse.io/pool": "1"}


async def test_a_patch_of_a_mutating_webhook_is_stored(api: Api, pods: str, hooks: Hooks) -> None:
    await hooks.mutating(patch({"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}))
    answer = await api.created(pods, a_pod("p"))
    assert answer.body["metadata"]["labels"] == {"a": "b"}
    assert (await api.get(f"{pods}/p")).body == answer.body


async def test_what_a_webhook_is_told(api: Api, pods: str, hooks: Hooks) -> None:
    await hooks.mutating(lambda _: {"allowed": True})
    await api.created(pods, a_pod("p", limits=GPU_LIMITS))
    (request,) = hooks.server.calls["/mutate"]
    assert request["kind"] == {"group": "", "version": "v1", "kind": "Pod"}
    assert request["resource"] == {"group": "", "version": "v1", "resource": "pods"}
    assert request["operation"] == "CREATE"
    assert (request["name"], request["namespace"]) == ("p", hooks.namespace)
    assert request["oldObject"] is None
    assert request["dryRun"] is False
    assert request["userInfo"]["username"]
    assert "system:authenticated" in request["userInfo"]["groups"]
    pod = request["object"]
    assert pod["spec"]["containers"][0]["resources"]["requests"] == GPU_LIMITS
    assert pod["spec"]["priority"] == 0
    assert not pod["metadata"].get("uid")
    assert not pod["metadata"].get("creationTimestamp")


async def test_a_generated_name_is_known_to_the_validating_webhook_only(
    api: Api, pods: str, hooks: Hooks
) -> None:
    await hooks.mutating(lambda _: {"allowed": True})
    await hooks.validating()
    created = await api.created(pods, a_pod("", metadata={"generateName": "job-"}))
    name = created.body["metadata"]["name"]
    (mutate,), (validate,) = hooks.server.calls["/mutate"], hooks.server.calls["/validate"]
    assert not mutate.get("name")
    assert "name" not in mutate["object"]["metadata"]
    assert validate["name"] == validate["object"]["metadata"]["name"] == name
    assert validate["object"]["metadata"]["uid"] == created.uid
    assert mutate["uid"] != validate["uid"]


async def test_a_dry_run_says_so_to_the_webhook_and_stores_nothing(
    api: Api, pods: str, hooks: Hooks
) -> None:
    await hooks.mutating(_labels_of_own())
    answer = await api.post(pods, a_pod("p"), dryRun="All")
    assert answer.body["metadata"]["labels"] == {"a": "b"}
    assert [request["dryRun"] for request in hooks.server.calls["/mutate"]] == [True]
    assert (await api.get(f"{pods}/p")).status == 404


def _labels_of_own() -> "Callable[[Json], Json]":
    return patch({"op": "add", "path": "/metadata/labels", "value": {"a": "b"}})


async def test_configurations_are_called_by_name_and_webhooks_in_list_order(
    api: Api, pods: str, hooks: Hooks
) -> None:
    config = hooks.server.config
    await hooks.register("Mutating", "b", config("/second", hooks.namespace))
    await hooks.register(
        "Mutating", "a", config("/zz", hooks.namespace), config("/first", hooks.namespace)
    )
    await hooks.wait_until_called("/second", "/zz", "/first")
    await api.created(pods, a_pod("p"))
    assert hooks.server.order == ["/zz", "/first", "/second"]


async def test_a_later_webhook_sees_the_patch_of_an_earlier_one(
    api: Api, pods: str, hooks: Hooks
) -> None:
    hooks.server.answers["/one"] = _labels_of_own()
    config = hooks.server.config
    await hooks.register(
        "Mutating", "a", config("/one", hooks.namespace), config("/two", hooks.namespace)
    )
    await hooks.wait_until_called("/one", "/two")
    await api.created(pods, a_pod("p"))
    assert hooks.server.calls["/two"][0]["object"]["metadata"]["labels"] == {"a": "b"}


async def test_reinvocation_follows_a_later_change(api: Api, pods: str, hooks: Hooks) -> None:
    def append(request: Json) -> Json:
        tolerations = request["object"]["spec"].get("tolerations") or []
        added = [*tolerations, {"key": f"k{len(tolerations)}", "operator": "Exists"}]
        return patch({"op": "add", "path": "/spec/tolerations", "value": added})(request)

    hooks.server.answers["/side"] = hooks.server.answers["/gpu"] = append
    again = {"reinvocationPolicy": "IfNeeded"}
    config = hooks.server.config
    await hooks.register("Mutating", "a", config("/side", hooks.namespace, **again))
    await hooks.register("Mutating", "b", config("/gpu", hooks.namespace, **again))
    await hooks.validating()
    await hooks.wait_until_called("/side", "/gpu")
    await api.created(pods, a_pod("p"))
    assert hooks.server.order == ["/side", "/gpu", "/side", "/gpu", "/validate"]
    uids = [request["uid"] for request in hooks.server.calls["/gpu"]]
    assert len(set(uids)) == 2


async def test_nothing_is_called_again_when_nothing_changed(
    api: Api, pods: str, hooks: Hooks
) -> None:
    again = {"reinvocationPolicy": "IfNeeded"}
    config = hooks.server.config
    await hooks.register("Mutating", "a", config("/side", hooks.namespace, **again))
    await hooks.register("Mutating", "b", config("/gpu", hooks.namespace, **again))
    await hooks.wait_until_called("/side", "/gpu")
    await api.created(pods, a_pod("p"))
    assert hooks.server.order == ["/side", "/gpu"]


async def test_a_name_conflict_is_found_after_all_webhooks(
    api: Api, pods: str, hooks: Hooks
) -> None:
    await api.created(pods, a_pod("p"))
    await hooks.mutating(lambda _: {"allowed": True})
    await hooks.validating()
    assert (await api.post(pods, a_pod("p"))).status == 409
    assert hooks.server.order == ["/mutate", "/validate"]


async def test_an_invalid_pod_meets_mutating_webhooks_only(
    api: Api, pods: str, hooks: Hooks
) -> None:
    await hooks.mutating(lambda _: {"allowed": True})
    await hooks.validating()
    assert (await api.post(pods, a_pod("p", restartPolicy="Always", containers=[]))).status == 422
    assert hooks.server.order == ["/mutate"]


async def test_a_missing_namespace_meets_no_webhook(api: Api, hooks: Hooks) -> None:
    await hooks.mutating(lambda _: {"allowed": True})
    await api.post("/api/v1/namespaces/nobody-has-this/pods", a_pod("p"))
    assert hooks.server.order == []


async def test_objects_are_selected_by_label(api: Api, pods: str, hooks: Hooks) -> None:
    await hooks.validating()
    selector = {"matchLabels": {"call": "me"}}
    config = hooks.server.config("/labelled", hooks.namespace, objectSelector=selector)
    await hooks.register("Mutating", "l", config)
    labelled = a_pod("p", metadata={"labels": {"call": "me"}})

    async def post() -> Answer:
        return await api.post(pods, labelled, dryRun="All")

    await until(post, lambda _: "/labelled" in hooks.server.calls)
    hooks.server.order.clear()
    await api.created(pods, a_pod("other"))
    assert hooks.server.order == ["/validate"]
    await api.created(pods, labelled)
    assert hooks.server.order == ["/validate", "/labelled", "/validate"]


async def test_updates_carry_the_old_object(api: Api, pods: str, hooks: Hooks) -> None:
    rules = [
        {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "operations": ["CREATE", "UPDATE"],
            "resources": ["pods", "pods/status"],
        }
    ]
    await hooks.validating(rules=rules)
    await api.created(pods, a_pod("p"))
    hooks.server.calls.clear()
    await api.merge(f"{pods}/p", {"metadata": {"labels": {"a": "b"}}})
    await api.merge(f"{pods}/p/status", {"status": {"phase": "Running"}})
    calls = {call.get("subResource", ""): call for call in hooks.server.calls["/validate"]}
    main, status = calls[""], calls["status"]
    assert main["operation"] == status["operation"] == "UPDATE"
    assert "labels" not in main["oldObject"]["metadata"]
    assert main["object"]["metadata"]["labels"] == {"a": "b"}
    assert status["object"]["status"]["phase"] == "Running"


async def test_a_binding_is_a_creation_of_its_own(
    api: Api, pods: str, hooks: Hooks, namespace: str
) -> None:
    rules = [
        {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "operations": ["*"],
            "resources": ["pods", "pods/binding", "bindings"],
        }
    ]
    await hooks.validating(rules=rules)
    for name in ("p", "q"):
        await api.created(pods, a_pod(name))
    hooks.server.calls.clear()
    target = {"kind": "Node", "name": "n"}
    metadata = {"name": "p", "annotations": {"a": "b"}}
    await api.created(f"{pods}/p/binding", {"metadata": metadata, "target": target})
    older = f"/api/v1/namespaces/{namespace}/bindings"
    await api.created(older, {"metadata": {"name": "q"}, "target": target})
    new, old = hooks.server.calls["/validate"]
    assert new["kind"]["kind"] == old["kind"]["kind"] == "Binding"
    assert (new["operation"], new["resource"]["resource"]) == ("CREATE", "pods")
    assert new["subResource"] == "binding"
    assert new["object"]["metadata"]["annotations"] == {"a": "b"}
    assert (old["resource"]["resource"], old.get("subResource", "")) == ("bindings", "")


async def test_a_deletion_carries_the_old_object_only(api: Api, pods: str, hooks: Hooks) -> None:
    rules = [
        {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "operations": ["CREATE", "DELETE"],
            "resources": ["pods"],
        }
    ]
    await hooks.validating(rules=rules)
    await api.created(pods, a_pod("p"))
    hooks.server.calls.clear()
    hooks.server.answers["/validate"] = deny("keep it", code=403)
    assert (await api.delete(f"{pods}/p")).status == 403
    hooks.server.answers.pop("/validate")
    request = hooks.server.calls["/validate"][0]
    assert (request["operation"], request["object"]) == ("DELETE", None)
    assert request["oldObject"]["metadata"]["name"] == "p"
    assert (await api.delete(f"{pods}/p")).status == 200


async def test_a_webhook_can_choose_the_name(api: Api, pods: str, hooks: Hooks) -> None:
    choose = patch({"op": "add", "path": "/metadata/name", "value": "chosen"})
    await hooks.mutating(choose)
    answer = await api.created(pods, a_pod("", metadata={"generateName": "job-"}))
    assert answer.body["metadata"]["name"] == "chosen"


async def test_a_priority_class_set_by_a_webhook_needs_its_priority(
    api: Api, pods: str, hooks: Hooks
) -> None:
    name = "system-cluster-critical"
    await hooks.mutating(lambda _: {"allowed": True})
    set_class = {"op": "add", "path": "/spec/priorityClassName", "value": name}
    hooks.server.answers["/mutate"] = patch(set_class)
    answer = await api.post(pods, a_pod("p"))
    assert answer.status == 403
    assert "the integer value of priority (0) must not be provided in pod spec" in answer.message
    hooks.server.answers["/mutate"] = patch(set_class, {"op": "remove", "path": "/spec/priority"})
    answer = await api.created(pods, a_pod("p"))
    assert answer.body["spec"]["priority"] == 2000000000
