"""The CSIDriver object: what the node driver relies on, in a form that Kubernetes takes."""

import pytest

from api.csi.names import DRIVER_NAME
from manifests.node.csi_driver import build_csi_driver
from tests.support.kubernetes_schemas import check_object


@pytest.mark.parametrize("version", ["1.30", "1.36"])
def test_kubernetes_takes_it(version: str):
    check_object(build_csi_driver(), version)


def test_kubelet_names_the_pod_and_attaches_nothing():
    """C5: without podInfoOnMount a user could write the pod's namespace."""
    built = build_csi_driver()
    assert built["metadata"]["name"] == DRIVER_NAME
    assert built["spec"]["podInfoOnMount"] is True
    assert built["spec"]["attachRequired"] is False


def test_only_inline_volumes_are_served_and_their_files_keep_their_owner():
    spec = build_csi_driver()["spec"]
    assert spec["volumeLifecycleModes"] == ["Ephemeral"]
    assert spec["fsGroupPolicy"] == "None"
