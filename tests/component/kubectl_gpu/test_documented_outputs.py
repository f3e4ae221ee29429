"""Every output in docs/kubectl-gpu.md that has a command is what the command prints."""

import re

import pytest

from tests.support.plugin_cluster import ROOT, ListedCluster

PAGE = (ROOT / "docs" / "kubectl-gpu.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```console\n\$ kubectl gpu (.+)\n((?:.+\n)+)```$", PAGE, re.MULTILINE)
AGE = re.compile(r"\b(?:\d+[dhms]){1,2}\b")


def test_there_are_examples_of_every_verb_that_reads():
    assert {command.split()[0] for command, _ in EXAMPLES} >= {"why", "pools", "nodes", "who"}


@pytest.mark.parametrize(("command", "current"), EXAMPLES)
async def test_an_example_is_what_the_command_prints(
    cluster: ListedCluster, command: str, current: str
):
    done = await cluster.run(*command.split())
    assert done.returncode == 0, done.stderr
    assert without_ages(done.stdout) == without_ages(current)


def without_ages(text: str) -> list[list[str]]:
    """Return the words of each line; a column is as wide as its ages."""
    return [AGE.sub("AGE", line).split() for line in text.splitlines()]
