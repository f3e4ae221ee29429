"""A `libnvidia-ml.so.1` and a `libcuda.so.1` without a device, and what stands in its devices.

The library (nvml.c, mig.c, cuda.c, state.c) speaks both ABIs: its two files are copies. It is compiled once with the machine's C compiler and needs only libc to be
loaded, so that it can be mounted into a pod. It reads a file `nvml.state` beside it (or what the environment
variable FAKE_NVML_STATE names) again at every call, and writes what NVML's callers change, so that any number
of processes see one node. A test needs a library file of its own, since a process loads one path once.

Keys of the file, a line each (`<n>` is the number of a device, whose order is NVML's):

    generation, driver, cuda, init          the driver; `init` is what nvmlInit returns
    hang.<function> forever|<seconds>       `hang.*` is every function, of CUDA too
    fail.<function> <code> <skip> <times>   times -1: always; code -1: the process is killed there
    gpu.<n>.address|uuid|minor|name|memory|capability|power|max_power|temperature|shutdown_temperature
            |ecc|remap_failed|lost|events|processes|graphics_processes|mps_processes
    gpu.<n>.utilisation|memory_utilisation|used|milliwatts|sm_clock|memory_clock|throttle, gpu.<n>.field.<id>,
    gpu.<n>.memory.<i>|used.<i>             metrics; field: of nvmlDeviceGetFieldValues; i: a GPU instance
    gpu.<n>.other_uuid                      shown in place of the UUID with every second call
    gpu.<n>.nvlink.<link> <address>|switch|inactive
    gpu.<n>.topology.<m> <level of nvmlGpuTopologyLevel_t>
    gpu.<n>.mig.current|pending|needs_reset, gpu.<n>.profile.<p>, gpu.<n>.gi.<i>, gpu.<n>.ci.<i>.<j>,
    gpu.<n>.busy.<i>                       see mig.c; what is not there is not supported
    gpu.<n>.compute_mode 0|2|3, gpu.<n>.held  CUDA's compute mode; a process has an exclusive device
    gpu.<n>.cuda_free_bytes|cuda_flips|cuda_uuid  memory that CUDA may take; it copies wrongly; it shows another UUID
    event.<serial> <n> <type> <data>        delivered once to each event set that was made before
    gpu.<n>.stays_sick                      a reset does not help
    listening, listened                     event sets that are waited on now, and ever were
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, final

SOURCES: Final = tuple(
    Path(__file__).parent / name for name in ("nvml.c", "mig.c", "cuda.c", "state.c", "fake.h")
)
BUILD: Final = Path(__file__).parents[3] / "build" / "fake-nvml"
LIBRARY_NAME: Final = "libnvidia-ml.so.1"
CUDA_LIBRARY_NAME: Final = "libcuda.so.1"
STATE_NAME: Final = "nvml.state"

RECOVERY_ACTION_FIELD: Final = 230
XID: Final = 8
DOUBLE_BIT_ECC: Final = 2
FOREVER: Final = "forever"
KILLED: Final = -1


class NoCompilerError(Exception):
    """The library cannot be made here."""


def compiled(*defines: str) -> Path:
    """Return the library, made where it is not there yet; `OLD_DRIVER` is one that lacks much.

    Raises:
        NoCompiler: this machine has no C compiler, or it cannot do it.
    """
    digest = hashlib.sha256(repr(defines).encode())
    for source in SOURCES:
        digest.update(source.read_bytes())
    library = BUILD / digest.hexdigest()[:16] / LIBRARY_NAME
    if library.exists():
        return library
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        raise NoCompilerError("no C compiler (cc, gcc or clang): apt-get install gcc libc6-dev")
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        made = Path(folder) / LIBRARY_NAME
        done = subprocess.run(
            [
                compiler,
                "-shared",
                "-fPIC",
                "-O1",
                "-fvisibility=hidden",
                "-pthread",
                "-Wall",
                "-Wextra",
            ]
            + ["-Wl,-soname," + LIBRARY_NAME]
            + [f"-D{define}" for define in defines]
            + [
                "-o",
                str(made),
                *(str(source) for source in SOURCES if source.suffix == ".c"),
                "-ldl",
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise NoCompilerError(f"{compiler} does not make the library: {done.stderr.strip()}")
        made.replace(library)
    return library


@final
@dataclass(frozen=True, kw_only=True)
class MigProfile:
    """A form of GPU instance, as a device's driver numbers it."""

    number: int
    """NVML_GPU_INSTANCE_PROFILE_*."""
    id: int
    name: str
    slices: int
    capacity: int
    memory_slices: int
    memory_mib: int
    starts: tuple[int, ...]
    """The memory slices (of eight) at which one may begin."""

    def line(self) -> str:
        starts = ",".join(map(str, self.starts))
        return (
            f"{self.id} {self.slices} {self.capacity} {self.memory_slices} {self.memory_mib}"
            f" {starts} {self.name}"
        )


def _profile(
    number: int, id_: int, name: str, shape: tuple[int, int, int], starts: str
) -> MigProfile:
    slices, capacity, memory_slices = shape
    return MigProfile(
        number=number,
        id=id_,
        name=name,
        slices=slices,
        capacity=capacity,
        memory_slices=memory_slices,
        memory_mib=memory_slices * 9984 + (9984 if memory_slices == 8 else 0) - memory_slices * 64,
        starts=tuple(map(int, starts)),
    )


H100_PROFILES: Final = (
    _profile(0, 19, "1g.10gb", (1, 7, 1), "0123456"),
    _profile(7, 20, "1g.10gb+me", (1, 1, 1), "0123456"),
    _profile(9, 15, "1g.20gb", (1, 4, 2), "0246"),
    _profile(1, 14, "2g.20gb", (2, 3, 2), "024"),
    _profile(2, 9, "3g.40gb", (3, 2, 4), "04"),
    _profile(3, 5, "4g.40gb", (4, 1, 4), "0"),
    _profile(4, 0, "7g.80gb", (7, 1, 8), "0"),
)
"""Of an H100 with 80 GB."""


@final
@dataclass(frozen=True, kw_only=True)
class NvmlDevice:
    """A device, in NVML's own spelling; None is what its driver does not support."""

    uuid: str
    address: str
    minor: int
    name: str = "NVIDIA H100 80GB HBM3"
    memory_mib: int = 81559
    capability: str = "9.0"
    power_watts: int | None = 650
    max_power_watts: int | None = 700
    temperature: int | None = 41
    shutdown_temperature: int | None = 95
    ecc: int | None = 0
    remap_failed: bool | None = False
    recovery_action: int | None = None
    """nvmlDeviceGpuRecoveryAction_t."""
    events: int = XID | DOUBLE_BIT_ECC
    nvlinks: tuple[str, ...] = ()
    """Link by link the address of the peer, or `switch`, or `inactive`."""
    topology: Mapping[int, int] = field(default_factory=dict)
    """Number of another device -> level of nvmlGpuTopologyLevel_t."""
    is_mig_capable: bool = True
    is_mig_enabled: bool = False
    mig_needs_reset: bool = False
    """A change of the mode waits for a reset, as on an A100."""
    profiles: tuple[MigProfile, ...] = H100_PROFILES

    def lines(self, number: int) -> dict[str, str]:
        plain = {
            "uuid": self.uuid,
            "address": self.address,
            "minor": self.minor,
            "name": self.name,
            "memory": self.memory_mib,
            "capability": self.capability,
            "power": self.power_watts,
            "max_power": self.max_power_watts,
            "temperature": self.temperature,
            "shutdown_temperature": self.shutdown_temperature,
            "ecc": self.ecc,
            "remap_failed": None if self.remap_failed is None else int(self.remap_failed),
            "events": self.events,
            f"field.{RECOVERY_ACTION_FIELD}": self.recovery_action,
        }
        lines = {
            f"gpu.{number}.{key}": str(value) for key, value in plain.items() if value is not None
        }
        lines |= {f"gpu.{number}.nvlink.{link}": peer for link, peer in enumerate(self.nvlinks)}
        lines |= {
            f"gpu.{number}.topology.{other}": str(level) for other, level in self.topology.items()
        }
        if self.is_mig_capable:
            lines |= {
                f"gpu.{number}.mig.current": str(int(self.is_mig_enabled)),
                f"gpu.{number}.mig.pending": str(int(self.is_mig_enabled)),
                f"gpu.{number}.mig.needs_reset": str(int(self.mig_needs_reset)),
            }
            lines |= {
                f"gpu.{number}.profile.{profile.number}": profile.line()
                for profile in self.profiles
            }
        return lines


def a_device(number: int = 0, **changes: object) -> NvmlDevice:
    """Return device `number` of a node: `GPU-000…<number>` at 0000:1<number>:00.0, minor `number`."""
    defaults = {
        "uuid": f"GPU-00000000-0000-0000-0000-{number:012d}",
        "address": f"00000000:{0x10 + number:02X}:00.0",
        "minor": number,
    }
    return NvmlDevice(**(defaults | changes))  # type: ignore[arg-type]  # the names are NvmlDevice's


@final
class FakeNvml:
    """The node's driver, as a test orders it; every method is one change of the file, seen at the next call."""

    def __init__(
        self, directory: Path, *devices: NvmlDevice, defines: tuple[str, ...] = ()
    ) -> None:
        """Put a library of its own and its state into the directory, which may be mounted elsewhere."""
        directory.mkdir(parents=True, exist_ok=True)
        self.library = directory / LIBRARY_NAME
        self.cuda_library = directory / CUDA_LIBRARY_NAME
        self.state = directory / STATE_NAME
        for library in (self.library, self.cuda_library):
            # Beside its place first: a process that has loaded the file must not see it change.
            fresh = directory / f"{library.name}.new"
            shutil.copy2(compiled(*defines), fresh)
            fresh.replace(library)
        self._write(
            {"generation": "1", "driver": "570.86.15", "cuda": "12080", "init": "0"}
            | {
                key: value
                for number, device in enumerate(devices)
                for key, value in device.lines(number).items()
            }
        )

    @contextmanager
    def edit(self) -> Iterator[dict[str, str]]:
        """Change keys and values at once, against other processes too."""
        with Path(f"{self.state}.lock").open("w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            lines = self.read()
            yield lines
            self._write(lines)

    def read(self) -> dict[str, str]:
        """Return what the file says now."""
        text = self.state.read_text(encoding="utf-8")
        return dict(line.partition(" ")[::2] for line in text.splitlines())

    def _write(self, lines: Mapping[str, str]) -> None:
        fresh = self.state.with_name(f"{STATE_NAME}.{os.getpid()}.new")
        fresh.write_text(
            "".join(f"{key} {value}\n" for key, value in lines.items()), encoding="utf-8"
        )
        fresh.replace(self.state)

    # Of GPUs.

    def set(self, uuid: str, **values: object) -> None:
        """Set fields of a device by their keys; None makes one not supported."""
        with self.edit() as lines:
            number = _number(lines, uuid)
            for name, value in values.items():
                key = f"gpu.{number}.{name}"
                if value is None:
                    lines.pop(key, None)
                else:
                    lines[key] = str(value)

    def plug(self, device: NvmlDevice) -> None:
        """Add a device, which NVML finds when it is initialised again."""
        with self.edit() as lines:
            taken = {int(key.split(".")[1]) for key in lines if key.startswith("gpu.")}
            lines.update(device.lines(max(taken, default=-1) + 1))

    def unplug(self, uuid: str) -> None:
        """Take a device away altogether."""
        with self.edit() as lines:
            prefix = f"gpu.{_number(lines, uuid)}."
            for key in [key for key in lines if key.startswith(prefix)]:
                del lines[key]

    def lose(self, uuid: str) -> None:
        """Let a device fall off its bus: whatever is asked of it, it is lost."""
        self.set(uuid, lost=1)

    def find(self, uuid: str) -> None:
        """Undo `lose`."""
        self.set(uuid, lost=None)

    def run_process(self, uuid: str, pid: int, *, gpu_instance: int | None = None) -> None:
        """Let one process use a device, or an instance of it."""
        field_ = "processes" if gpu_instance is None else f"busy.{gpu_instance}"
        with self.edit() as lines:
            key = f"gpu.{_number(lines, uuid)}.{field_}"
            lines[key] = ",".join(filter(None, (lines.get(key, ""), str(pid))))

    def end_processes(self, uuid: str) -> None:
        """End every process on a device and its instances."""
        with self.edit() as lines:
            prefix = f"gpu.{_number(lines, uuid)}."
            for key in list(lines):
                if key.startswith((f"{prefix}busy.", f"{prefix}processes")):
                    del lines[key]

    def reset(self, *uuids: str) -> None:
        """Reset devices: a pending MIG mode comes into effect, and their instances and errors are gone."""
        with self.edit() as lines:
            for uuid in uuids:
                self._reset(lines, f"gpu.{_number(lines, uuid)}.")

    @staticmethod
    def _reset(lines: dict[str, str], prefix: str) -> None:
        if f"{prefix}stays_sick" not in lines:
            _drop_instances(lines, prefix)
            if f"{prefix}mig.pending" in lines:
                lines[f"{prefix}mig.current"] = lines[f"{prefix}mig.pending"]
            if f"{prefix}ecc" in lines:
                lines[f"{prefix}ecc"] = "0"
            lines.pop(f"{prefix}lost", None)
            if f"{prefix}field.{RECOVERY_ACTION_FIELD}" in lines:
                lines[f"{prefix}field.{RECOVERY_ACTION_FIELD}"] = "0"

    def ask_for(self, uuid: str, action: int | None) -> None:
        """Let a device need a recovery action (nvmlDeviceGpuRecoveryAction_t); None: its driver has no such field."""
        self.set(uuid, **{f"field.{RECOVERY_ACTION_FIELD}": action})

    # Events.

    def emit_xid(self, uuid: str, code: int) -> None:
        """Tell an Xid of a GPU."""
        self.emit(uuid, XID, code)

    def emit(self, uuid: str, kind: int, data: int = 0) -> None:
        """Tell an event; `kind` is an nvmlEventType."""
        with self.edit() as lines:
            last = max((int(key[6:]) for key in lines if key.startswith("event.")), default=0)
            lines[f"event.{last + 1}"] = f"{_number(lines, uuid)} {kind} {data}"

    def listening(self) -> int:
        """Return how many event sets are waited on now; those of killed processes stay in."""
        return int(self.read().get("listening", "0"))

    def listened(self) -> int:
        """Return how many event sets were ever waited on."""
        return int(self.read().get("listened", "0"))

    # What goes wrong.

    def hang(self, function: str = "*", seconds: float | None = None) -> None:
        """Let calls of a function wait for that long; without a time, until `unhang`."""
        with self.edit() as lines:
            lines[f"hang.{function}"] = FOREVER if seconds is None else str(seconds)

    def unhang(self) -> None:
        """Let every call go on."""
        with self.edit() as lines:
            for key in [key for key in lines if key.startswith("hang.")]:
                del lines[key]

    def fail(self, function: str, code: int, *, skip: int = 0, times: int = 1) -> None:
        """Let calls of a function fail, after `skip` that do not; -1 times is always."""
        with self.edit() as lines:
            lines[f"fail.{function}"] = f"{code} {skip} {times}"

    def kill_at(self, function: str, *, skip: int = 0) -> None:
        """Kill the process (SIGKILL) that calls a function, once."""
        self.fail(function, KILLED, skip=skip)

    def heal(self) -> None:
        """Undo `fail`."""
        with self.edit() as lines:
            for key in [key for key in lines if key.startswith("fail.")]:
                del lines[key]

    # The driver.

    def unload_driver(self, code: int = 9) -> None:
        """Take the kernel's driver away: nvmlInit returns the code (9: the driver is not loaded)."""
        with self.edit() as lines:
            lines["init"] = str(code)

    def restart_driver(self, version: str | None = None) -> None:
        """Load the driver (again): handles of before mean nothing, and MIG instances are gone."""
        with self.edit() as lines:
            lines["generation"] = str(int(lines["generation"]) + 1)
            lines.pop("listening", None)
            lines["init"] = "0"
            lines["driver"] = version or lines["driver"]
            for prefix in {
                ".".join(key.split(".")[:2]) + "." for key in lines if key.startswith("gpu.")
            }:
                _drop_instances(lines, prefix)
                if f"{prefix}field.{RECOVERY_ACTION_FIELD}" in lines:
                    lines[f"{prefix}field.{RECOVERY_ACTION_FIELD}"] = "0"

    def partition_by_hand(self, uuid: str, profile: str) -> None:
        """Replace all instances of a device by one of this profile, as `nvidia-smi mig` does for another program."""
        with self.edit() as lines:
            prefix = f"gpu.{_number(lines, uuid)}."
            _drop_instances(lines, prefix)
            number = next(
                key.rpartition(".")[2]
                for key, value in lines.items()
                if key.startswith(f"{prefix}profile.") and value.split()[-1] == profile
            )
            lines[f"{prefix}gi.7"] = f"{number} 0"
            lines[f"{prefix}ci.7.0"] = "1 MIG-of-another-program"

    def instances(self, uuid: str) -> list[str]:
        """Return the names of the profiles of a device's GPU instances, in the order of their ids."""
        lines = self.read()
        prefix = f"gpu.{_number(lines, uuid)}."
        made = {
            int(key.rpartition(".")[2]): value.split()[0]
            for key, value in lines.items()
            if key.startswith(f"{prefix}gi.")
        }
        return [lines[f"{prefix}profile.{made[item]}"].split()[-1] for item in sorted(made)]


def install_smi(nvml: FakeNvml, root: Path) -> None:
    """Put an `nvidia-smi` that resets devices of that driver below a root."""
    program = root / "usr" / "bin" / "nvidia-smi"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(
        f"#!{sys.executable}\n"
        f"import pathlib, sys\nsys.path.insert(0, {str(Path(__file__).parents[3])!r})\n"
        "from tests.support.nvml import library\n"
        f"sys.exit(library.reset_by_program(pathlib.Path({str(nvml.state)!r}), sys.argv[-1].split(',')))\n",
        encoding="utf-8",
    )
    program.chmod(0o755)


def reset_by_program(state: Path, uuids: list[str]) -> int:
    """Do what `nvidia-smi --gpu-reset` does; return its exit status."""
    nvml = FakeNvml.__new__(FakeNvml)
    nvml.state = state
    lines = nvml.read()
    while "hang.nvidia-smi" in lines:
        time.sleep(0.1)
        lines = nvml.read()
    for uuid in uuids:
        prefix = f"gpu.{_number(lines, uuid)}."
        if any(key.startswith((f"{prefix}busy.", f"{prefix}processes")) for key in lines):
            print(f"GPU {uuid} is currently in use by another client")
            return 1
    nvml.reset(*uuids)
    return 0


def _number(lines: Mapping[str, str], uuid: str) -> int:
    for key, value in lines.items():
        if value == uuid and key.endswith(".uuid"):
            return int(key.split(".")[1])
    raise KeyError(f"no device {uuid}")


def _drop_instances(lines: dict[str, str], prefix: str) -> None:
    for key in list(lines):
        if key.startswith((f"{prefix}gi.", f"{prefix}ci.", f"{prefix}busy.")):
            del lines[key]
