"""A taint that evicts pods is one of a pool with a device on the node."""

from typing import Any

import pytest

from admission.webhooks import validate_node
from telemetry.reasons import RefusalReason
from tests.support.reviews import NODE, AdmissionSetup, Reply, a_node_object

TAINTS = [{"key": "ours", "effect": "NoExecute"}, {"key": "mild", "effect": "NoSchedule"}]


def ask(node: Any, *, old: Any = None, is_ready: bool = True) -> Reply:
    setup = AdmissionSetup(is_ready=is_ready)
    setup.add_pool(scheduling={"taints": TAINTS})
    setup.add_pool("other", scheduling={"taints": [{"key": "others", "effect": "NoExecute"}]})
    setup.add_node("n1")
    setup.add_node("n2", pool="other")
    old = a_node_object() if old is None else old
    return setup.ask(validate_node, node, kind=NODE, operation="UPDATE", old=old)


def test_a_taint_of_a_pool_on_the_node_is_admitted():
    assert ask(a_node_object("ours")).allowed


@pytest.mark.parametrize(
    ("key", "node"),
    [
        pytest.param("evil", "n1", id="of no pool"),
        pytest.param("others", "n1", id="of a pool on another node"),
        pytest.param("mild", "n1", id="with another effect in the pool"),
        pytest.param("ours", "n3", id="on a node without a device"),
    ],
)
def test_any_other_taint_is_refused_by_its_key(key, node):
    reply = ask(a_node_object(key, name=node))
    assert not reply.allowed
    assert reply.answer.reason is RefusalReason.INVALID_TAINT
    assert reply.message == (
        f"InvalidTaint: {node}: no pool with a device on the node has in spec.scheduling.taints a taint NoExecute"
        f" with key {key}"
    )


def test_a_taint_that_is_there_is_not_judged_again():
    assert ask(a_node_object("evil", "ours"), old=a_node_object("evil")).allowed
    assert ask(a_node_object(), old=a_node_object("evil")).allowed


def test_a_new_taint_waits_for_the_informers_that_know_the_pools():
    reply = ask(a_node_object("ours"), is_ready=False)
    assert reply.answer.reason is RefusalReason.NOT_READY


def test_a_node_that_cannot_be_read_is_refused():
    assert not ask({"metadata": {"name": "n1"}, "spec": {"taints": "all"}}).allowed
    assert not ask(a_node_object("ours"), old={"spec": {"taints": "all"}}).allowed
