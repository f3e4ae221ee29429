"""List of all controllers and background tasks of a leader, in the order in which they start.

A new controller is a module with a `SPEC` and a line here: permissions, metrics, tasks and wiring follow.
"""

from typing import TYPE_CHECKING, Final

from reconciler.assignment import controller as assignment
from reconciler.assignment import pool_conflicts
from reconciler.dcgm import scraper
from reconciler.device import health, repair, state
from reconciler.driver_upgrade import upgrade_pass
from reconciler.installation import pod_security, scheduler_trust, service_endpoint
from reconciler.inventory import controller as inventory
from reconciler.inventory import present_label
from reconciler.kernelcache import cache_node_cleanup, cache_status
from reconciler.node_software import deploy_labels_controller, driver_controller, policy_controller
from reconciler.pod import ageing_access, binding_recovery, nomination, requeue, wait_explanation
from reconciler.pool import (
    index_changes,
    lifecycle,
    node_labels,
    plugin_config,
    status,
    workloads,
)
from reconciler.readiness import controller as readiness
from reconciler.scaling import (
    capacity_holds,
    handover,
    leaving_nodes,
    node_claim_watch,
    protected_nodes,
    removed_backends,
)
from reconciler.scaling import controller as scaling

if TYPE_CHECKING:
    from reconciler.controller_spec import ControllerSpec, TaskSpec

CONTROLLERS: "Final[tuple[ControllerSpec | TaskSpec, ...]]" = (
    service_endpoint.SPEC,
    pod_security.SPEC,
    scheduler_trust.SPEC,
    inventory.SPEC,
    present_label.SPEC,
    scraper.SPEC,
    policy_controller.SPEC,
    driver_controller.SPEC,
    readiness.SPEC,
    health.SPEC,
    repair.SPEC,
    pool_conflicts.SPEC,
    assignment.SPEC,
    workloads.SPEC,
    plugin_config.SPEC,
    status.SPEC,
    state.SPEC,
    node_labels.SPEC,
    deploy_labels_controller.SPEC,
    upgrade_pass.SPEC,
    lifecycle.SPEC,
    node_claim_watch.SPEC,
    handover.SPEC,
    capacity_holds.SPEC,
    leaving_nodes.SPEC,
    protected_nodes.SPEC,
    removed_backends.SPEC,
    index_changes.SPEC,
    requeue.SPEC,
    binding_recovery.SPEC,
    nomination.SPEC,
    wait_explanation.SPEC,
    ageing_access.SPEC,
    scaling.SPEC,
    cache_status.SPEC,
    cache_node_cleanup.SPEC,
)
