"""Grafana dashboards as values: what they show, and their JSON. No file and no template is read."""
