"""The list of slow tests, `tests/slow.txt`, and the measurement that it comes from.

A test is slow where one of its cases takes `SLOW_S` of processor time, its fixtures and child processes
included. `make test` leaves slow tests out, `make slow-test` runs them alone, and `.ci/run` does both. The
list holds functions, without parameters: the cases of one function run together.
"""

import resource
from collections import Counter
from collections.abc import Generator, Iterable
from pathlib import Path

import pytest

SLOW_S = 0.25
MARGIN = 4
"""How many times `SLOW_S` a test outside the list may take: the first test of a module pays for what all share."""
LIST = Path(__file__).parents[1] / "slow.txt"

_BEGAN_AT = pytest.StashKey[float]()
_PROPERTY = "cpu_s"


def function_of(test_id: str) -> str:
    """Return the id of a test without its parameters."""
    return test_id.partition("[")[0]


def slow_functions() -> list[str]:
    return LIST.read_text(encoding="utf-8").split()


def mark_slow_tests(items: Iterable[pytest.Item]) -> None:
    slow = frozenset(slow_functions())
    for item in items:
        if function_of(item.nodeid) in slow:
            item.add_marker("slow")


class CpuTimes:
    """A plugin that measures the processor time of each test, and writes the list or checks the run against it."""

    def __init__(self, *, writes: bool) -> None:
        self._writes = writes
        self._longest_s: dict[str, float] = {}
        self._cases: Counter[str] = Counter()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        item.stash[_BEGAN_AT] = _cpu_s()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if call.when == "teardown":
            report.user_properties.append((_PROPERTY, _cpu_s() - item.stash[_BEGAN_AT]))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, value in report.user_properties:
            if name == _PROPERTY and isinstance(value, float):
                function = function_of(report.nodeid)
                self._longest_s[function] = max(value, self._longest_s.get(function, 0.0))
                self._cases[function] += 1

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the list, or fail a run in which a test outside it was slow."""
        if hasattr(session.config, "workerinput"):
            return
        if self._writes:
            slow = sorted(
                name for name, longest_s in self._longest_s.items() if longest_s >= SLOW_S
            )
            LIST.write_text("".join(f"{name}\n" for name in slow), encoding="utf-8")
        elif self._unlisted() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        slow = frozenset(slow_functions())
        cases = sum(count for name, count in self._cases.items() if name in slow)
        terminalreporter.write_line(f"slow: {cases} of {self._cases.total()} tests")
        if not self._writes:
            for name in self._unlisted():
                terminalreporter.write_line(
                    f"{name} took {self._longest_s[name]:.1f} s of processor time: make it cheaper, "
                    f"or run `make slow-list` and commit tests/{LIST.name}"
                )

    def _unlisted(self) -> list[str]:
        slow = frozenset(slow_functions())
        most_s = SLOW_S * MARGIN
        return sorted(
            name
            for name, longest_s in self._longest_s.items()
            if longest_s > most_s and name not in slow
        )


def _cpu_s() -> float:
    """Return the processor time of this process and of its children that have ended, in seconds."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
