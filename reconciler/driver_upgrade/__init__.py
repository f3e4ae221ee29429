"""`driver.upgrade`: facts of nodes for `operands.upgrade`, and its actions at the API server.

What is done on which node is decided there. Here are what is read (`reader`), what it means (`daemons`, `user_pods`,
`eviction_budgets`, `owners`, all pure), what is written (`node_actions`), and one pass over all nodes (`upgrade_pass`).
"""
