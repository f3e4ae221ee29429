"""Failures of scrapes, apart from the HTTP client: `render rbac` loads controllers, and no client."""


class ExporterUnavailableError(Exception):
    """The exporter did not answer with a page of metrics."""
