"""Upgrades of the driver on nodes: which node goes next, what happens on it, and why it waits.

`(state, facts) -> (state, actions)`, as values and functions: no I/O, and the time is an argument. States, labels and
annotations are those of NVIDIA's GPU Operator (`api.driver_upgrade`). `reconciler.driver_upgrade` gathers the facts and carries
out the actions.

What differs from the GPU Operator:
* A failed node takes none of maxParallelUpgrades. It counts against maxUnavailable while it is cordoned. A node whose old
  driver still serves returns to service and is tried again after a pause, which doubles.
* A node that is cordoned already costs no unavailability, so it goes first; it needs one of maxParallelUpgrades like others.
* A node without a driver pod, or with one that is not scheduled, is held up by itself, and no other node is.
* `upgrade-failed` ends after the validation of a ready driver, and by a new attempt; not by a ready driver pod alone.
* A node is given back cordoned where another client cordoned it, whenever that was: only a cordon that this control plane
  wrote is removed. Without autoUpgrade nodes are given back before their labels go.
* A node that needs no upgrade any more leaves `upgrade-required`, and evicts no further pod in the states after it.
* `gpu-driver-upgrade.skip` ends an upgrade that has not reached the driver pod yet.
* `gpu-driver-upgrade-requested` is kept until the node gets its turn, and the driver pod is then replaced even if it is up
  to date.
* `maxUnavailable` below zero counts as 0, and more than all nodes as all. Any other value that cannot be read stops new
  nodes from starting; nodes in progress end as usual.
"""
