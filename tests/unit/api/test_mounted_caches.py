"""The kernel caches that a pod mounts, by its volumes."""

from typing import Any

import msgspec
import pytest

from api.cache_name import CacheName
from api.foreign.core import PodContainers
from api.mounted_caches import MAX_CACHES, mounted_caches
from tests.support.cache_demands import LLAMA, MISTRAL, SHARED, a_cache_volume


def mounted(*volumes: dict[str, Any], namespace: str = "default") -> tuple[CacheName, ...]:
    spec = msgspec.json.decode(msgspec.json.encode({"volumes": volumes}), type=PodContainers)
    return mounted_caches(spec.volumes or (), namespace)


def test_caches_of_the_namespace_and_of_the_cluster_count_once():
    volumes = [a_cache_volume(item) for item in (MISTRAL, LLAMA, SHARED, LLAMA)]
    assert mounted(*volumes) == (SHARED, LLAMA, MISTRAL)


def test_a_cache_of_another_namespace_demands_nothing():
    """C5: CSI refuses the volume, wherever the pod is."""
    assert mounted(a_cache_volume(LLAMA), namespace="other") == ()


@pytest.mark.parametrize(
    "volume",
    [
        pytest.param({"name": "v", "emptyDir": {}}, id="no CSI volume"),
        pytest.param({"name": "v", "csi": {"driver": "csi.gkm.io"}}, id="without attributes"),
        pytest.param(
            {"name": "v", "csi": {"driver": "csi.gkm.io", "volumeAttributes": {}}}, id="no name"
        ),
        pytest.param({**a_cache_volume(), "csi": {**a_cache_volume()["csi"], "driver": "other"}}, id="another driver"),
        pytest.param(a_cache_volume(attributes={"csi.gkm.io/GKMCache": "../etc"}), id="C9: a path"),
        pytest.param(a_cache_volume(attributes={"csi.gkm.io/namespace": ".."}), id="C9: no namespace"),
    ],
)  # fmt: skip
def test_other_volumes_demand_nothing(volume: dict[str, Any]):
    assert mounted(volume) == ()


def test_a_pod_with_very_many_caches_is_judged_by_the_first_ones():
    names = [CacheName(namespace="default", name=f"c{number:03}") for number in range(100)]
    assert mounted(*map(a_cache_volume, names)) == tuple(names[:MAX_CACHES])
