"""Kubelet's gRPC APIs: device plugin v1beta1 and PodResources v1.

The messages are generated from kubelet's `.proto` files (`api.kubelet.proto`). Beside them are the names of
services, methods and sockets, which `.proto` files do not give to Python.
"""
