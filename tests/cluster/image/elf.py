"""What an ELF file says of itself: the machine that it is for, and the libraries that it needs.

refspecs.linuxfoundation.org/elf/elf.pdf; 64 bits, little-endian, as both architectures are.
"""

import struct
from dataclasses import dataclass

MACHINES = {62: "amd64", 183: "arm64"}
_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NULL, _DT_NEEDED, _DT_STRTAB = 0, 1, 5


@dataclass(frozen=True)
class Elf:
    machine: str
    needed: tuple[str, ...]


def read(content: bytes) -> Elf | None:
    """Return nothing for another kind of file."""
    if content[:6] != b"\x7fELF\x02\x01":
        return None
    (machine,) = struct.unpack_from("<H", content, 18)
    (headers,) = struct.unpack_from("<Q", content, 32)
    size, count = struct.unpack_from("<HH", content, 54)
    segments = [
        struct.unpack_from("<IIQQQQ", content, headers + number * size) for number in range(count)
    ]
    loaded = [(address, file_size, at) for kind, _, at, address, _, file_size in _of(segments)]

    def position(address: int) -> int:
        return next(
            at + address - begin
            for begin, length, at in loaded
            if begin <= address < begin + length
        )

    entries = [
        entry
        for kind, _, at, _, _, length in segments
        if kind == _PT_DYNAMIC
        for entry in struct.iter_unpack("<qQ", content[at : at + length])
    ]
    names = next((position(value) for tag, value in entries if tag == _DT_STRTAB), 0)
    return Elf(
        MACHINES.get(machine, str(machine)),
        tuple(_text(content, names + value) for tag, value in entries if tag == _DT_NEEDED),
    )


def _of(segments: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    return [segment for segment in segments if segment[0] == _PT_LOAD]


def _text(content: bytes, at: int) -> str:
    return content[at : content.index(b"\0", at)].decode()
