"""An in-memory cluster: API server, kube-scheduler, kubelet and node software as doubles, over real HTTP.

For the demo and component tests. Kept as small as its conformance suite allows;
the same suite passes against a real kube-apiserver.
"""
