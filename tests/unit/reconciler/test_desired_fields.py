"""The first field in which a live object differs from the desired one."""

from typing import Any

import pytest

from reconciler.runtime.object_applier import first_difference


def pod_spec(**container: Any) -> dict[str, Any]:
    return {"kind": "DaemonSet", "spec": {"containers": [{"name": "c", **container}]}}


@pytest.mark.parametrize(
    ("desired", "current", "expected"),
    [
        pytest.param({"image": "a"}, {"image": "a", "added": 1}, "", id="fields of others"),
        pytest.param({"image": "a"}, {"image": "b"}, "spec.containers[c].image", id="a value"),
        pytest.param({"image": "a"}, {}, "spec.containers[c].image", id="a field that is missing"),
        pytest.param(
            {"args": ["a", "b"]}, {"args": ["b", "a"]}, "spec.containers[c].args", id="order"
        ),
        pytest.param({"args": ["a"]}, {"args": ["a", "b"]}, "spec.containers[c].args", id="length"),
        pytest.param(
            {"resources": {"limits": {"cpu": "1000m", "memory": "1024Mi", "a.b/c": 1}}},
            {"resources": {"limits": {"cpu": "1", "memory": "1Gi", "a.b/c": "1"}}},
            "",
            id="the form of a quantity",
        ),
        pytest.param(
            {"resources": {"requests": {"cpu": "1"}}},
            {"resources": {"requests": {"cpu": "2"}}},
            "spec.containers[c].resources.requests.cpu",
            id="another quantity",
        ),
        pytest.param({"args": ["1000m"]}, {"args": ["1"]}, "spec.containers[c].args", id="a text"),
    ],
)
def test_the_first_difference(desired: dict[str, Any], current: dict[str, Any], expected: str):
    assert first_difference(pod_spec(**desired), pod_spec(**current)) == expected


def test_an_item_of_others_is_no_difference_and_a_missing_one_is():
    both = {"spec": {"containers": [{"name": "other"}, {"name": "c"}]}}
    assert not first_difference(pod_spec(), both)
    assert first_difference(both, pod_spec()) == "spec.containers[other]"
