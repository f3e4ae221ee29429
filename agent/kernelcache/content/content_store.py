"""The node's content store: extracted caches by digest, and the caches' names that are bound to them.

A content appears by one rename of a whole directory whose files are on the disk, and goes by one rename: there is
none that is half written, whenever the process or the node ends. Two caches of one digest share one content. One
process at a time has the store open.

What to extract and to remove is decided elsewhere (`kernelcache`), and which volumes use a content is known elsewhere
(`agent.kernelcache.content.references`): it is asked there before one is removed.
"""

import asyncio
import contextlib
import errno
import fcntl
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Final, final
from weakref import WeakValueDictionary

import structlog

from agent.kernelcache.content import store_layout
from agent.kernelcache.content.chunk_queue import read_in_thread
from agent.kernelcache.content.errors import StoreError, StoreFault, store_errors
from agent.kernelcache.content.extraction import extract_layer
from agent.kernelcache.content.layer_limits import FreeSpaceFloor

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from agent.kernelcache.content.layer_limits import ExtractionLimits
    from api.cache_name import CacheName
    from api.clock import Clock
    from api.image_reference import Digest
    from kernelcache.image_format import CacheType

_THERE: Final = frozenset({errno.EEXIST, errno.ENOTEMPTY})

_log = structlog.get_logger()


@final
class ContentStore:
    """The store, open in this process; `open_store` opens it."""

    def __init__(
        self, root: "Path", clock: "Clock", *, lock: int, found: store_layout.FoundContents
    ) -> None:
        """`lock` is the open lock file, and `found` what the start has found."""
        self.root: Final = root
        self._clock = clock
        self._lock = lock
        self._identity = _identity_of(root)
        self._contents = dict(found.contents)
        self._damaged = set(found.damaged)
        self._names = dict(found.names)
        self._naming = asyncio.Lock()
        self._turns: WeakValueDictionary[Digest, asyncio.Lock] = WeakValueDictionary()

    @property
    def contents(self) -> "Mapping[Digest, store_layout.StoredContent]":
        """Return all contents by digest."""
        return self._contents.copy()

    @property
    def damaged(self) -> "frozenset[Digest]":
        """Return the contents that are not served: without a readable record, or removed by hand.

        They are extracted again once they have been removed.
        """
        return frozenset(self._damaged)

    @property
    def names(self) -> "Mapping[CacheName, Digest]":
        """Return the names of caches that are bound to a content."""
        return self._names.copy()

    def free_bytes(self, floor: FreeSpaceFloor) -> int:
        """Return the bytes that its file system has for further content. Blocking."""
        return floor.free_bytes(self._lock)

    def files_of(self, digest: "Digest") -> "Path":
        """Return the directory that pods mount.

        Raises:
            StoreError: the content is not in the store (ABSENT), its files are no longer there (DAMAGED), or the store
                is gone (LOST).
        """
        if digest not in self._contents:
            raise StoreError(
                StoreFault.ABSENT, f"{digest} is not in the store of kernel caches {self.root}"
            )
        self._refuse_if_lost()
        files = store_layout.content_directory(self.root, digest) / store_layout.FILES
        if not files.is_dir():
            del self._contents[digest]
            self._damaged.add(digest)
            raise self._is_damaged(digest)
        return files

    async def add(
        self,
        digest: "Digest",
        cache_type: "CacheType",
        layer: "Callable[[], AbstractAsyncContextManager[AsyncIterator[bytes]]]",
        *,
        limits: "ExtractionLimits",
    ) -> store_layout.StoredContent:
        """Extract a layer as the content of that digest, once; `layer` is not opened where it is there.

        The stream has to check the layer's digest and length, and to fail at its end where they are wrong: the content
        appears after its end. A cancelled call leaves nothing behind, or the whole content.

        Raises:
            LayerRefusedError: the layer breaks a rule.
            StoreError: the store cannot be written.
            Exception: what the stream raised.
        """
        async with self._turn_of(digest):
            if digest in self._contents:
                return self._contents[digest]
            if digest in self._damaged:
                raise self._is_damaged(digest)
            self._refuse_if_lost()

            def write(chunks: "Iterator[memoryview]") -> store_layout.StoredContent:
                return self._write(digest, cache_type, chunks, limits=limits)

            async with layer() as chunks:
                return await read_in_thread(chunks, write)

    async def remove(self, digest: "Digest") -> None:
        """Remove a content that no name is bound to and no volume uses; a missing one is no error.

        It is no longer in the store at once, and its bytes are freed when this returns.

        Raises:
            StoreError: a name is bound to it (BUSY), or the disk refuses; then its bytes may be left until the next
                start.
        """
        async with self._naming, self._turn_of(digest):
            bound = [str(name) for name, item in self._names.items() if item == digest]
            if bound:
                raise StoreError(
                    StoreFault.BUSY, f"{digest} is not removed: {min(bound)} is bound to it"
                )
            if digest not in self._contents and digest not in self._damaged:
                return
            self._refuse_if_lost()
            with store_errors(self.root):
                temporary = store_layout.make_temporary(self.root)
                # Its path ends as before: a mount that is not known stays a reference to the digest.
                gone = store_layout.content_directory(temporary, digest)
                gone.parent.mkdir()
                # A content that was removed by hand is not there any more.
                with contextlib.suppress(FileNotFoundError):
                    store_layout.content_directory(self.root, digest).rename(gone)
            self._contents.pop(digest, None)
            self._damaged.discard(digest)
        await asyncio.to_thread(self._remove_tree, temporary)

    async def set_names(self, names: "Mapping[CacheName, Digest]") -> None:
        """Bind these names and no other; the file is written only where they differ.

        Raises:
            StoreError: a digest is not in the store (ABSENT), or the file cannot be written: the old names stay.
        """
        async with self._naming:
            for name, digest in names.items():
                if digest not in self._contents:
                    raise StoreError(
                        StoreFault.ABSENT,
                        f"{name} is not bound to {digest}: it is not in the store",
                    )
            self._refuse_if_lost()
            desired = dict(names)
            with store_errors(self.root):
                await asyncio.to_thread(store_layout.write_names, self.root, desired)
            self._names = desired

    def mark_used(self, digest: "Digest") -> None:
        """Note that a volume uses the content now, or did until now.

        Raises:
            StoreError: as of `files_of`, or the note cannot be written.
        """
        record = self.files_of(digest).parent / store_layout.RECORD
        now = self._clock.utc_now()
        with store_errors(self.root):
            store_layout.write_use(record, now)
        self._contents[digest] = replace(self._contents[digest], used_at=now)

    def close(self) -> None:
        """Let another process open the store."""
        os.close(self._lock)

    def _turn_of(self, digest: "Digest") -> asyncio.Lock:
        """Return the lock of a digest: of two that want it, the second finds it there."""
        return self._turns.setdefault(digest, asyncio.Lock())

    def _refuse_if_lost(self) -> None:
        with store_errors(self.root):
            identity = _identity_of(self.root)
        if identity != self._identity:
            raise StoreError(
                StoreFault.LOST,
                f"the store of kernel caches {self.root} is not the directory that was opened: it"
                " was replaced or mounted over; restart the agent",
            )

    def _is_damaged(self, digest: "Digest") -> StoreError:
        return StoreError(
            StoreFault.DAMAGED,
            f"{store_layout.content_directory(self.root, digest)} is damaged: it is removed once no pod uses it,"
            " and extracted again",
        )

    def _write(
        self,
        digest: "Digest",
        cache_type: "CacheType",
        chunks: "Iterator[memoryview]",
        *,
        limits: "ExtractionLimits",
    ) -> store_layout.StoredContent:
        """Extract, write all of it to the disk, and let it appear; runs in a thread, which may outlive its caller."""
        with store_errors(self.root):
            temporary = store_layout.make_temporary(self.root)
            try:
                files = temporary / store_layout.FILES
                files.mkdir(mode=store_layout.DIRECTORY_MODE)
                layer = extract_layer(chunks, files, cache_type=cache_type, limits=limits)
                now = self._clock.utc_now()
                content = store_layout.StoredContent(
                    digest=digest,
                    cache_type=cache_type.value,
                    size_bytes=layer.size_bytes,
                    disk_bytes=layer.disk_bytes,
                    files=layer.files,
                    has_shared_objects=layer.has_shared_objects,
                    extracted_at=now,
                    used_at=now,
                )
                store_layout.write_record(temporary, content)
                temporary.chmod(store_layout.DIRECTORY_MODE)
                store_layout.sync_file_system(temporary)
                self._publish(temporary, content)
            except BaseException:
                _remove_if_possible(temporary)
                raise
            store_layout.sync_directory(self.root / store_layout.CONTENT)
            return content

    def _publish(self, temporary: "Path", content: store_layout.StoredContent) -> None:
        try:
            temporary.rename(store_layout.content_directory(self.root, content.digest))
        except OSError as error:
            # A thread whose caller was cancelled has published the same content meanwhile.
            if error.errno not in _THERE:
                raise
            store_layout.remove_tree(temporary)
        self._contents[content.digest] = content

    def _remove_tree(self, directory: "Path") -> None:
        with store_errors(self.root):
            store_layout.remove_tree(directory)


def open_store(root: "Path", clock: "Clock") -> ContentStore:
    """Open the store, which is made where there is none; what an ended process left is removed.

    Blocking: it reads one small file for each content.

    Raises:
        StoreError: another process has it open (IN_USE), or the directory cannot be used.
    """
    with store_errors(root):
        store_layout.make_directories(root)
        lock = os.open(
            root / store_layout.LOCK, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        try:
            _take(lock, root)
            return ContentStore(root, clock, lock=lock, found=store_layout.read_store(root))
        except BaseException:
            os.close(lock)
            raise


def _take(lock: int, root: "Path") -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise StoreError(
            StoreFault.IN_USE,
            f"the store of kernel caches {root} is in use by another process: an agent that is being"
            " replaced ends first",
        ) from error


def _remove_if_possible(directory: "Path") -> None:
    """Remove what a failed extraction has written; what is left goes at the next start."""
    try:
        store_layout.remove_tree(directory)
    except OSError as error:
        _log.warning("temporary directory not removed", path=str(directory), error=str(error))


def _identity_of(directory: "Path") -> tuple[int, int]:
    status = directory.stat()
    return status.st_dev, status.st_ino
