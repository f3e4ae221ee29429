"""`render nodepool` reads a pool, and says what is missing of it."""

from pathlib import Path

import pytest
import yaml

from cli.exit_status import MISUSED, OK
from cli.main import run
from manifests.example_files import example_text

POOL = example_text("pool-autoscaling")


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def rendered(capsys: pytest.CaptureFixture[str], text: str, *flags: str) -> list[tuple[str, str]]:
    Path("pool.yaml").write_text(text)
    assert run(["render", "nodepool", "--pool-file", "pool.yaml", *flags]) == OK
    documents = yaml.safe_load_all(capsys.readouterr().out)
    return [(document["kind"], document["metadata"]["name"]) for document in documents]


@pytest.mark.parametrize(
    ("backend", "expected"),
    [
        ("karpenter-signal", [("NodePool", "elastic")]),
        ("capacity-buffer", [("NodePool", "elastic")]),
        ("karpenter-static", [("NodePool", "elastic")]),
        ("karpenter-native", [("NodePool", "elastic")]),
        ("balloon", [("PriorityClass", "gpu-control-plane-balloon")]),
    ],
)
def test_each_backend_has_its_objects(
    backend: str, expected: list[tuple[str, str]], capsys: pytest.CaptureFixture[str]
):
    text = POOL.replace("maxUnits: 32", f"backend: {backend}")
    assert rendered(capsys, text) == expected


def test_lists_of_kubectl_are_read_and_other_kinds_ignored(capsys: pytest.CaptureFixture[str]):
    items = [yaml.safe_load(POOL), {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}]
    listing = yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": items})
    assert rendered(capsys, listing, "--pool", "elastic") == [("NodePool", "elastic")]


@pytest.mark.parametrize(
    ("text", "flags", "complaint"),
    [
        pytest.param(
            POOL,
            ("--pool", "training"),
            "pool.yaml has 0 GPUPools with the name training (there: elastic)",
            id="another pool",
        ),
        pytest.param(
            f"{POOL}---\n{POOL.replace('name: elastic', 'name: other')}",
            (),
            "pool.yaml has 2 GPUPools; --pool NAME chooses one (there: elastic, other)",
            id="several",
        ),
        pytest.param(
            example_text("pool-whole-devices"),
            (),
            "GPUPool train gets no nodes: it has no spec.autoscaling, or its backend is none",
            id="does not scale",
        ),
        pytest.param(
            POOL.replace("maxUnits: 32", "backend: none"),
            (),
            "GPUPool elastic gets no nodes: it has no spec.autoscaling, or its backend is none",
            id="backend none",
        ),
        pytest.param(
            POOL.partition("    shapes:")[0],
            (),
            "GPUPool elastic has no spec.autoscaling.shapes: name at least one kind of node",
            id="no shapes",
        ),
        pytest.param(
            POOL.replace("maxUnits: 32", "maxUnits: many"),
            (),
            "pool.yaml: the GPUPool cannot be decoded: Expected `int | null`, got `str` - at `$.spec.autoscaling.maxUnits`",
            id="type",
        ),
        pytest.param(
            "[]", (), "pool.yaml is no file of Kubernetes objects: they have a kind", id="no object"
        ),
    ],
)
def test_a_pool_that_cannot_be_used_is_named(
    text: str, flags: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str]
):
    Path("pool.yaml").write_text(text)
    assert run(["render", "nodepool", "--pool-file", "pool.yaml", *flags]) == MISUSED
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", f"gpu-control-plane: {complaint}\n")


def test_without_a_file_at_a_terminal_the_way_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("sys.stdin", Terminal())
    assert run(["render", "nodepool", "--pool", "elastic"]) == MISUSED
    assert capsys.readouterr().err == (
        "gpu-control-plane: the pool is missing: --pool-file FILE, or"
        " `kubectl get gpupool NAME -o yaml | gpu-control-plane render nodepool`\n"
    )


class Terminal:
    """Standard input of a person who types."""

    def isatty(self) -> bool:
        return True
