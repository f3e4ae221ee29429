"""An in-memory cluster over real HTTP: API server, kube-scheduler, kubelet and node software as fakes.

For the demo and for component tests; not in the shipped image. The conformance suite of the API
server passes against a real kube-apiserver, too.
"""
