"""Grafana dashboards: a link to the JSON that the chart has, and the objects that carry it."""
