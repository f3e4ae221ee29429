"""docs/node-software.md names every key of a ClusterPolicy's spec, and what counts where it is left out.

It has every state with its needs and its deploy label, every operand of each workload type, and every state of an upgrade.
"""

import re
from pathlib import Path

import pytest

from api.crd.openapi import crd_schema
from api.driver_upgrade import DEPLOY_LABEL_PREFIX, UpgradeState
from api.kinds.nvidia.clusterpolicy import ClusterPolicy, ClusterPolicySpec
from api.kinds.nvidia.operand_block import Switchable
from api.kinds.nvidia.sandbox_operands import SandboxMode, WorkloadType
from operands.asset_files import load_assets
from operands.nvidia.deploy_labels import MIG_MANAGER, operands_of
from operands.nvidia.policy_states import POLICY_STATES
from operands.nvidia.states import kata_manager
from operands.transforms import pod_spec_of
from tests.support.nvidia.stricter_rules import RULES

PAGE = (Path(__file__).parents[3] / "docs" / "node-software.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| `(\w+)` \| (on|off)? ?\|", PAGE, re.MULTILINE))
EARLY = PAGE.partition("## Rules of the API server")[2].partition("\n## ")[0]
WITHOUT_EFFECT = {"psp", "kataManager"}


def test_page_says_of_every_key_what_it_does():
    assert list(ROWS)
    assert set(ROWS) == set(crd_schema(ClusterPolicy)["properties"]["spec"]["properties"])


def snake(name: str) -> str:
    return re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", name)


@pytest.mark.parametrize("key", sorted(ROWS))
def test_page_says_what_counts_where_a_key_is_left_out(key):
    block = getattr(ClusterPolicySpec(), snake(key))
    if key == "validator":
        expected = "on"  # it has no switch
    elif isinstance(block, Switchable) and key not in WITHOUT_EFFECT:
        expected = "on" if block.is_enabled else "off"
    else:
        expected = ""
    assert ROWS[key] == expected


def test_page_lists_as_many_early_rules_as_there_are():
    """Two rules on precompiled drivers share a row."""
    rows = re.findall(r"^\| (?!Refused|---)", EARLY, re.MULTILINE)
    assert len(rows) == len(RULES) - 1


def section(heading: str) -> str:
    return PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def rows_of(heading: str) -> dict[str, list[str]]:
    """Return the rows of the section's table: first cell without its quotes -> the others."""
    lines = re.findall(r"^\| (`.*) \|$", section(heading), re.MULTILINE)
    rows = [[cell.strip() for cell in line.split("|")] for line in lines]
    return {first.strip("`"): others for first, *others in rows}


def quoted(cell: str) -> set[str]:
    return set(re.findall(r"`([^`]+)`", cell))


def test_page_has_every_state_in_the_order_of_the_code_with_its_needs():
    rows = rows_of("States")
    assert list(rows) == [state.name for state in POLICY_STATES]
    for state in POLICY_STATES:
        assert quoted(rows[state.name][0]) == set(state.needs)


@pytest.mark.parametrize(
    "name", [state.name for state in POLICY_STATES if state.name != kata_manager.NAME]
)
def test_page_has_the_labels_by_which_a_state_selects_its_nodes(name: str):
    _, _, labels, daemon_set = rows_of("States")[name]
    found = [asset for asset in load_assets(name) if asset["kind"] == "DaemonSet"]
    if not found:
        assert daemon_set == ""
        return
    selectors = pod_spec_of(found[0])["nodeSelector"]
    texts = {
        key.removeprefix(DEPLOY_LABEL_PREFIX)
        if key.startswith(DEPLOY_LABEL_PREFIX)
        else f"{key}={value}"
        for key, value in selectors.items()
    }
    assert quoted(labels) == texts
    assert found[0]["metadata"]["name"] == daemon_set.strip("`").removesuffix("-OS")


@pytest.mark.parametrize("workload", WorkloadType)
def test_page_has_the_operands_of_each_workload(workload: WorkloadType):
    (cell,) = rows_of("Labels of nodes")[workload.value]
    expected = {name for mode in SandboxMode for name in operands_of(workload, mode)}
    if workload is WorkloadType.CONTAINER:
        expected.add(MIG_MANAGER)
    assert quoted(cell) == expected


def test_page_has_every_state_of_an_upgrade():
    names = {part for key in rows_of("Upgrades of the driver") for part in re.split("`, `", key)}
    assert names == {state.value for state in UpgradeState if state.value}
