"""Paths of the API."""

import pytest

from kube import resources
from kube.resources import EVENTS, GPU_POOLS, NODES, PODS, Resource


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (PODS.path(), "/api/v1/pods"),
        (PODS.path("a"), "/api/v1/namespaces/a/pods"),
        (PODS.path("a", "p"), "/api/v1/namespaces/a/pods/p"),
        (PODS.path("a", "p", "binding"), "/api/v1/namespaces/a/pods/p/binding"),
        (NODES.path(name="n1"), "/api/v1/nodes/n1"),
        (EVENTS.path("a"), "/apis/events.k8s.io/v1/namespaces/a/events"),
        (
            GPU_POOLS.path(name="whole", subresource="status"),
            "/apis/gpu.deckhouse.io/v1alpha1/gpupools/whole/status",
        ),
    ],
)
def test_a_path_is_the_one_that_kubernetes_serves(path: str, expected: str) -> None:
    assert path == expected


def test_names_cannot_leave_their_place_in_the_path() -> None:
    assert PODS.path("a", "../b?x=1#y%2f") == "/api/v1/namespaces/a/pods/..%2Fb%3Fx%3D1%23y%252f"


@pytest.mark.parametrize(
    ("resource", "parts"),
    [
        pytest.param(NODES, ("a", "n1"), id="a namespace for a cluster-scoped resource"),
        pytest.param(PODS, (None, "p"), id="a name without its namespace"),
        pytest.param(PODS, ("a", None, "status"), id="a subresource of nothing"),
        pytest.param(PODS, ("a", ""), id="an empty name"),
        pytest.param(PODS, ("a", ".."), id="dots for a name"),
        pytest.param(PODS, ("", "p"), id="an empty namespace"),
    ],
)
def test_parts_that_make_no_path_are_refused(
    resource: Resource, parts: tuple[str | None, ...]
) -> None:
    with pytest.raises(ValueError, match=resource.plural):
        resource.path(*parts)


def test_no_two_resources_share_a_path() -> None:
    declared = [value for value in vars(resources).values() if isinstance(value, Resource)]
    assert len(declared) > 10
    assert len({resource.path() for resource in declared}) == len(declared)
    assert all(resource.api_version for resource in declared)
