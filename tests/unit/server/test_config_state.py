"""Settings in force: at the start, after each change, and what the status of the object says."""

import datetime as dt
from dataclasses import replace
from typing import Any

import pytest

from api.foreign.deckhouse import ModuleConfig, ModuleConfigSpec
from api.kinds.gpucontrolplaneconfig import GPUControlPlaneConfig, GPUControlPlaneConfigStatus
from api.meta import ObjectMeta
from server.configuration.config_follower import status_of
from server.configuration.config_source import LIVE, ConfigSource
from server.configuration.config_state import ConfigState, StoredConfig, first_state, next_state
from server.settings import Settings

IMAGE = {"device_plugin": {"image": "registry.test/gpu-control-plane:1"}}
NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
SOURCE = ConfigSource(installation={**IMAGE, "drain_s": 9})


def xid(number: int) -> dict[str, Any]:
    return {"health": {"xid_actions": {str(number): "None"}}}


def stored(
    spec: dict[str, Any] | None, applied: dict[str, Any] | None = None, **module: Any
) -> StoredConfig:
    status = None if applied is None else GPUControlPlaneConfigStatus(applied=applied)
    return StoredConfig(
        config=None if spec is None else GPUControlPlaneConfig(spec=spec, status=status),
        module=ModuleConfig(spec=ModuleConfigSpec(settings=module)) if module else None,
    )


def xids(state: ConfigState) -> list[int]:
    return sorted(state.settings.health.xid_actions)


def test_a_server_without_an_object_starts_with_the_installations_values():
    state = first_state(SOURCE, stored(None, **xid(31)))
    assert state == ConfigState(settings=SOURCE.initial, is_missing=True)


def test_a_server_starts_with_what_the_objects_have():
    state = first_state(SOURCE, stored(IMAGE | xid(13)))
    assert (xids(state), state.settings.drain_s) == ([13], Settings().drain_s)
    assert (state.restart_needed, state.refusal, state.is_missing) == ((), "", False)


def test_a_module_config_replaces_a_setting_that_is_a_mapping():
    assert xids(first_state(SOURCE, stored(IMAGE | xid(13), **xid(31)))) == [31]


@pytest.mark.parametrize(
    ("applied", "found", "drain_s"),
    [
        pytest.param(IMAGE | xid(45) | {"drain_s": 2}, [45], 2, id="accepted-last"),
        pytest.param(None, [], 9, id="never-accepted"),
        pytest.param({}, [], 9, id="refused-from-the-beginning"),
        pytest.param({"of_an_earlier_version": 1}, [], 9, id="refused-by-this-version"),
    ],
)
def test_a_server_that_starts_while_the_spec_is_refused(applied, found, drain_s):
    state = first_state(SOURCE, stored({"helth": {}}, applied))
    assert (xids(state), state.settings.drain_s) == (found, drain_s)
    assert "GPUControlPlaneConfig gpu-control-plane: spec.helth: no such setting" in state.refusal
    assert not state.is_missing


def test_a_refusal_names_the_object_that_has_the_setting():
    state = first_state(SOURCE, stored(IMAGE, helth={}))
    assert "ModuleConfig gpu-control-plane: spec.settings.helth: no such setting" in state.refusal


CHANGED: dict[str, Any] = {
    "placement": "Scored",
    "inventory": {"label_nodes": False},
    "health": {"dcgm": False},
    "daemonsets": {"rolling_update": {"max_unavailable": 2}},
    "device_plugin": {"image": "registry.test/another:1"},
    "node_agent": {"enabled": False},
    "node_detector": {"enabled": False},
    "kubelet": {"directory": "/data/kubelet"},
    "pod_security": {"label_namespace": False},
}


@pytest.mark.parametrize("section", LIVE)
def test_a_change_of_what_controllers_read_is_in_force(section: str):
    before = first_state(SOURCE, stored(IMAGE))
    spec = IMAGE | {section: CHANGED[section]}
    state = next_state(before, SOURCE, stored(spec), started=before.settings)
    assert state == ConfigState(settings=SOURCE.settings([("spec.", spec)]))
    assert state.settings != before.settings


def test_all_else_needs_a_restart_and_is_named():
    before = first_state(SOURCE, stored(IMAGE))
    further = {"drain_s": 1, "leadership": {"settle_s": 3.0}}
    changed = stored(IMAGE | xid(13) | further)
    state = next_state(before, SOURCE, changed, started=before.settings)
    assert (xids(state), state.settings.drain_s) == ([13], Settings().drain_s)
    assert state.restart_needed == ("drain_s", "leadership.settle_s")
    undone = next_state(state, SOURCE, stored(IMAGE), started=before.settings)
    assert undone == before
    assert first_state(SOURCE, changed).restart_needed == ()


def test_of_refused_objects_nothing_counts():
    started = first_state(SOURCE, stored(IMAGE)).settings
    before = ConfigState(settings=started, restart_needed=("drain_s",), is_missing=True)
    state = next_state(before, SOURCE, stored(IMAGE | xid(13), helth={}), started=started)
    assert state.refusal
    assert replace(state, refusal="") == replace(before, is_missing=False)


def test_settings_of_a_deleted_object_stay():
    before = ConfigState(settings=SOURCE.initial, restart_needed=("drain_s",), refusal="no")
    state = next_state(before, SOURCE, stored(None, **xid(13)), started=Settings())
    assert state == replace(before, is_missing=True)


@pytest.mark.parametrize(
    ("restart_needed", "refusal", "applied", "restart", "refused"),
    [
        pytest.param(
            (),
            "",
            ("True", "InForce", "all settings are in force"),
            ("False", "InForce", ""),
            ("False", "InForce", ""),
            id="in-force",
        ),
        pytest.param(
            ("drain_s", "listen.port"),
            "",
            ("False", "ReadAtStart", "drain_s, listen.port: servers read it when they start"),
            ("True", "ReadAtStart", "drain_s, listen.port: servers read it when they start"),
            ("False", "InForce", ""),
            id="restart-needed",
        ),
        pytest.param(
            ("drain_s",),
            "x: no such setting",
            ("False", "InvalidSettings", "x: no such setting"),
            ("True", "ReadAtStart", "drain_s: servers read it when they start"),
            ("True", "InvalidSettings", "x: no such setting"),
            id="refused",
        ),
    ],
)
def test_the_status_says_what_became_of_the_settings(
    restart_needed, refusal, applied, restart, refused
):
    config = GPUControlPlaneConfig(
        metadata=ObjectMeta(name="gpu-control-plane", generation=4),
        status=GPUControlPlaneConfigStatus(applied={"drain_s": 2}, observed_generation=3),
    )
    state = ConfigState(settings=SOURCE.initial, restart_needed=restart_needed, refusal=refusal)
    status = status_of(config, state, {"drain_s": 3}, now=NOW)
    rows = {item.type: (item.status, item.reason, item.message) for item in status.conditions}
    for name, expected in (
        ("Applied", applied),
        ("RestartNeeded", restart),
        ("Refused", refused),
    ):
        assert rows[name][:2] == expected[:2]
        assert rows[name][2].partition(";")[0] == expected[2]
    assert status.observed_generation == 4
    assert {item.observed_generation for item in status.conditions} == {4}
    assert status.applied == ({"drain_s": 2} if refusal else {"drain_s": 3})
    if restart_needed:
        command = (
            f"kubectl -n {SOURCE.initial.namespace} rollout restart deployment gpu-control-plane"
        )
        assert rows["RestartNeeded"][2].endswith(f"; {command}")
