"""Which DaemonSets of node software have no pod on tainted nodes, and what to add to their lists."""

import pytest

from api.foreign.core import EVERY_TAINT, Taint, Toleration
from autoscaling.node_daemons import STARTUP_TAINT, NodeDaemon, is_node_software, kept_away

POOL_TAINT = Taint(key="team", value="ml", effect="NoSchedule")
SOFT = Taint(key="soft", effect="PreferNoSchedule")
STARTUP = "gpu.deckhouse.io/agent-not-ready"


def a_daemon(name: str, *tolerations: Toleration) -> NodeDaemon:
    return NodeDaemon(name=name, tolerations=tolerations)


def test_each_daemon_set_is_named_with_the_taints_that_it_does_not_tolerate():
    driver, nfd = a_daemon("o/driver", Toleration(key="team", operator="Exists")), a_daemon("n/nfd")
    ours = a_daemon("g/ours", EVERY_TAINT)
    text, cure = kept_away("whole", [driver, nfd, ours], [STARTUP_TAINT, POOL_TAINT, SOFT])
    for part in (
        f"DaemonSet o/driver has no pod on nodes of pool whole, since it does not tolerate {STARTUP}:NoSchedule",
        f"DaemonSet n/nfd has no pod on nodes of pool whole, since it does not tolerate {STARTUP}:NoSchedule, team=ml:NoSchedule",
    ):
        assert part in text
    assert "ours" not in text
    for line in (f"{{key: {STARTUP}, operator: Exists}}", "{key: team, operator: Exists}"):
        assert cure.count(line) == 1
    assert kept_away("whole", [ours], [STARTUP_TAINT, POOL_TAINT]) == ("", "")


@pytest.mark.parametrize(
    ("labels", "selector", "expected"),
    [
        pytest.param({}, {"nvidia.com/gpu.deploy.dcgm": "true"}, True, id="a deploy label"),
        pytest.param(
            {"app.kubernetes.io/name": "node-feature-discovery", "role": "worker"},
            {},
            True,
            id="the worker of Node Feature Discovery's chart",
        ),
        pytest.param({"app": "nfd-worker"}, {}, True, id="that of its manifests"),
        pytest.param(
            {"app.kubernetes.io/name": "node-feature-discovery", "role": "topology-updater"},
            {},
            False,
            id="another program of it",
        ),
        pytest.param({"app": "cilium"}, {"kubernetes.io/os": "linux"}, False, id="any other"),
    ],
)
def test_node_software_is_told_by_deploy_labels_and_names(
    labels: dict[str, str], selector: dict[str, str], expected: bool
):
    assert is_node_software(labels, selector) is expected
