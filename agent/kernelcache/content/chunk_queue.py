"""A stream of the event loop that is read by blocking code in a thread, through a bounded queue.

The loop fetches ahead while the thread decompresses and writes; where the thread is slower, the loop stops fetching
(`MAX_BYTES`). The thread alone owns what it makes: an error of the stream, or the caller's cancellation, is raised in
the thread at its next chunk, so that its own clean-up runs, and runs once.
"""

import asyncio
import contextlib
import queue
from typing import TYPE_CHECKING, Final, TypeVar, final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

MAX_CHUNK_BYTES: Final = 256 * 1024
MAX_CHUNKS: Final = 16
MAX_BYTES: Final = MAX_CHUNKS * MAX_CHUNK_BYTES

Result = TypeVar("Result")


class StreamFailedError(Exception):
    """Raised in the thread: the stream failed, or its caller is gone; never seen by the caller."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.cause = cause


@final
class _ChunkQueue:
    """Written in the loop, read in one thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._free = asyncio.Semaphore(MAX_CHUNKS)
        self._chunks: queue.SimpleQueue[memoryview | StreamFailedError | None] = queue.SimpleQueue()

    async def feed(self, stream: "AsyncIterator[bytes]") -> None:
        """Write the stream's chunks and its end, or how it failed."""
        try:
            async for chunk in stream:
                for at in range(0, len(chunk), MAX_CHUNK_BYTES):
                    await self._free.acquire()
                    self._chunks.put(memoryview(chunk)[at : at + MAX_CHUNK_BYTES])
        except Exception as error:  # noqa: BLE001  # the thread raises it, and `read_in_thread` again
            self.fail(error)
        else:
            self._chunks.put(None)

    def fail(self, error: BaseException) -> None:
        self._chunks.put(StreamFailedError(error))

    def chunks(self) -> "Iterator[memoryview]":
        """Yield the chunks in the thread."""
        while (chunk := self._chunks.get()) is not None:
            if isinstance(chunk, StreamFailedError):
                raise chunk
            with contextlib.suppress(RuntimeError):  # The loop is closed.
                self._loop.call_soon_threadsafe(self._free.release)
            yield chunk


async def read_in_thread(
    stream: "AsyncIterator[bytes]", read: "Callable[[Iterator[memoryview]], Result]"
) -> Result:
    """Return the result of `read`, which runs in a thread and reads the stream's chunks.

    It may end before the stream does. A caller that is cancelled does not wait for it: it ends at its next chunk, with
    StreamFailedError.

    Raises:
        Exception: that of `read`, or of the stream.
    """
    chunks = _ChunkQueue()
    done = asyncio.get_running_loop().run_in_executor(None, read, chunks.chunks())
    done.add_done_callback(_retrieve)
    try:
        async with asyncio.TaskGroup() as group:
            feeding = group.create_task(chunks.feed(stream), name="kernelcache.feed")
            await asyncio.wait([done])
            feeding.cancel()
    except BaseException as error:  # a cancellation, too, has to end the thread
        chunks.fail(error)
        raise
    try:
        return done.result()
    except StreamFailedError as error:
        raise error.cause from None


def _retrieve(done: "asyncio.Future[Result]") -> None:
    """Take note of the outcome, which after a cancellation has no other reader."""
    if not done.cancelled():
        done.exception()
