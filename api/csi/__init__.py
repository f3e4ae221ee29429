"""The Container Storage Interface 1.10, as far as a node plugin for inline volumes needs it.

The messages are generated from `api/csi/proto/csi.proto`. Beside them are the names of services, methods and keys,
which a `.proto` file does not give to Python.
"""
