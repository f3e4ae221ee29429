"""Kubelet's gRPC APIs: device plugin v1beta1, PodResources v1 and plugin registration v1.

The messages are generated from kubelet's `.proto` files (`api.kubelet.proto`). Beside them are the names of
services, methods and sockets, which `.proto` files do not give to Python.
"""
