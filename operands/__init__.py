"""GPU software that the control plane runs on nodes with devices: states, their objects, and when they are ready.

A state is declared (`operands.operand_state`), its manifests are data (`operands/assets/<state>`), and what differs between
installations is put into them by pure functions. `reconciler.node_software` applies the result.
"""
