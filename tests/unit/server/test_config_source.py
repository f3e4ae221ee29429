"""The values of an installation, and whether those of a Deployment are the same."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from server.configuration.config_source import (
    FLAGS,
    LIVE,
    ConfigSource,
    Layer,
    installation_values,
    merged,
)
from server.settings import BadSettingsError

IMAGE = {"image": "registry.test/gpu-control-plane:1"}
PAGE = Path(__file__).parents[3] / "docs/operations.md"
VALUES = {
    "log_level": "debug",
    "namespace": "gpu",
    "device_plugin": IMAGE,
    "health": {"xid_actions": {"13": "None"}},
    "scheduler_name": "a$b",
}
TEXT = json.dumps(VALUES).replace("$", "$$")


def a_source(**values: Any) -> ConfigSource:
    return ConfigSource(installation={"device_plugin": IMAGE, **values})


def test_the_object_has_all_values_but_flags():
    assert ConfigSource(installation=VALUES).stored == {
        name: VALUES[name] for name in ("device_plugin", "health", "scheduler_name")
    }


def test_the_checksum_is_that_of_what_the_object_has():
    source = ConfigSource(installation=VALUES)
    turned = dict(reversed(VALUES.items()))
    assert source.checksum == ConfigSource(installation=turned | {"log_level": "info"}).checksum
    assert source.checksum != ConfigSource(installation=VALUES | {"drain_s": 1}).checksum
    assert len(source.checksum) == 16


@pytest.mark.parametrize(
    ("arguments", "is_deployed"),
    [
        pytest.param(["serve", "--installation", TEXT], True, id="same"),
        pytest.param(["serve", f"--installation={TEXT}", "--drain-s", "1"], True, id="one-word"),
        pytest.param(
            ["--installation", json.dumps(dict(reversed(VALUES.items()))).replace("$", "$$")],
            True,
            id="other-order",
        ),
        pytest.param(["--installation", TEXT.replace("debug", "info")], True, id="other-log-level"),
        pytest.param(["--installation", TEXT.replace("13", "31")], False, id="other-value"),
        pytest.param(["serve", "--settings", "/settings.yaml"], False, id="before-objects"),
        pytest.param(["serve", "--installation"], False, id="nothing-after"),
        pytest.param(["serve", "--installation", "{"], False, id="not-JSON"),
        pytest.param(["serve", "--installation", "[]"], False, id="no-mapping"),
        pytest.param([], False, id="no-arguments"),
    ],
)
def test_a_deployment_has_the_values_of_its_pods(arguments: list[str], is_deployed: bool):
    assert ConfigSource(installation=VALUES).is_deployed(arguments) is is_deployed


@pytest.mark.parametrize(("text", "complaint"), [("{", "not JSON"), ("[1]", "no mapping")])
def test_values_that_are_no_mapping_are_refused(text: str, complaint: str):
    with pytest.raises(BadSettingsError, match=f"--installation .*{complaint}"):
        installation_values(text)


@pytest.mark.parametrize("name", FLAGS)
def test_an_object_has_no_flag(name: str):
    layer = ("ModuleConfig m: spec.settings.", {name: VALUES.get(name, "x")})
    with pytest.raises(BadSettingsError, match=f"ModuleConfig m: spec.settings.{name}: a server"):
        a_source().settings([("spec.", {"device_plugin": IMAGE}), layer])


def test_flags_are_the_installations_and_all_else_is_the_objects():
    source = ConfigSource(installation=VALUES, arguments=("--drain-s", "7"))
    found = source.settings([("spec.", {"device_plugin": IMAGE, "drain_s": 3})])
    assert (found.log_level, found.namespace) == ("debug", "gpu")
    assert not found.health.xid_actions
    assert found.drain_s == 7


def test_what_layers_give_is_merged_as_it_counts():
    image = {"device_plugin": IMAGE}
    lower = {"health": {"xid_actions": {"13": "None"}, "dcgm": False}, "drain_s": 3} | image
    upper = {"health": {"xid_actions": {"31": "None"}}}
    layers: list[Layer] = [("lower.", lower), ("upper.", upper)]
    assert merged(layers) == {
        "health": {"xid_actions": {"31": "None"}, "dcgm": False},
        "drain_s": 3,
        **image,
    }
    assert a_source().settings(layers) == a_source().settings([("merged.", merged(layers))])


@pytest.mark.parametrize(
    ("heading", "names"), [("In force within 2 s", LIVE), ("Not in the object", FLAGS)]
)
def test_the_page_names_what_needs_no_restart_and_what_no_object_has(heading, names):
    text = PAGE.read_text(encoding="utf-8")
    (listed,) = re.findall(rf"\*\*{heading}\*\*: ([^.]*?)(?:\.|, which)", text)
    assert tuple(re.findall("`([a-z_]+)`", listed)) == names
