"""Pods a second on an unmodified Kubernetes control plane, beside others in the same run.

    make bench-cluster
    python -m tests.bench_cluster --quick
    python -m tests.bench_cluster --rounds 1 --nodes 1000

Two rounds of everything take about a quarter of an hour on two quiet cores; a round at one size writes
no report. `make bench-cluster` runs `make bench-karpenter` first, some four minutes.

etcd, kube-apiserver and kube-scheduler are real and run on this machine, together with the load.
Nodes have no kubelet, so that what is measured ends with the binding. Setups take turns, each
started again, and medians over the rounds are compared; `setups` says what they are.
"""
