"""`gpu-control-plane cache pack`: what it pushes and writes is read back; each mistake has one line."""

import asyncio
import io
import json
import os
import tarfile
from pathlib import Path

import pytest
import yaml

from api.kinds.gkmcache import KernelTarget
from cli.exit_status import FAILED, MISUSED, OK
from cli.main import run
from kernelcache.image_format import CacheType, config_descriptor, read_cache_image
from oci.platforms import ImagePlatform
from oci.registry_client import RegistryClient
from simulator.registry.content import sha256
from simulator.registry.triton_cache import KERNEL, write_triton_cache
from tests.component.oci.conftest import Connect, a_login
from tests.support.loop_clock import LoopClock
from tests.support.registry_double import PASSWORD, USER, Cut, RegistryDouble, Status

H200 = KernelTarget(backend="cuda", arch="90", warp_size=32)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return write_triton_cache(tmp_path / "cache")


@pytest.fixture(autouse=True)
def no_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "nobody"))


def names_in(layer: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(layer), mode="r:gz") as tar:
        return tar.getnames()


async def test_what_is_pushed_is_read_back(
    cache: Path,
    connect: Connect,
    clock: LoopClock,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    login = tmp_path / "login.json"
    async with RegistryDouble(auth="token") as registry, connect(registry) as connections:
        login.write_text(
            json.dumps({"auths": {registry.host: {"username": USER, "password": PASSWORD}}})
        )
        reference = registry.reference("team/add", "v1")
        arguments = ["cache", "pack", str(cache), "--image", str(reference), "--plain-http"]
        # The file of the layer is opened again for each attempt.
        registry.will_fail(Cut(), "PUT", "/blobs/")
        status = await asyncio.to_thread(run, [*arguments, "--registry-config", str(login)])
        out = capsys.readouterr()
        assert (status, out.err) == (OK, "")
        client = RegistryClient(connections, a_login(registry.host), clock)
        digest = (await client.resolve(reference)).digest
        assert out.out == f"{digest}\n"
        manifest = await client.image_manifest(reference, digest, ImagePlatform())
        config = await client.small_blob(reference, config_descriptor(manifest.content))
        image = read_cache_image(manifest.content, config)
        assert (image.type, image.targets, image.entry_count) == (CacheType.TRITON, (H200,), 1)
        layer = b"".join([item async for item in client.blob(reference, image.layer)])
    names = names_in(layer)
    assert f"io.triton.cache/{KERNEL}/add_kernel.cubin" in names
    assert "io.triton.manifest/manifest.json" in names


@pytest.mark.parametrize("name", ["layout.tar", "layout"])
def test_a_layout_is_the_same_each_time(
    cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    layouts: list[dict[str, bytes]] = []
    for number in range(2):
        (tmp_path / str(number)).mkdir()
        for file in cache.rglob("*"):
            os.utime(file, (number, number))
            file.chmod(0o700 + number * 0o11)
        out = tmp_path / str(number) / name
        arguments = ["cache", "pack", str(cache), "--image", "r.example/a:1", "--output", str(out)]
        assert run(arguments) == OK
        layouts.append(files_of(out))
    assert layouts[0] == layouts[1]
    first, second = capsys.readouterr().out.split()
    assert first == second
    files = layouts[0]
    (described,) = json.loads(files["index.json"])["manifests"]
    assert described["digest"] == first
    assert described["annotations"]["io.containerd.image.name"] == "r.example/a:1"
    assert all(
        sha256(content) == path.removeprefix("blobs/").replace("/", ":")
        for path, content in files.items()
        if path.startswith("blobs/")
    )


def files_of(layout: Path) -> dict[str, bytes]:
    if layout.is_dir():
        return {
            file.relative_to(layout).as_posix(): file.read_bytes()
            for file in layout.rglob("*")
            if file.is_file()
        }
    with tarfile.open(layout) as tar:
        return {
            getmember.name: content.read()
            for getmember in tar.getmembers()
            if (content := tar.extractfile(getmember)) is not None
        }


def test_the_layer_has_modes_times_and_owners_of_its_own(cache: Path, tmp_path: Path) -> None:
    (cache / KERNEL / "add_kernel.cubin").chmod(0o4777)
    out = tmp_path / "layout.tar"
    assert run(["cache", "pack", str(cache), "--image", "a:1", "--output", str(out)]) == OK
    layer = max(files_of(out).values(), key=len)
    with tarfile.open(fileobj=io.BytesIO(layer), mode="r:gz") as tar:
        members = tar.getmembers()
    assert [member.name for member in members] == sorted(member.name for member in members)
    assert {(member.uid, member.gid, member.mtime) for member in members} == {(0, 0, 0)}
    assert {member.mode for member in members if member.isfile()} == {0o644}
    assert {member.mode for member in members if member.isdir()} == {0o755}


def test_the_target_can_be_said(tmp_path: Path) -> None:
    file = tmp_path / "torch_compile_cache" / "4bce7ae4f8" / "rank_0_0" / "backbone" / "artifact"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"x")
    out = tmp_path.parent / f"{tmp_path.name}.tar"
    arguments = ["cache", "pack", str(tmp_path), "--image", "a:1", "--output", str(out)]
    assert run(arguments) == FAILED
    assert run([*arguments, "--target", "cuda:90:32"]) == OK


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "required: DIR, --image"),
        (["DIR"], "required: --image"),
        (["DIR", "--image", "A B"], '"A B" names no image'),
        (["DIR", "--image", f"a@sha256:{'0' * 64}"], "--image has a digest"),
        (["DIR", "--image", "a", "--target", "x"], '"x" is no target'),
        (["DIR", "--image", "a", "--outptu", "x"], "did you mean --output?"),
        (["DIR", "--image", "a", "--architecture", "vax"], "invalid choice"),
    ],
)
def test_a_command_line_that_cannot_be_used_has_one_line(
    cache: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    given = [str(cache) if argument == "DIR" else argument for argument in arguments]
    assert run(["cache", "pack", *given]) == MISUSED
    out = capsys.readouterr()
    assert message in out.err
    assert (out.out, out.err.count("\n")) == ("", 1)


@pytest.mark.parametrize("arguments", [[], ["pakc"]])
def test_an_action_is_needed(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cache", *arguments]) == MISUSED
    assert "pack" in "".join(capsys.readouterr())


def test_a_directory_that_is_not_there_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "missing"
    assert run(["cache", "pack", str(missing), "--image", "a:1"]) == FAILED
    assert f"{missing}: No such file" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["link", "fifo"])
def test_what_is_no_file_is_not_packed(
    cache: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if kind == "link":
        (cache / KERNEL / "other").symlink_to("/etc/passwd")
    else:
        os.mkfifo(cache / KERNEL / "other")
    assert run(["cache", "pack", str(cache), "--image", "a:1"]) == FAILED
    assert f"{KERNEL}/other is " in capsys.readouterr().err


def test_a_layout_is_not_written_over_files(
    cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["cache", "pack", str(cache), "--image", "a:1", "--output", str(tmp_path)]
    assert run(arguments) == FAILED
    assert "is there and has files" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]


async def test_a_registry_that_refuses_is_named(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with RegistryDouble(auth="basic") as registry:
        reference = registry.reference()
        arguments = ["cache", "pack", str(cache), "--image", str(reference), "--plain-http"]
        assert await asyncio.to_thread(run, arguments) == FAILED
        assert "give a pull secret" in capsys.readouterr().err
        registry.auth = ""
        registry.will_fail(Status(403), "POST")
        assert await asyncio.to_thread(run, arguments) == FAILED
    assert f"{registry.host}/team/cache" in capsys.readouterr().err


def test_a_login_that_cannot_be_read_is_named(
    cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    login = tmp_path / "login.json"
    login.write_text("{")
    arguments = ["cache", "pack", str(cache), "--image", "a:1", "--registry-config", str(login)]
    assert run(arguments) == MISUSED
    assert f"secret {login}: it is no dockerconfigjson" in capsys.readouterr().err


async def test_the_examples_name_an_image_that_is_there_and_the_key_that_signed_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with RegistryDouble() as registry:
        place = f"{registry.host}/team"
        assert await asyncio.to_thread(run, ["cache", "example", place, "--plain-http"]) == OK
        objects = list(yaml.safe_load_all(capsys.readouterr().out))
        caches = [item["spec"] for item in objects if item["kind"].endswith("GKMCache")]
        assert {spec["image"] for spec in caches} == {f"{place}/example-cache:1.0"}
        ((pem,),) = {tuple(spec["verification"]["keys"]) for spec in caches}
        (tmp_path / "key.pem").write_text(pem)
        verify = ["cache", "verify", caches[0]["image"], "--plain-http"]
        done = await asyncio.to_thread(run, [*verify, "--key", str(tmp_path / "key.pem")])
    assert (done, capsys.readouterr().err) == (OK, "")
