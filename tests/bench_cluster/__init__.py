"""Pods a second on an unmodified Kubernetes control plane, beside two others in the same run.

    make bench-cluster
    python -m tests.bench_cluster --quick

etcd, kube-apiserver and kube-scheduler are real and run on this machine, together with the load.
Nodes have no kubelet, so that what is measured ends with the binding. Contenders take turns, each
started anew, and medians over the rounds are compared; `contenders` says what they are.
"""
