"""An API server in memory that answers over HTTP as kube-apiserver 1.36 does.

`simulator.apiserver.server.InMemoryApiServer` is the entry point. One event loop, one process, no persistence.
tests/component/conformance defines its behaviour, and runs against both servers.

Deliberately absent: authorization, admission policies (`ValidatingAdmissionPolicy`), quota,
discovery and OpenAPI documents, tables, protobuf and YAML bodies, strategic merge patch, Events of
core/v1, and the work of controllers: garbage collection of owned objects, service accounts, node
life cycle. Only custom resources have a schema here, so unknown fields of other kinds are kept.
"""
