/* The part of libcuda's ABI that a validation calls, without a GPU: devices, contexts, memory.
 *
 * One library file speaks both ABIs; `library.py` copies it to libcuda.so.1 as well. As in libcuda, devices are those
 * of CUDA_VISIBLE_DEVICES (UUIDs here), and MIG instances are seen only there. Memory is the process's own. */
#define _GNU_SOURCE
#include "fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CUDA_INVALID_VALUE = 1, CUDA_OUT_OF_MEMORY = 2, CUDA_NOT_INITIALIZED = 3, CUDA_UNAVAILABLE = 46, CUDA_NO_DEVICE = 100,
    CUDA_INVALID_DEVICE = 101, CUDA_INVALID_CONTEXT = 201, CUDA_UNKNOWN = 999,
};
enum { COMPUTE_MODE = 20, PROHIBITED = 2, EXCLUSIVE_PROCESS = 3 };

typedef uint64_t pointer;

static bool is_initialised;
static int context = -1;
static unsigned visible[MAX_GPUS];
static char uuids[MAX_GPUS][64];
static int visible_count;

EXPORT int cuGetErrorName(int code, const char **name) {
    switch (code) {
    case SUCCESS: *name = "CUDA_SUCCESS"; break;
    case CUDA_OUT_OF_MEMORY: *name = "CUDA_ERROR_OUT_OF_MEMORY"; break;
    case CUDA_UNAVAILABLE: *name = "CUDA_ERROR_DEVICE_UNAVAILABLE"; break;
    case CUDA_NO_DEVICE: *name = "CUDA_ERROR_NO_DEVICE"; break;
    case CUDA_UNKNOWN: *name = "CUDA_ERROR_UNKNOWN"; break;
    default: *name = NULL; return CUDA_INVALID_VALUE;
    }
    return SUCCESS;
}

static bool is_wanted(const char *uuid) {
    const char *wanted = getenv("CUDA_VISIBLE_DEVICES");
    if (wanted == NULL) return strncmp(uuid, "MIG-", 4) != 0;
    const char *found = strstr(wanted, uuid);
    return found != NULL && (found[strlen(uuid)] == '\0' || found[strlen(uuid)] == ',');
}

static bool add_if_wanted(const char *rest, const char *value, void *unused) {
    unsigned gpu, gi, ci;
    int end = 0;
    long long lost = 0;
    (void)unused;
    const char *uuid = NULL;
    if (sscanf(rest, "%u.uuid%n", &gpu, &end) == 1 && end > 0 && rest[end] == '\0') uuid = value;
    else if (sscanf(rest, "%u.ci.%u.%u%n", &gpu, &gi, &ci, &end) == 3 && end > 0 && rest[end] == '\0')
        uuid = strchr(value, ' ') == NULL ? NULL : strchr(value, ' ') + 1;
    if (uuid == NULL || visible_count == MAX_GPUS || strlen(uuid) >= sizeof uuids[0]) return true;
    number_of(&lost, "gpu.%u.lost", gpu);
    if (lost || !is_wanted(uuid)) return true;
    strcpy(uuids[visible_count], uuid);
    visible[visible_count++] = gpu;
    return true;
}

EXPORT int cuInit(unsigned flags) {
    (void)flags;
    ENTER();
    long long result = 0;
    if (!load()) return leave(CUDA_NO_DEVICE);
    number_of(&result, "init");
    if (result != SUCCESS) return leave(CUDA_UNKNOWN);
    visible_count = 0;
    each("gpu.", add_if_wanted, NULL);
    is_initialised = true;
    return leave(visible_count == 0 ? CUDA_NO_DEVICE : SUCCESS);
}

EXPORT int cuDeviceGetCount(int *found) {
    ENTER();
    *found = visible_count;
    return leave(is_initialised ? SUCCESS : CUDA_NOT_INITIALIZED);
}

EXPORT int cuDeviceGet(int *device, int ordinal) {
    ENTER();
    if (ordinal < 0 || ordinal >= visible_count) return leave(CUDA_INVALID_DEVICE);
    *device = ordinal;
    return leave(SUCCESS);
}

EXPORT int cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
    ENTER();
    if (device < 0 || device >= visible_count) return leave(CUDA_INVALID_DEVICE);
    const char *shown = value_of("gpu.%u.cuda_uuid", visible[device]);
    const char *digit = shown != NULL ? shown : uuids[device];
    digit += 4; /* GPU- or MIG- */
    for (int i = 0; i < 16; i++) {
        unsigned byte = 0;
        if (*digit == '-') digit++;
        if (sscanf(digit, "%2x", &byte) != 1) return leave(CUDA_UNKNOWN);
        uuid[i] = (unsigned char)byte;
        digit += 2;
    }
    return leave(SUCCESS);
}

static long long of_device(int device, const char *field, long long otherwise) {
    long long found = otherwise;
    number_of(&found, "gpu.%u.%s", visible[device], field);
    return found;
}

EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device) {
    ENTER();
    if (attribute != COMPUTE_MODE || device < 0 || device >= visible_count) return leave(CUDA_INVALID_VALUE);
    *value = (int)of_device(device, "compute_mode", 0);
    return leave(SUCCESS);
}

EXPORT int cuCtxCreate_v2(void **created, unsigned flags, int device) {
    (void)flags;
    ENTER();
    if (device < 0 || device >= visible_count) return leave(CUDA_INVALID_DEVICE);
    long long mode = of_device(device, "compute_mode", 0);
    bool is_held = value_of("gpu.%u.held", visible[device]) != NULL;
    if (mode == PROHIBITED || (mode == EXCLUSIVE_PROCESS && is_held)) return leave(CUDA_UNAVAILABLE);
    context = device;
    *created = &context;
    return leave(SUCCESS);
}

EXPORT int cuCtxDestroy_v2(void *given) {
    ENTER();
    if (given != &context) return leave(CUDA_INVALID_CONTEXT);
    context = -1;
    return leave(SUCCESS);
}

EXPORT int cuCtxSynchronize(void) {
    ENTER();
    return leave(context >= 0 ? SUCCESS : CUDA_INVALID_CONTEXT);
}

EXPORT int cuMemAlloc_v2(pointer *memory, size_t bytes) {
    ENTER();
    if (context < 0) return leave(CUDA_INVALID_CONTEXT);
    if ((long long)bytes > of_device(context, "cuda_free_bytes", 1LL << 40)) return leave(CUDA_OUT_OF_MEMORY);
    *memory = (pointer)(uintptr_t)calloc(1, bytes);
    return leave(*memory == 0 ? CUDA_OUT_OF_MEMORY : SUCCESS);
}

EXPORT int cuMemFree_v2(pointer memory) {
    ENTER();
    free((void *)(uintptr_t)memory);
    return leave(SUCCESS);
}

EXPORT int cuMemcpyHtoD_v2(pointer to, const void *from, size_t bytes) {
    ENTER();
    memcpy((void *)(uintptr_t)to, from, bytes);
    return leave(SUCCESS);
}

EXPORT int cuMemcpyDtoD_v2(pointer to, pointer from, size_t bytes) {
    ENTER();
    memcpy((void *)(uintptr_t)to, (void *)(uintptr_t)from, bytes);
    /* As a device does whose memory is broken and not protected: one bit of many is another one. */
    if (bytes > 0 && of_device(context, "cuda_flips", 0)) ((unsigned char *)(uintptr_t)to)[bytes / 2] ^= 4;
    return leave(SUCCESS);
}

EXPORT int cuMemcpyDtoH_v2(void *to, pointer from, size_t bytes) {
    ENTER();
    memcpy(to, (void *)(uintptr_t)from, bytes);
    return leave(SUCCESS);
}
