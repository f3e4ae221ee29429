"""Settings of the roles caches and csi: each combination without effect is refused by its text."""

import re
from pathlib import Path
from typing import Any

import pytest

from agent.settings import AgentRole, AgentSettings
from cli.agent import add_arguments, settings_of
from cli.command_parser import CommandLineError, CommandParser

BOTH = "inventory,caches,csi"


def settings(roles: str, **changes: Any) -> AgentSettings:
    chosen = frozenset(AgentRole(part) for part in roles.split(","))
    return AgentSettings(node="n1", roles=chosen, namespace="gpu", **changes)


@pytest.mark.parametrize(
    ("roles", "changes", "text"),
    [
        pytest.param(
            "inventory,caches", {}, "caches requires the role csi: add it to --roles", id="no csi"
        ),
        pytest.param(
            "inventory,csi", {}, "csi requires the role caches: add it to --roles", id="no caches"
        ),
        pytest.param(
            "caches,csi",
            {},
            "caches and csi require the role inventory: add it to --roles",
            id="no inventory",
        ),
        pytest.param(
            BOTH, {"caches_quota": 0}, "--caches-quota is 0: it must be above 0", id="no room"
        ),
        pytest.param(
            BOTH,
            {"caches_grace": -1.0},
            "--caches-grace is -1: it must be 0 or more",
            id="a negative time",
        ),
        pytest.param(
            BOTH,
            {"caches_directory": Path("gkm")},
            "--caches-directory is gkm: it must be an absolute path",
            id="a relative store",
        ),
        pytest.param(
            BOTH,
            {"kubelet_directory": Path("kubelet")},
            "--kubelet-directory is kubelet: it must be an absolute path",
            id="a relative kubelet",
        ),
        pytest.param(
            "inventory",
            {"caches_quota": 1},
            "--caches-quota is for the roles caches and csi",
            id="a quota of nothing",
        ),
        pytest.param(
            "inventory",
            {"registries_plain_http": frozenset({"registry:5000"})},
            "--registries-plain-http is for the roles caches and csi",
            id="registries for nobody",
        ),
        pytest.param(
            "inventory",
            {"registries_private": frozenset({"registry:5000"})},
            "--registries-private is for the roles caches and csi",
            id="private registries for nobody",
        ),
        pytest.param(
            "inventory",
            {"registries_ca_file": Path("/ca.crt")},
            "--registries-ca-file is for the roles caches and csi",
            id="authorities for nobody",
        ),
        pytest.param(
            "inventory",
            {"cache_pull_secrets": frozenset({"login"})},
            "--cache-pull-secrets is for the roles caches and csi",
            id="secrets for nobody",
        ),
    ],
)
def test_settings_that_do_not_go_together_are_refused(
    roles: str, changes: dict[str, Any], text: str
) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        settings(roles, **changes)


def test_flags_become_settings() -> None:
    parser = CommandParser("agent", "The agent of a GPU node.")
    add_arguments(parser)
    found = settings_of(
        parser.parse_flags(
            [
                "--node=n1",
                f"--roles={BOTH}",
                "--caches-directory=/srv/gkm",
                "--caches-quota=100Gi",
                "--caches-grace=60",
                "--kubelet-directory=/opt/kubelet",
                "--registries-plain-http=one:5000,two:80",
                "--registries-private=one:5000,three",
                "--registries-ca-file=/etc/ca.crt",
                "--cache-pull-secrets=login, other",
            ]
        )
    )
    assert found.caches_directory == Path("/srv/gkm")
    assert found.caches_quota == 100 * 2**30
    assert found.caches_grace == 60
    assert found.kubelet_directory == Path("/opt/kubelet")
    assert found.registries_plain_http == {"one:5000", "two:80"}
    assert found.registries_private == {"one:5000", "three"}
    assert found.registries_ca_file == Path("/etc/ca.crt")
    assert found.cache_pull_secrets == {"login", "other"}


def test_a_quota_that_is_no_quantity_is_refused() -> None:
    parser = CommandParser("agent", "The agent of a GPU node.")
    add_arguments(parser)
    with pytest.raises(CommandLineError, match="--caches-quota"):
        parser.parse_flags(["--node=n1", f"--roles={BOTH}", "--caches-quota=many"])
