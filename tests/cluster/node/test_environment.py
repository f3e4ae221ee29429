"""A machine that has a node of the tests, or cannot have one, says so; what the node does its suites show."""

from typing import TYPE_CHECKING

import pytest

from tests.cluster.node.environment import real_node

if TYPE_CHECKING:
    from pathlib import Path


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
