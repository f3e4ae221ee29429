"""An API server in memory that answers over HTTP as kube-apiserver 1.36 does.

`server.InMemoryApiServer` is the way in. One event loop, one process, no persistence. What it has to
do like the real one is demanded by tests/component/conformance, which runs against both.

Deliberately absent: authorization, CEL (schema rules, match conditions beyond a port, admission
policies), quota, discovery and OpenAPI documents, tables, protobuf and YAML bodies, and everything
that a controller does: garbage collection of owned objects, service accounts, node life cycle.
Kinds other than custom resources have no schema here, so their unknown fields are kept.
"""
