"""A copy to and from the memory of one device, through libcuda: the program of a child process.

It is run by its path and imports the standard library only: libcuda is loaded into no process of ours, since a call
may never return, and a context keeps the device open. Usage: `cuda_probe.py LIBRARY`, with the device in
CUDA_VISIBLE_DEVICES.

Standard output has the name of each call before it is made, then one JSON object: `{"uuid": …}` of a device that
works, or `{"call": …, "code": …, "name": …, "mode": …}`, or `{"wrong": <first byte that differs>}`.
"""

import ctypes
import json
import os
import sys

BYTES = 1 << 20
_COMPUTE_MODE = 20
"""CU_DEVICE_ATTRIBUTE_COMPUTE_MODE."""


class _CallError(Exception):
    def __init__(self, call: str, code: int) -> None:
        super().__init__(call)
        self.call = call
        self.code = code


class _Cuda:
    """The library's functions; each failure is raised."""

    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(path)

    def __call__(self, name: str, *arguments: object) -> None:
        print(name, flush=True)  # noqa: T201  # the protocol
        code = getattr(self._library, name)(*arguments)
        if code != 0:
            raise _CallError(name, code)

    def error_name(self, code: int) -> str:
        name = ctypes.c_char_p()
        if self._library.cuGetErrorName(code, ctypes.byref(name)) != 0 or not name.value:
            return ""
        return name.value.decode("ascii", "replace")


def _probe(path: str) -> dict[str, object]:
    try:
        cuda = _Cuda(path)
    except OSError as error:
        return {"call": "dlopen", "code": 0, "name": str(error)}
    mode = ctypes.c_int(0)
    try:
        return _copy(cuda, mode)
    except _CallError as error:
        name = cuda.error_name(error.code)
        return {"call": error.call, "code": error.code, "name": name, "mode": mode.value}
    except AttributeError as error:
        return {"call": "dlsym", "code": 0, "name": str(error)}


def _copy(cuda: _Cuda, mode: ctypes.c_int) -> dict[str, object]:
    count, device = ctypes.c_int(), ctypes.c_int()
    uuid = (ctypes.c_ubyte * 16)()
    cuda("cuInit", ctypes.c_uint(0))
    cuda("cuDeviceGetCount", ctypes.byref(count))
    if count.value != 1:
        return {"count": count.value}
    cuda("cuDeviceGet", ctypes.byref(device), ctypes.c_int(0))
    cuda("cuDeviceGetUuid_v2", uuid, device)
    cuda("cuDeviceGetAttribute", ctypes.byref(mode), ctypes.c_int(_COMPUTE_MODE), device)
    context = ctypes.c_void_p()
    cuda("cuCtxCreate_v2", ctypes.byref(context), ctypes.c_uint(0), device)
    sent = os.urandom(BYTES)
    received = ctypes.create_string_buffer(BYTES)
    size = ctypes.c_size_t(BYTES)
    source, copy = ctypes.c_uint64(), ctypes.c_uint64()
    cuda("cuMemAlloc_v2", ctypes.byref(source), size)
    cuda("cuMemAlloc_v2", ctypes.byref(copy), size)
    cuda("cuMemcpyHtoD_v2", source, sent, size)
    cuda("cuMemcpyDtoD_v2", copy, source, size)
    cuda("cuCtxSynchronize")
    cuda("cuMemcpyDtoH_v2", received, copy, size)
    cuda("cuMemFree_v2", source)
    cuda("cuMemFree_v2", copy)
    cuda("cuCtxDestroy_v2", context)
    if received.raw != sent:
        pairs = enumerate(zip(sent, received.raw, strict=True))
        return {"wrong": next(at for at, (want, got) in pairs if want != got)}
    return {"uuid": bytes(uuid).hex()}


if __name__ == "__main__":
    print(json.dumps(_probe(sys.argv[1])))  # noqa: T201  # the protocol
