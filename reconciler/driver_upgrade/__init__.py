"""`driver.upgrade`: facts of nodes for `operands.upgrade`, and its actions at the API server.

What is done on which node is decided there. Here are what is read (`upgrade_reader`), what it means (`driver_daemons`,
`driver_user_pods`, `eviction_budgets`, `upgrade_owners`, all pure), what is written (`node_actions`), and one pass over all nodes
(`upgrade_pass`).
"""
