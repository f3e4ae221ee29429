"""Commands that a test runs in its own process."""

import pytest


@pytest.fixture(autouse=True)
def logs_of_the_tests(monkeypatch: pytest.MonkeyPatch):
    """Commands configure the logs of their process, for good; this process runs other tests."""
    monkeypatch.setattr("telemetry.logs.configure_logs", lambda *_: None)
