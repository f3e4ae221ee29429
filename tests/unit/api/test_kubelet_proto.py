"""The committed modules are what the compiler makes of the `.proto` files: kubelet's and CSI's."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PROTO = "api/kubelet/proto"
CSI = "api/csi/proto"


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("proto")
    subprocess.run(
        [
            sys.executable,
            *("-m", "grpc_tools.protoc", "--proto_path=."),
            f"--python_out={directory}",
            f"--mypy_out=quiet:{directory}",
            f"--plugin=protoc-gen-mypy={Path(sys.executable).with_name('protoc-gen-mypy')}",
            *(
                f"{folder}/{path.name}"
                for folder in (PROTO, CSI)
                for path in sorted((ROOT / folder).glob("*.proto"))
            ),
        ],
        cwd=ROOT,
        check=True,
        timeout=60,
    )
    return directory


@pytest.mark.parametrize(
    "name",
    [
        f"{PROTO}/deviceplugin",
        f"{PROTO}/pluginregistration",
        f"{PROTO}/podresources",
        f"{CSI}/csi",
    ],
)
@pytest.mark.parametrize("suffix", ["_pb2.py", "_pb2.pyi"])
def test_generating_again_gives_the_same_bytes(generated: Path, name: str, suffix: str):
    committed = ROOT / f"{name}{suffix}"
    fresh = generated / f"{name}{suffix}"
    assert fresh.read_bytes() == committed.read_bytes(), "run `make proto`"


def test_every_file_is_listed_in_the_readme_with_its_origin():
    readme = (ROOT / PROTO / "README.md").read_text(encoding="utf-8")
    files = [path.name for path in (ROOT / PROTO).glob("*.proto")]
    assert sorted(files) == ["deviceplugin.proto", "pluginregistration.proto", "podresources.proto"]
    assert all(f"| `{name}` | `pkg/apis/" in readme for name in files)
