"""Whatever users without a group copy, edit, forge and rename: the pods of a closed pool have a member's template."""

from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.support.workloads import (
    MEMBERS,
    NON_MEMBERS,
    Cluster,
    a_template,
    a_workload,
    annotated,
    changed,
    controlled_by,
    note_of,
    noted,
    template_of,
)

Json = dict[str, Any]
Key = tuple[str, str]

KEYS = st.tuples(st.sampled_from(["Deployment", "ReplicaSet", "Job", "CronJob"]), st.just("a"))
NOTES = st.sampled_from(["claimed", "claimed for another", "copied", "edited"])
WRITERS = st.sampled_from(["other user", "other user", "member"])
BENEATH = {"Deployment": "ReplicaSet", "CronJob": "Job"}
OPEN: Json = {}
CLOSED: Json = {"groups": ["researchers"]}


class Forgeries(RuleBasedStateMachine):
    """Users, controllers and admission; a template's image says who wrote it.

    A member who writes a stored template again signs it, also where another user wrote it first.
    """

    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster()
        self.stored: dict[Key, Json] = {}
        self.signed: set[Key] = set()
        """Templates of others that a member has written again."""

    @rule(
        key=KEYS,
        other=KEYS,
        note=NOTES,
        writer=WRITERS,
        pool=st.sampled_from(["closed", "open meanwhile", "not named"]),
    )
    def writes(self, key: Key, other: Key, note: str, writer: str, pool: str) -> None:
        old = self.stored.get(key)
        workload = a_workload(*key, template=a_template(None if pool == "not named" else "whole"))
        if other in self.stored:
            workload["metadata"]["ownerReferences"] = controlled_by(self.stored[other])
        if old is not None:
            workload["metadata"]["uid"] = old["metadata"]["uid"]
        written = annotated(changed(workload, writer), self._note(note, key, other))
        if pool == "open meanwhile":
            self.cluster.setup.add_pool(access=OPEN)
        self._store(key, written, writer)
        self.cluster.setup.add_pool(access=CLOSED)

    @rule(key=KEYS, other=KEYS, note=NOTES, writer=WRITERS)
    def annotates(self, key: Key, other: Key, note: str, writer: str) -> None:
        if key in self.stored:
            written = annotated(self.stored[key], self._note(note, key, other))
            self._store(key, written, writer)

    @rule(key=KEYS)
    def deletes(self, key: Key) -> None:
        self.stored.pop(key, None)
        self.signed.discard(key)

    @rule(days=st.sampled_from([1, 50, 100]))
    def waits(self, days: int) -> None:
        self.cluster.advance(days=days)

    @rule(key=KEYS)
    def controller_makes_what_is_beneath(self, key: Key) -> None:
        owner = self.stored.get(key)
        if owner is None or key[0] not in BENEATH:
            return
        made, reply = self.cluster.ask_beneath(owner, BENEATH[key[0]])
        if reply.allowed or not _names_pool(owner):
            made["metadata"]["uid"] = f"uid-{made['metadata']['name']}"
            beneath = BENEATH[key[0]], made["metadata"]["name"]
            self.stored[beneath] = made
            (self.signed.add if key in self.signed else self.signed.discard)(beneath)

    @rule(note=NOTES, key=KEYS, other=KEYS)
    def stranger_makes_pods(self, note: str, key: Key, other: Key) -> None:
        text = self._note(note, key, other)
        unknown = annotated(a_workload("ReplicationController", "a"), text)
        forged = annotated(a_workload(*key), text)
        assert not self.cluster.ask_pod(forged, user="other user", groups=NON_MEMBERS).allowed
        assert not self.cluster.ask_pod(unknown, user="system:kube-controller-manager").allowed

    @invariant()
    def only_templates_of_members_have_pods(self) -> None:
        for key, owner in self.stored.items():
            image, names_pool = _content(owner)
            is_members = image == "member" or key in self.signed
            if not is_members and names_pool and key[0] not in BENEATH:
                assert not self.cluster.ask_pod(owner).allowed

    def _note(self, source: str, key: Key, other: Key) -> str | None:
        """Return an annotation: any client that reaches the port can claim to be the API server, and have one made."""
        if source == "copied":
            return note_of(self.stored[other]) if other in self.stored else None
        about = key if source == "claimed" else other
        stored = self.stored.get(about)
        claimed = changed(a_workload(*about), "claimed")
        if stored is not None:
            claimed["metadata"]["uid"] = stored["metadata"]["uid"]
        note = note_of(self.cluster.write(claimed, old=stored, groups=MEMBERS))
        if source == "edited" and note is not None:
            fields = {**noted(note), "kind": key[0], "name": key[1], "uid": ""}
            return msgspec.json.encode(fields).decode()
        return note

    def _store(self, key: Key, workload: Json, writer: str) -> None:
        """Store what the API server stores: it asks about templates that name a pool, or did."""
        old = self.stored.get(key)
        if any(item is not None and _names_pool(item) for item in (workload, old)):
            groups = MEMBERS if writer == "member" else NON_MEMBERS
            reply = self.cluster.ask(workload, old=old, groups=groups)
            if not reply.allowed:
                return
            workload = reply.applied_to(workload)
        workload["metadata"].setdefault("uid", f"uid-{key[0]}")
        if writer == "member":
            self.signed.add(key)
        elif old is None or _content(old) != _content(workload):
            self.signed.discard(key)
        self.stored[key] = workload


def _content(workload: Json) -> tuple[str, bool]:
    """Return the image of the template, and whether it names the pool."""
    container = template_of(workload)["spec"]["containers"][0]
    return container["image"], "gpu.deckhouse.io/whole" in container["resources"]["limits"]


def _names_pool(workload: Json) -> bool:
    return _content(workload)[1]


TestForgeries = Forgeries.TestCase
TestForgeries.settings = settings(stateful_step_count=12)
