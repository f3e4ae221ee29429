"""The stock kube-scheduler takes our configuration and asks our extender, over TLS, as itself."""

import yaml

from api.names import DEFAULT_SCHEDULER_NAME
from manifests import constants
from manifests.install.scheduler import (
    ApiConnection,
    ExtenderEndpoint,
    ExtenderTls,
    SchedulerLeaderElection,
    build_extender_snippet,
    build_scheduler_configuration,
)
from tests.cluster.environment import polling
from tests.cluster.manifests.objects import a_pod
from tests.cluster.manifests.stub import Call, Stub


def an_extender(control_plane, stub) -> ExtenderEndpoint:
    pair = control_plane.credentials.client_certificate("gpu-scheduler", ())
    tls = ExtenderTls(
        ca_data=control_plane.ca_file.read_bytes(),
        cert_file=str(pair.certificate),
        key_file=str(pair.key),
    )
    return ExtenderEndpoint(base_url=stub.url, tls=tls)


async def first_bind(stub: Stub) -> Call:
    bind = constants.BIND_PATH
    await polling.eventually(lambda: bind in stub.paths(), what="a call of bind")
    return next(call for call in stub.calls if call.path == bind)


async def test_pod_of_our_profile_goes_through_the_extender(
    control_plane, api, namespace, stub, create_nodes, start_scheduler
):
    names = await create_nodes(2, resources={"gpu.deckhouse.io/train": "8"})
    configuration = build_scheduler_configuration(
        an_extender(control_plane, stub),
        # A name of its own: the Lease stays, and other tests look for what an uninstallation left.
        leader_election=SchedulerLeaderElection(
            namespace="kube-system", name="scheduler-of-a-test", retry_period="1s"
        ),
        connection=ApiConnection(kubeconfig=str(control_plane.kubeconfig("system:kube-scheduler"))),
        percentage_of_nodes_to_score=100,
    )
    await start_scheduler(yaml.safe_dump(configuration))
    pod = a_pod(namespace, pool="train")
    pod["spec"]["schedulerName"] = DEFAULT_SCHEDULER_NAME
    await api.create(f"/api/v1/namespaces/{namespace}/pods", pod)
    call = await first_bind(stub)
    assert call.client == "gpu-scheduler"
    assert call.body["Node"] in names
    assert stub.paths()[:3] == [
        constants.FILTER_PATH,
        constants.PRIORITIZE_PATH,
        constants.BIND_PATH,
    ]
    assert sorted(stub.calls[0].body["NodeNames"]) == sorted(names)
    assert stub.calls[0].body["Nodes"] is None


async def test_snippet_asks_about_pods_of_the_named_pools_only(
    control_plane, api, namespace, stub, create_nodes, start_scheduler
):
    await create_nodes(1, resources={"gpu.deckhouse.io/train": "8"})
    caches = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    snippet = build_extender_snippet(an_extender(control_plane, stub), ["gpu.deckhouse.io/train"])
    await start_scheduler(yaml.safe_dump(caches | snippet))
    pods = f"/api/v1/namespaces/{namespace}/pods"
    await api.create(pods, a_pod(namespace, name="plain"))

    async def plain_is_bound() -> bool:
        return "nodeName" in (await api.get(f"{pods}/plain"))["spec"]

    await polling.eventually(plain_is_bound, what="a node for the plain pod")
    assert stub.calls == []
    await api.create(pods, a_pod(namespace, name="gpu", pool="train"))
    assert (await first_bind(stub)).body["PodName"] == "gpu"
