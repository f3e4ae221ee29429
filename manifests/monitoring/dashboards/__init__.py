"""Grafana dashboards: JSON that `make dashboards` writes (`packaging/dashboards`), and the objects that carry it."""
