"""Of the files that other people have published, ours says what the schema of their kind's project says, with a cure."""

from collections.abc import Iterator

import pytest

from cli.operands.policy_files import field_faults
from tests.support.nvidia.operator_kinds import MODELS, sample
from tests.support.published_files import ACCEPTED, Json, published_files, results

FILES = published_files()
LEAST = 40
CURES = ("it is in spec.", "did you mean ", "remove it", "write `")


def faults_of_the_files() -> Iterator[tuple[str, str]]:
    """Yield kind and fault, once for each judgement on a field of one name."""
    found: dict[tuple[str, ...], tuple[str, str]] = {}
    for file in FILES:
        for fault in file.result.split("; ") if file.result != ACCEPTED else ():
            judgement, path = fault.split()
            found[file.kind, judgement, path.rpartition(".")[2]] = (file.kind, fault)
    yield from sorted(found.values())


def reduced(kind: str, fault: str) -> Json:
    """Return a published sample with this fault alone."""
    body = sample(kind)
    judgement, path = fault.split()
    *parents, field = path.split(".")
    parent = body
    for name in parents:
        parent = parent.setdefault(name, {})
    if judgement == "required":
        del parent[field]
    else:
        parent[field] = {}
    return body


def test_every_file_has_a_source_and_one_verdict():
    assert len({(file.repository, file.commit, file.path) for file in FILES}) == len(FILES) > LEAST
    kinds = {"ClusterPolicy", "NVIDIADriver", "NodePool", "GKMCache", "ClusterGKMCache"}
    assert {file.kind for file in FILES} == kinds
    assert [file for file in FILES if " | " in file.result] == []


@pytest.mark.parametrize(("kind", "fault"), list(faults_of_the_files()))
def test_both_schemas_refuse_a_reduced_file_and_the_refusal_has_a_cure(kind: str, fault: str):
    body = reduced(kind, fault)
    assert results(body) == {fault}
    (said,) = field_faults(MODELS[kind], body)
    assert any(cure in said for cure in CURES), said
