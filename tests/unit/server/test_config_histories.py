"""Whatever becomes of the objects and of the Deployment, servers have the settings that a naive record says.

The record knows leaves of the settings, who wrote each of them, and what was accepted last; it shares no code with the
servers. Two servers run, as in a roll-out: each has the installation's values of its start, and restarts at any time.
"""

import asyncio
import datetime as dt
import json
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kube.errors import Invalid
from kube.resources import DEPLOYMENTS, GPU_CONTROL_PLANE_CONFIGS, MODULE_CONFIGS, Resource
from manifests import constants
from server.configuration.config_definition import build_config_crd
from server.configuration.config_follower import status_of
from server.configuration.config_source import ConfigSource, merged
from server.configuration.config_state import ConfigState, next_state
from server.configuration.config_store import prepare_config, read_config
from tests.support.client_of_api import an_api_with_client
from tests.support.module_configs import MODULE_CONFIG_CRD

if TYPE_CHECKING:
    from server.settings import Settings

Leaves = dict[str, Any]
NAME, NAMESPACE = constants.NAME, constants.DEFAULT_NAMESPACE
IMAGE = {"device_plugin": {"image": "registry.test/gpu-control-plane:1"}}
NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
INSTALLATIONS: list[Leaves] = [
    {},
    {"drain_s": 1.0, "xids": {"13": "None"}},
    {"drain_s": 2.0, "placement": "Scored"},
    {"xids": {"31": "None"}},
    {"xids": {}},
]
VALUES: Leaves = {
    "drain_s": st.sampled_from([1.0, 2.0, 3.0]),
    "placement": st.sampled_from(["Scored", "Nominated"]),
    "xids": st.dictionaries(st.sampled_from(["13", "31"]), st.just("None")),
    "helth": st.just(1),  # refused
}
leaves = st.fixed_dictionaries({}, optional=VALUES)
changes = st.fixed_dictionaries(
    {}, optional={name: st.none() | values for name, values in VALUES.items()}
)
Effective = tuple[float, str, frozenset[str]]


def nested(given: Leaves) -> dict[str, Any]:
    found = {name: value for name, value in given.items() if name != "xids"}
    return found | ({"health": {"xid_actions": given["xids"]}} if "xids" in given else {})


def effective(*layers: Leaves) -> Effective:
    """Return what counts of layers: the actions of Xids are one setting, which a later layer replaces."""
    found: Leaves = {"drain_s": 5.0, "placement": "Nominated", "xids": {}}
    for layer in layers:
        found |= layer
    return found["drain_s"], found["placement"], frozenset(found["xids"])


class Record:
    """The objects as a user who remembers every write knows them."""

    def __init__(self) -> None:
        self.spec: Leaves | None = None
        self.writers: dict[str, set[str]] = {}
        # leaf -> installation, user
        self.written: Leaves | None = None
        # the installation's values that the object has last got
        self.accepted: Effective | None = None
        self.module: Leaves | None = None

    @property
    def is_refused(self) -> bool:
        return "helth" in (self.spec or {}) or "helth" in (self.module or {})

    @property
    def effective(self) -> Effective:
        return effective(self.spec or {}, self.module or {})

    def install(self, values: Leaves) -> None:
        before = {} if self.spec is None else self.spec
        for name in self.written or {}:
            owners = self.writers.get(name, set())
            owners.discard("installation")
            if not owners:
                before.pop(name, None)
        for name, value in values.items():
            same = name in before and before[name] == value
            self.writers[name] = (self.writers[name] if same else set()) | {"installation"}
        self.spec, self.written = before | values, values

    def edit(self, change: Leaves) -> None:
        assert self.spec is not None
        for name, given in change.items():
            # A patch adds to a mapping.
            value = {**self.spec.get(name, {}), **given} if isinstance(given, dict) else given
            if value is None:
                self.spec.pop(name, None)
                self.writers.pop(name, None)
            elif self.spec.get(name) != value:
                self.spec[name] = value
                self.writers[name] = {"user"}

    def delete(self) -> None:
        self.spec = self.written = self.accepted = None
        self.writers = {}


class RecordedServer:
    """A server, and what the record expects of it."""

    def __init__(self, values: Leaves) -> None:
        self.values = values
        self.source = ConfigSource(installation=IMAGE | nested(values))
        self.state: ConfigState
        self.started: Settings
        self.expected: Effective
        self.restart_needed: tuple[str, ...] = ()
        self.is_refused = self.is_missing = False

    def expect_start(self, record: Record) -> None:
        self.restart_needed = ()
        self.is_missing = record.spec is None
        self.is_refused = record.spec is not None and record.is_refused
        self.expected = record.effective
        if self.is_missing or self.is_refused:
            self.expected = (self.is_refused and record.accepted) or effective(self.values)

    def expect_change(self, record: Record) -> None:
        self.is_missing = record.spec is None
        if self.is_missing:
            return
        self.is_refused = record.is_refused
        if not record.is_refused:
            drain_s, placement, xids = record.effective
            at_start = self.started.drain_s
            self.expected = (at_start, placement, xids)
            self.restart_needed = ("drain_s",) if drain_s != at_start else ()


class ConfigHistories(RuleBasedStateMachine):
    """A cluster with our definition, Deckhouse's, a Deployment and up to two servers."""

    def __init__(self) -> None:
        super().__init__()
        self.record = Record()
        self.servers: dict[int, RecordedServer] = {}
        self.deployed: Leaves = {}
        self.runner = asyncio.Runner()
        self.stack = AsyncExitStack()
        self.client = self.run(self._installed())

    def run(self, coroutine: Any) -> Any:
        return self.runner.run(coroutine)

    async def _installed(self) -> Any:
        definitions = (build_config_crd(), MODULE_CONFIG_CRD)
        opened = an_api_with_client(namespace=NAMESPACE, definitions=definitions)
        _, client = await self.stack.enter_async_context(opened)
        return client

    def teardown(self) -> None:
        self.run(self.stack.aclose())
        self.runner.close()

    @initialize(values=st.sampled_from(INSTALLATIONS))
    def install(self, values: Leaves) -> None:
        self.upgrade_or_roll_back(values)

    @rule(values=st.sampled_from(INSTALLATIONS))
    def upgrade_or_roll_back(self, values: Leaves) -> None:
        self.deployed = values
        text = json.dumps(IMAGE | nested(values))
        container = {"name": NAME, "args": ["serve", "--installation", text]}
        spec = {"template": {"spec": {"containers": [container]}}}
        self._apply(DEPLOYMENTS, {"spec": spec}, namespace=NAMESPACE)

    @rule(slot=st.sampled_from([1, 2]), is_replaced=st.booleans())
    def start(self, slot: int, is_replaced: bool) -> None:
        """Start a pod again, or one of the present Deployment in its place."""
        is_new = is_replaced or slot not in self.servers
        server = RecordedServer(self.deployed if is_new else self.servers[slot].values)
        prepared = self.run(prepare_config(self.client, server.source))
        server.state, server.started = prepared.state, prepared.state.settings
        if self.record.written != server.values and server.values == self.deployed:
            self.record.install(server.values)
        server.expect_start(self.record)
        self.servers.pop(slot, None)
        self._change()
        self.servers[slot] = server
        self._report()

    @precondition(lambda self: self.record.spec is not None)
    @rule(change=changes)
    def edit(self, change: Leaves) -> None:
        patch = {"spec": nested(change)}
        self.run(self.client.merge_patch(GPU_CONTROL_PLANE_CONFIGS, patch, name=NAME))
        self.record.edit(change)
        self._change()

    @precondition(lambda self: self.record.spec is not None)
    @rule()
    def delete(self) -> None:
        self.run(self.client.delete(GPU_CONTROL_PLANE_CONFIGS, NAME))
        self.record.delete()
        self._change()

    @rule(given=leaves)
    def write_module(self, given: Leaves) -> None:
        settings = {"settings": nested(given)} if given else {}  # an apply cannot empty a map
        self._apply(MODULE_CONFIGS, {"spec": {"version": 1} | settings})
        self.record.module = given
        self._change()

    @precondition(lambda self: self.record.module is not None)
    @rule()
    def delete_module(self) -> None:
        self.run(self.client.delete(MODULE_CONFIGS, NAME))
        self.record.module = None
        self._change()

    @rule(given=leaves)
    def create_a_second_object(self, given: Leaves) -> None:
        try:
            self._apply(GPU_CONTROL_PLANE_CONFIGS, {"spec": nested(given)}, name="second")
        except Invalid:
            return
        raise AssertionError("there are two")

    @invariant()
    def servers_have_what_the_record_says(self) -> None:
        for server in self.servers.values():
            found = server.state.settings
            xids = frozenset(map(str, found.health.xid_actions))
            assert (found.drain_s, found.placement, xids) == server.expected
            assert server.state.restart_needed == server.restart_needed
            assert bool(server.state.refusal) == server.is_refused
            assert server.state.is_missing == server.is_missing

    def _apply(
        self, resource: Resource, content: dict[str, Any], *, name: str = NAME, **further: str
    ) -> None:
        head = {"apiVersion": resource.api_version, "kind": resource.kind}
        body = {**head, "metadata": {"name": name, **further}, **content}
        self.run(self.client.apply(resource, body, field_manager="user"))

    def _change(self) -> None:
        """Have each running server follow the objects; then the leader reports."""
        stored = self.run(read_config(self.client))
        for server in self.servers.values():
            server.state = next_state(server.state, server.source, stored, started=server.started)
            server.expect_change(self.record)
        self._report()

    def _report(self) -> None:
        stored = self.run(read_config(self.client))
        if not self.servers or stored.config is None:
            return
        leader = self.servers[min(self.servers)]
        status = status_of(stored.config, leader.state, merged(stored.layers), now=NOW)
        content = {"status": msgspec.to_builtins(status)}
        head = {
            "apiVersion": GPU_CONTROL_PLANE_CONFIGS.api_version,
            "kind": GPU_CONTROL_PLANE_CONFIGS.kind,
            "metadata": {"name": NAME},
        }
        self.run(
            self.client.apply(
                GPU_CONTROL_PLANE_CONFIGS,
                head | content,
                field_manager="leader",
                subresource="status",
            )
        )
        if not leader.is_refused:
            self.record.accepted = self.record.effective


TestConfigHistories = ConfigHistories.TestCase
TestConfigHistories.settings = settings(stateful_step_count=20)
