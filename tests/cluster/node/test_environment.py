"""The node of real containers keeps its word: pods run on it, and live through its restarts."""

from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.environment import binaries, client, kubeconfigs, nodes, pods, polling
from tests.cluster.node.environment import real_node

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cluster.environment import control_plane as control_planes

_NO_ONES = "gpu.deckhouse.io/no-ones"
"""A resource that no plugin offers."""


async def _run(
    api: client.ApiClient, namespace: str, pod: client.JsonObject, until: str = "Running"
) -> client.JsonObject:
    await api.create(pods.collection(namespace), pod)
    return await pods.wait_for_pod(
        api,
        namespace,
        pod["metadata"]["name"],
        lambda found: found["status"].get("phase") == until,
    )


async def _restarts(api: client.ApiClient, namespace: str, pod: str) -> tuple[str, int]:
    """Return the id of the container and how often it was started again."""
    (status,) = (await api.get(f"{pods.collection(namespace)}/{pod}"))["status"][
        "containerStatuses"
    ]
    return status["containerID"], status["restartCount"]


async def _uptime(node: real_node.RealNode, namespace: str, pod: str) -> str:
    """Return when the first process of the container started, by the kernel's account."""
    line = await node.exec(namespace, pod, ["cat", "/proc/1/stat"])
    return line.rpartition(")")[2].split()[19]


async def test_the_node_is_ready_and_its_kubelet_is_that_of_go_mod(
    api: client.ApiClient, node: real_node.RealNode
):
    found = await api.get(f"{nodes.NODES}/{node.name}")

    assert found["status"]["nodeInfo"]["kubeletVersion"] == binaries.kubernetes_version()
    assert found["status"]["nodeInfo"]["containerRuntimeVersion"].startswith("containerd://2.")
    assert "taints" not in found["spec"]
    assert (node.plugins_directory / "kubelet.sock").is_socket()
    assert (node.pod_resources_directory / "kubelet.sock").is_socket()


@pytest.mark.usefixtures("kubelets")
async def test_the_double_of_other_nodes_leaves_it_alone(
    api: client.ApiClient, namespace: str, node: real_node.RealNode
):
    pod = node.a_pod("no-image", image="localhost/nobody-made-it:1")
    await api.create(pods.collection(namespace), pod)

    def is_reported(found: client.JsonObject) -> bool:
        statuses = found["status"].get("containerStatuses", [])
        reasons = [status["state"].get("waiting", {}).get("reason") for status in statuses]
        return reasons == ["ErrImageNeverPull"]

    found = await pods.wait_for_pod(api, namespace, "no-image", is_reported)
    assert found["status"]["phase"] == "Pending"


async def test_a_pod_runs_to_completion_and_its_log_is_there(
    api: client.ApiClient, namespace: str, node: real_node.RealNode
):
    await _run(
        api, namespace, node.a_pod("job", ["sh", "-c", "echo from $HOSTNAME"]), until="Succeeded"
    )

    assert await node.logs(namespace, "job") == "from job\n"


async def test_a_scheduled_pod_runs_and_one_that_asks_for_what_nobody_offers_waits(
    api: client.ApiClient,
    namespace: str,
    node: real_node.RealNode,
    start_scheduler: "Callable[..., Any]",
):
    here: dict[str, Any] = {"nodeName": None, "nodeSelector": {"kubernetes.io/hostname": node.name}}
    await start_scheduler()

    await _run(api, namespace, node.a_pod("plain", **here))
    refused = node.a_pod("asks", limits={_NO_ONES: 1}, **here)
    await api.create(pods.collection(namespace), refused)

    await pods.wait_for_pod(api, namespace, "asks", pods.is_unschedulable)


async def test_a_bound_pod_runs_though_no_plugin_ever_offered_its_resource(
    api: client.ApiClient, namespace: str, node: real_node.RealNode
):
    """kubelet refuses only what a plugin has offered once: the scheduler alone stands before it."""
    await _run(api, namespace, node.a_pod("bypass", limits={_NO_ONES: 1}))


async def test_a_running_pod_outlives_its_kubelet_and_its_containerd(
    api: client.ApiClient, namespace: str, node: real_node.RealNode
):
    await _run(api, namespace, node.a_pod("stays"))
    before = await _restarts(api, namespace, "stays")
    started = await _uptime(node, namespace, "stays")

    await node.kubelet.restart()
    node.kubelet.kill9()
    await node.kubelet.start()
    await node.containerd.restart()
    node.containerd.kill9()
    await node.containerd.start()

    await node.wait_ready()
    # A pod that starts now shows that both work again; then the old one is looked at.
    await _run(api, namespace, node.a_pod("after"))
    assert await _restarts(api, namespace, "stays") == before
    assert await _uptime(node, namespace, "stays") == started
    assert before[1] == 0


async def test_a_container_out_of_memory_is_started_again_within_seconds(
    api: client.ApiClient, namespace: str, node: real_node.RealNode
):
    greedy = ["dd", "if=/dev/zero", "of=/dev/null", "bs=64M"]
    pod = node.a_pod("greedy", greedy, limits={"memory": "16Mi"}, restartPolicy="Always")
    await api.create(pods.collection(namespace), pod)

    def killed_thrice(found: client.JsonObject) -> bool:
        statuses = found["status"].get("containerStatuses", [])
        return any(status["restartCount"] >= 3 for status in statuses)

    # With kubelet's own back-off of 10 s and 20 s it would be longer.
    found = await pods.wait_for_pod(api, namespace, "greedy", killed_thrice, within=25)
    (status,) = found["status"]["containerStatuses"]
    assert status["lastState"]["terminated"]["reason"] == "OOMKilled"


async def test_a_pod_has_a_token_of_its_account_and_reaches_the_api_server(
    api: client.ApiClient,
    namespace: str,
    node: real_node.RealNode,
    control_plane: "control_planes.ControlPlane",
    tmp_path: "Path",
):
    pod = node.a_pod("agent", hostNetwork=True)
    pod["spec"]["containers"][0]["env"] = node.api_server_env()
    await _run(api, namespace, pod)

    # busybox speaks no TLS that the API server takes: a connection from inside, the token from here.
    connect = "nc -w 5 $KUBERNETES_SERVICE_HOST $KUBERNETES_SERVICE_PORT </dev/null"
    await node.exec(namespace, "agent", ["sh", "-c", connect])
    mounted = "/var/run/secrets/kubernetes.io/serviceaccount"
    kubeconfig = kubeconfigs.write_kubeconfig(
        tmp_path / "kubeconfig",
        url=control_plane.url,
        ca_file=control_plane.ca_file,
        user="agent",
        login={"token": await node.exec(namespace, "agent", ["cat", f"{mounted}/token"])},
    )
    async with client.open_client(kubeconfig) as account:
        review = await account.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
    user = review["status"]["userInfo"]
    assert user["username"] == f"system:serviceaccount:{namespace}:default"
    assert user["extra"]["authentication.kubernetes.io/pod-name"] == ["agent"]
    certificate = await node.exec(namespace, "agent", ["cat", f"{mounted}/ca.crt"])
    assert certificate == control_plane.ca_file.read_text(encoding="utf-8")


async def test_devices_of_the_node_are_openable_in_a_pod_that_has_them(
    api: client.ApiClient, namespace: str, node: real_node.RealNode
):
    device = await node.make_device("nvidia0")
    try:
        pod = node.a_pod("privileged")
        volume = {"name": "dev", "hostPath": {"path": str(device)}}
        pod["spec"]["volumes"] = [volume]
        (container,) = pod["spec"]["containers"]
        container["volumeMounts"] = [{"name": "dev", "mountPath": "/dev/nvidia0"}]
        container["securityContext"] = {"privileged": True}
        await _run(api, namespace, pod)

        await node.exec(namespace, "privileged", ["sh", "-c", "echo x > /dev/nvidia0"])
        assert "character special file" in await node.exec(
            namespace, "privileged", ["stat", "/dev/nvidia0"]
        )
    finally:
        device.unlink()


async def test_a_pod_finds_the_sockets_of_kubelet_in_their_usual_places(
    api: client.ApiClient, namespace: str, node: real_node.RealNode
):
    places = {
        "plugins": "/var/lib/kubelet/device-plugins",
        "resources": "/var/lib/kubelet/pod-resources",
    }
    pod = node.a_pod("agent")
    pod["spec"]["volumes"] = [
        {"name": name, "hostPath": {"path": path, "type": "Directory"}}
        for name, path in places.items()
    ]
    pod["spec"]["containers"][0]["volumeMounts"] = [
        {"name": name, "mountPath": path} for name, path in places.items()
    ]
    await _run(api, namespace, pod)

    for path in places.values():
        await node.exec(namespace, "agent", ["test", "-S", f"{path}/kubelet.sock"])


async def test_pods_reach_each_other_by_their_addresses(
    api: client.ApiClient, namespace: str, node: real_node.RealNode
):
    serve = ["nc", "-ll", "-p", "8080", "-e", "hostname"]
    listening = await _run(api, namespace, node.a_pod("listening", serve))
    await _run(api, namespace, node.a_pod("asking"))
    address = listening["status"]["podIP"]

    async def answer() -> bool:
        said = await node.exec(namespace, "asking", ["nc", "-w", "5", address, "8080"])
        return said == "listening\n"

    await polling.eventually(answer, what="an answer of the other pod")


def test_a_second_session_is_told_who_has_the_node(node: real_node.RealNode, tmp_path: "Path"):
    with pytest.raises(AssertionError, match=r"its sweeper is process \d+"):
        real_node.start_sweeper(tmp_path, patience_s=0)


def test_a_machine_that_is_unfit_is_told_what_to_do(tmp_path: "Path"):
    kubelet, own = tmp_path / "kubelet", tmp_path / "own"
    with pytest.raises(AssertionError, match="run it as root, or leave it out with --ignore"):
        real_node.refuse_unfit_machine(user=1000, kubelet_directory=kubelet, own=own)
    (kubelet / "pods").mkdir(parents=True)
    with pytest.raises(AssertionError, match=r"holds pods\. The kubelet of the tests would take"):
        real_node.refuse_unfit_machine(user=0, kubelet_directory=kubelet, own=own)
    own.mkdir()
    real_node.refuse_unfit_machine(user=0, kubelet_directory=kubelet, own=own)
