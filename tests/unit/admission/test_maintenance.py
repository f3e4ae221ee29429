"""A pool in maintenance admits nothing, and says why; a pod that was admitted before may still be created."""

from typing import Any

import pytest

from admission.webhooks import mutate_pod, validate_pod
from telemetry.reasons import RefusalReason
from tests.support.allocation_state import a_bound_pod
from tests.support.builders import at
from tests.support.reviews import AdmissionSetup, a_pod_object, stored

SLICED = {"mode": "TimeSlice", "slicesPerDevice": 4}


def an_admission_setup(**allocation: Any) -> AdmissionSetup:
    setup = AdmissionSetup()
    setup.add_pool(allocation=allocation)
    setup.add_node(devices=2)
    return setup


@pytest.mark.parametrize("is_dry_run", [True, False])
def test_a_pod_is_refused_with_the_change_and_what_is_still_in_use(is_dry_run):
    setup = an_admission_setup(**SLICED)
    setup.allocate("whole", mode="Exclusive")
    setup.allocation_state.observe_pod(a_bound_pod("b", "GPU-n1-0", "GPU-n1-1"), at(0))

    reply = setup.ask(mutate_pod, a_pod_object(), dryRun=is_dry_run)

    assert not reply.allowed
    assert reply.answer.reason is RefusalReason.POOL_IN_MAINTENANCE
    assert reply.message == (
        "PoolInMaintenance: pool whole is in maintenance and takes no new pods: it changes from"
        " Exclusive to TimeSlice (4 slices per device) once no unit is in use (2 units are now); try again"
        " when the pool's condition Maintenance is False, or use another pool"
    )
    assert len(setup.allocation_state.ledger) == 0


def test_a_pool_whose_allocation_is_in_effect_admits():
    setup = an_admission_setup(**SLICED)
    setup.allocate("whole", **SLICED)
    assert setup.ask(mutate_pod, a_pod_object()).allowed


def test_a_pod_that_was_mutated_before_is_created_and_waits():
    setup = an_admission_setup()
    asked = a_pod_object()
    pod = setup.ask(mutate_pod, asked).applied_to(asked)
    setup.allocate("whole", **SLICED)
    pool = setup.catalog.pools[next(iter(setup.catalog.pools))]
    setup.allocation_state.release_reservations(pool.name)

    assert setup.ask(validate_pod, stored(pod)).allowed
    assert not any(item.has_units for item in setup.allocation_state.ledger.all())
