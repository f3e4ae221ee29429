"""Grafana dashboards, built from the metrics' own objects with Grafana's SDK.

A tool of development: `make dashboards` writes `manifests/monitoring/dashboards/*.json`, which the chart and `render`
read. Nothing that is shipped imports this package or the SDK.
"""
