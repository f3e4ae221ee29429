"""The fault run: our server on an unmodified Kubernetes, with everything going wrong by seed.

    python -m tests.fault --seed 7 --steps 2000 --replicas 2

`steps` makes the list of what happens, `run` carries it out on an `arena` of nodes, devices and pools,
two proxies (`proxy` between server and API server, `service` between both of them and the server)
break what passes, and `oracle` judges what `history` saw at the API server itself. `upgrades` is
about the nodes' drivers, which are upgraded meanwhile. `shrinking` looks for the shortest list that
still ends in a violation.

Nothing in here may import what it judges: `pool`, `scheduler`, `admission`, `reconciler`, `kube`.
"""
