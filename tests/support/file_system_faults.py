"""A fault at the n-th change of a file system, injected below all code: by Python's audit events, in a process of its own.

    python -m tests.support.file_system_faults ROOT kill|ENOSPC|EROFS|EIO

The process adds a content to the store at ROOT, binds a name to it, and removes an older one, in a fork for each n:
each fork starts from the same old state, and is killed, or gets the error, at its n-th change below ROOT. After each
the store is opened again, and what is there is printed, and what is there when all of it is done again: one line of
JSON for each n, until a fork has come to its end.
"""

import asyncio
import errno
import json
import os
import shutil
import signal
import sys
import traceback
from pathlib import Path

from agent.kernelcache.content.content_store import ContentStore, open_store
from agent.kernelcache.content.errors import StoreError
from agent.kernelcache.content.layer_limits import ExtractionLimits
from api.cache_name import CacheName
from api.image_reference import Digest
from kernelcache.image_format import CacheType
from tests.support.cache_layers import LayerSource, SetClock, a_triton_layer

OLD, NEW = (Digest("sha256:" + item * 64) for item in "ab")
NAME = CacheName(namespace="team", name="cache")
_EVENTS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.chmod", "os.utime"}
_OPEN_FLAGS = 2


class FaultAt:
    """Counts the changes, and acts at one of them."""

    def __init__(self) -> None:
        self.left = -1
        self.fault = ""
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[object, ...]) -> None:
        if self.left < 0 or event not in _EVENTS:
            return
        if event == "open":
            flags = arguments[_OPEN_FLAGS]
            if not isinstance(flags, int) or not flags & (os.O_CREAT | os.O_WRONLY | os.O_RDWR):
                return
        self.left -= 1
        if self.left >= 0:
            return
        if self.fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        number = getattr(errno, self.fault)
        raise OSError(number, os.strerror(number))


async def change(store: ContentStore) -> None:
    """Do what an agent does when the image of a cache has changed."""
    layer = LayerSource(a_triton_layer(kernels=2))
    await store.add(NEW, CacheType.TRITON, layer, limits=ExtractionLimits())
    await store.set_names({NAME: NEW})
    await store.remove(OLD)


async def prepare(root: Path) -> None:
    store = open_store(root, SetClock())
    layer = LayerSource(a_triton_layer(kernels=1, data=b"old"))
    await store.add(OLD, CacheType.TRITON, layer, limits=ExtractionLimits())
    await store.set_names({NAME: OLD})
    store.close()


def found_in(root: Path) -> dict[str, object]:
    """Open the store as the next process does, and return what it has."""
    store = open_store(root, SetClock())
    files = {
        digest: sorted(
            f"{path.relative_to(store.files_of(digest))}={path.read_text()}"
            for path in store.files_of(digest).rglob("*")
            if path.is_file()
        )
        for digest in store.contents
    }
    left = sorted(
        path.relative_to(root).as_posix()
        for path in root.iterdir()
        if path.name not in {"content", "tmp", "lock", "names.json"}
    )
    temporary = sorted(path.name for path in (root / "tmp").iterdir())
    names = {str(name): digest for name, digest in store.names.items()}
    store.close()
    damaged = sorted(store.damaged)
    return {"files": files, "names": names, "damaged": damaged, "left": [*left, *temporary]}


def main(root: Path, fault: str) -> None:
    faults = FaultAt()
    for number in range(1000):
        shutil.rmtree(root, ignore_errors=True)
        asyncio.run(prepare(root))
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            os._exit(_changed(root, faults, fault, number))
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        found = found_in(root)
        store = open_store(root, SetClock())
        asyncio.run(change(store))
        store.close()
        sys.stdout.write(json.dumps({"code": code, **found, "again": found_in(root)}) + "\n")
        if code == 0:
            return


def _changed(root: Path, faults: FaultAt, fault: str, number: int) -> int:
    """Return 0 where all is done, 1 where the store has refused, 2 for another error, 3 for one that changed nothing."""
    try:
        store = open_store(root, SetClock())
        faults.fault, faults.left = fault, number
        asyncio.run(change(store))
    except StoreError as error:
        sys.stderr.write(f"{error.fault.name}: {error}\n")
        return 1
    except BaseException:  # noqa: BLE001  # a process that ends here says by its code that it had no StoreError
        traceback.print_exc()
        return 2
    finally:
        sys.stderr.flush()
    return 0 if faults.left >= 0 else 3


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
