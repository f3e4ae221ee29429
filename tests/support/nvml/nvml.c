/* NVML's ABI without a GPU: initialisation, what is said of GPUs, events. MIG is in mig.c.
 *
 * Everything it says is in the state file (state.c): one written by `library.py`, and changed here by what
 * NVML's callers change. Structures are laid out as in NVIDIA's nvml.h. As in NVML, GPUs are those that were
 * there at the initialisation, an initialisation is counted, and a handle does not survive the driver. */
#define _GNU_SOURCE
#include "fake.h"

#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static unsigned initialised, generation, gpu_count;
static unsigned gpus[MAX_GPUS]; /* The index of the ABI -> the number in the state file. */

/* ---- orders of the test ---- */

static bool is_hanging(const char *function, double waited) {
    const char *order = value_of("hang.%s", function);
    if (order == NULL) order = value_of("hang.*");
    return order != NULL && (strcmp(order, "forever") == 0 || waited < atof(order));
}

static int ordered_failure(const char *function) {
    int code = 0, skipped = 0, times = 0;
    const char *order = value_of("fail.%s", function);
    if (order == NULL || sscanf(order, "%d %d %d", &code, &skipped, &times) != 3) return SUCCESS;
    if (times < 0 && skipped == 0) return code;
    if (!begin_change()) return UNKNOWN;
    order = value_of("fail.%s", function);
    if (order == NULL || sscanf(order, "%d %d %d", &code, &skipped, &times) != 3) { end_change(); return SUCCESS; }
    bool fails = skipped == 0;
    char next[64];
    snprintf(next, sizeof next, "%d %d %d", code, fails ? 0 : skipped - 1, fails && times > 0 ? times - 1 : times);
    if (fails && times == 1) take_away("fail.%s", function);
    else put(next, "fail.%s", function);
    commit_change();
    end_change();
    if (fails && code < 0) { /* As if the agent was killed here; the first process of a container cannot be. */
        kill(getpid(), SIGKILL);
        _exit(128 + SIGKILL);
    }
    return fails ? code : SUCCESS;
}

int enter(const char *function) {
    pthread_mutex_lock(&mutex);
    double waited = 0;
    while (load() && is_hanging(function, waited)) {
        pthread_mutex_unlock(&mutex);
        usleep(5000);
        waited += 0.005;
        pthread_mutex_lock(&mutex);
    }
    int failure = ordered_failure(function);
    return failure == SUCCESS ? SUCCESS : leave(failure);
}

int leave(int result) {
    pthread_mutex_unlock(&mutex);
    return result;
}

/* ---- handles ---- */

handle name_it(enum kind kind, unsigned gpu, unsigned gi, unsigned ci) {
    return (handle)((uintptr_t)kind << 56 | (uintptr_t)(generation & 0xffff) << 40 | (uintptr_t)gpu << 24
                    | (uintptr_t)gi << 12 | ci);
}

static unsigned generation_now(void) {
    long long now = 0;
    number_of(&now, "generation");
    return (unsigned)now & 0xffff;
}

static int session(void) {
    if (initialised == 0) return UNINITIALIZED;
    long long result = 0;
    number_of(&result, "init");
    return result == SUCCESS && generation == generation_now() ? SUCCESS : UNKNOWN;
}

static int state_of(unsigned gpu) {
    long long is_lost = 0;
    number_of(&is_lost, "gpu.%u.lost", gpu);
    return is_lost || value_of("gpu.%u.uuid", gpu) == NULL ? GPU_IS_LOST : SUCCESS;
}

int resolve(handle given, struct named *named) {
    uintptr_t bits = (uintptr_t)given;
    int result = session();
    if (result != SUCCESS) return result;
    *named = (struct named){(enum kind)(bits >> 56), bits >> 40 & 0xffff, bits >> 24 & 0xffff, bits >> 12 & 0xfff,
                            bits & 0xfff};
    if (named->kind == NOTHING) return INVALID_ARGUMENT;
    return named->generation == generation ? state_of(named->gpu) : UNKNOWN;
}

/* ---- initialisation ---- */

static bool note_gpu(const char *rest, const char *value, void *context) {
    unsigned gpu;
    int end = 0;
    (void)value, (void)context;
    if (sscanf(rest, "%u.uuid%n", &gpu, &end) == 1 && end > 0 && rest[end] == '\0' && gpu_count < MAX_GPUS)
        gpus[gpu_count++] = gpu;
    return true;
}

EXPORT int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    ENTER();
    if (!load()) return leave(DRIVER_NOT_LOADED);
    long long result = 0;
    number_of(&result, "init");
    if (result != SUCCESS) return leave((int)result);
    if (initialised++ > 0) return leave(SUCCESS);
    generation = generation_now();
    gpu_count = 0;
    each("gpu.", note_gpu, NULL);
    return leave(SUCCESS);
}

EXPORT int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

unsigned sessions(void) { return initialised; }

EXPORT int nvmlShutdown(void) {
    ENTER();
    if (initialised == 0) return leave(UNINITIALIZED);
    initialised--;
    return leave(SUCCESS);
}

EXPORT const char *nvmlErrorString(int code) {
    switch (code) {
    case SUCCESS: return "Success";
    case UNINITIALIZED: return "Uninitialized";
    case NOT_SUPPORTED: return "Not Supported";
    case IN_USE: return "In use by another client";
    case INSUFFICIENT_RESOURCES: return "Insufficient Resources";
    default: return "Unknown Error";
    }
}

static int text(const char *value, char *to, unsigned length) {
    if (value == NULL) return NOT_SUPPORTED;
    if (strlen(value) >= length) return INSUFFICIENT_SIZE;
    strcpy(to, value);
    return SUCCESS;
}

EXPORT int nvmlSystemGetDriverVersion(char *version, unsigned length) {
    ENTER();
    int result = session();
    return leave(result == SUCCESS ? text(value_of("driver"), version, length) : result);
}

EXPORT int nvmlSystemGetCudaDriverVersion_v2(int *version) {
    ENTER();
    long long number;
    int result = session();
    if (result != SUCCESS) return leave(result);
    if (!number_of(&number, "cuda")) return leave(NOT_SUPPORTED);
    *version = (int)number;
    return leave(SUCCESS);
}

/* ---- GPUs ---- */

EXPORT int nvmlDeviceGetCount_v2(unsigned *found) {
    ENTER();
    int result = session();
    *found = gpu_count;
    return leave(result);
}

EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, handle *device) {
    ENTER();
    int result = session();
    if (result != SUCCESS) return leave(result);
    if (index >= gpu_count) return leave(INVALID_ARGUMENT);
    *device = name_it(DEVICE, gpus[index], 0, 0);
    return leave(state_of(gpus[index]));
}

EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, handle *device) {
    ENTER();
    int result = session();
    if (result != SUCCESS) return leave(result);
    for (unsigned i = 0; i < gpu_count; i++) {
        const char *known = value_of("gpu.%u.uuid", gpus[i]);
        if (known == NULL || strcmp(known, uuid) != 0) continue;
        *device = name_it(DEVICE, gpus[i], 0, 0);
        return leave(state_of(gpus[i]));
    }
    return leave(NOT_FOUND);
}

EXPORT int nvmlDeviceGetUUID(handle device, char *uuid, unsigned length) {
    ENTER();
    struct named named;
    int result = resolve(device, &named);
    if (result != SUCCESS) return leave(result);
    if (named.kind == DEVICE) {
        /* A driver that lies shows another UUID with every second call. */
        static unsigned asked[MAX_GPUS];
        const char *other = value_of("gpu.%u.other_uuid", named.gpu);
        bool lies = other != NULL && named.gpu < MAX_GPUS && asked[named.gpu]++ % 2 == 1;
        return leave(text(lies ? other : value_of("gpu.%u.uuid", named.gpu), uuid, length));
    }
    if (named.kind != MIG_DEVICE) return leave(INVALID_ARGUMENT);
    const char *instance = value_of("gpu.%u.ci.%u.%u", named.gpu, named.gi, named.ci);
    const char *space = instance == NULL ? NULL : strchr(instance, ' ');
    return leave(space == NULL ? NOT_FOUND : text(space + 1, uuid, length));
}

EXPORT int nvmlDeviceGetName(handle device, char *name, unsigned length) {
    ENTER();
    struct named named;
    RESOLVE(device, named, DEVICE);
    return leave(text(value_of("gpu.%u.name", named.gpu), name, length));
}

/* What is one number of a GPU, scaled. */
static int number(const char *function, handle device, const char *field, long long *found) {
    int result = enter(function);
    if (result != SUCCESS) return result;
    struct named named;
    RESOLVE(device, named, DEVICE);
    return leave(number_of(found, "gpu.%u.%s", named.gpu, field) ? SUCCESS : NOT_SUPPORTED);
}

#define NUMBER(name, field, type, scale) \
    EXPORT int name(handle device, type *found) { \
        long long read = 0; \
        int result = number(__func__, device, field, &read); \
        if (result == SUCCESS) *found = (type)(read * (scale)); \
        return result; \
    }

NUMBER(nvmlDeviceGetMinorNumber, "minor", unsigned, 1)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, "power", unsigned, 1000)
NUMBER(nvmlDeviceGetPowerManagementLimit, "power", unsigned, 1000)

EXPORT int nvmlDeviceGetPowerManagementLimitConstraints(handle device, unsigned *least, unsigned *most) {
    long long read = 0;
    int result = number(__func__, device, "max_power", &read);
    *least = (unsigned)read * 500;
    *most = (unsigned)read * 1000;
    return result;
}

EXPORT int nvmlDeviceGetTemperature(handle device, int sensor, unsigned *found) {
    long long read = 0;
    int result = number(__func__, device, "temperature", &read);
    *found = (unsigned)read;
    return result == SUCCESS && sensor != 0 ? INVALID_ARGUMENT : result;
}

EXPORT int nvmlDeviceGetTemperatureThreshold(handle device, int threshold, unsigned *found) {
    long long read = 0;
    int result = number(__func__, device, "shutdown_temperature", &read);
    *found = (unsigned)read;
    return result == SUCCESS && threshold != 0 ? NOT_SUPPORTED : result;
}

EXPORT int nvmlDeviceGetTotalEccErrors(handle device, int type, int counter, unsigned long long *found) {
    long long read = 0;
    int result = number(__func__, device, "ecc", &read);
    *found = type == 1 && counter == 0 ? (unsigned long long)read : 0; /* Uncorrected; volatile. */
    return result;
}

struct memory { unsigned long long total, free, used; };
EXPORT int nvmlDeviceGetMemoryInfo(handle device, struct memory *memory) {
    ENTER();
    struct named named;
    int result = resolve(device, &named);
    if (result != SUCCESS) return leave(result);
    long long total = 0, used = 0;
    bool is_known;
    if (named.kind == MIG_DEVICE) {
        is_known = number_of(&total, "gpu.%u.memory.%u", named.gpu, named.gi);
        number_of(&used, "gpu.%u.used.%u", named.gpu, named.gi);
    } else {
        is_known = number_of(&total, "gpu.%u.memory", named.gpu);
        number_of(&used, "gpu.%u.used", named.gpu);
    }
    if (!is_known) return leave(NOT_SUPPORTED);
    memory->total = (unsigned long long)total << 20;
    memory->used = (unsigned long long)used << 20;
    memory->free = memory->total - memory->used;
    return leave(SUCCESS);
}

/* ---- metrics ---- */

struct utilisation { unsigned gpu, memory; };
EXPORT int nvmlDeviceGetUtilizationRates(handle device, struct utilisation *found) {
    long long gpu = 0, memory = 0;
    int result = number(__func__, device, "utilisation", &gpu);
    if (result == SUCCESS) result = number(__func__, device, "memory_utilisation", &memory);
    *found = (struct utilisation){(unsigned)gpu, (unsigned)memory};
    return result;
}

NUMBER(nvmlDeviceGetPowerUsage, "milliwatts", unsigned, 1)
NUMBER(nvmlDeviceGetCurrentClocksThrottleReasons, "throttle", unsigned long long, 1)

EXPORT int nvmlDeviceGetClockInfo(handle device, int clock, unsigned *found) {
    long long read = 0;
    int result = number(__func__, device, clock == 1 ? "sm_clock" : "memory_clock", &read);
    *found = (unsigned)read;
    return result;
}

/* nvmlFieldValue_t; each value is one of 64 bits without a sign. */
struct field { unsigned id, scope; long long timestamp, latency; int type, result; unsigned long long value; };
EXPORT int nvmlDeviceGetFieldValues(handle device, int count, struct field *fields) {
    ENTER();
    struct named named;
    RESOLVE(device, named, DEVICE);
    for (int i = 0; i < count; i++) {
        long long read = 0;
        /* NVML_FI_DEV_NVLINK_THROUGHPUT_*: of all links. */
        bool is_known = (fields[i].id < 138 || fields[i].id > 141 || fields[i].scope == ~0u)
            && number_of(&read, "gpu.%u.field.%u", named.gpu, fields[i].id);
        fields[i].result = is_known ? SUCCESS : NOT_SUPPORTED;
        fields[i].type = 3;
        fields[i].value = (unsigned long long)read;
    }
    return leave(SUCCESS);
}

EXPORT int nvmlDeviceGetCudaComputeCapability(handle device, int *major, int *minor) {
    ENTER();
    struct named named;
    RESOLVE(device, named, DEVICE);
    const char *value = value_of("gpu.%u.capability", named.gpu);
    return leave(value != NULL && sscanf(value, "%d.%d", major, minor) == 2 ? SUCCESS : NOT_SUPPORTED);
}

struct pci {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char address[32];
};
static int fill_pci(const char *address, struct pci *pci) {
    memset(pci, 0, sizeof *pci);
    if (address == NULL || sscanf(address, "%x:%x:%x.", &pci->domain, &pci->bus, &pci->device) != 3)
        return NOT_SUPPORTED;
    /* NVML's own spelling: eight digits of the domain, capitals. */
    snprintf(pci->address, sizeof pci->address, "%08X:%02X:%02X.0", pci->domain, pci->bus, pci->device);
    snprintf(pci->legacy, sizeof pci->legacy, "%04X:%02X:%02X.0", pci->domain & 0xffff, pci->bus & 0xff,
             pci->device & 0xff);
    pci->id = 0x233510de;
    return SUCCESS;
}

EXPORT int nvmlDeviceGetPciInfo_v3(handle device, struct pci *pci) {
    ENTER();
    struct named named;
    RESOLVE(device, named, DEVICE);
    return leave(fill_pci(value_of("gpu.%u.address", named.gpu), pci));
}

EXPORT int nvmlDeviceGetNvLinkState(handle device, unsigned link, unsigned *is_active) {
    ENTER();
    struct named named;
    RESOLVE(device, named, DEVICE);
    const char *peer = value_of("gpu.%u.nvlink.%u", named.gpu, link);
    if (peer == NULL) return leave(link < 18 ? NOT_SUPPORTED : INVALID_ARGUMENT);
    *is_active = strcmp(peer, "inactive") != 0;
    return leave(SUCCESS);
}

EXPORT int nvmlDeviceGetNvLinkRemotePciInfo_v2(handle device, unsigned link, struct pci *pci) {
    ENTER();
    struct named named;
    RESOLVE(device, named, DEVICE);
    const char *peer = value_of("gpu.%u.nvlink.%u", named.gpu, link);
    return leave(fill_pci(peer != NULL && strchr(peer, ':') == NULL ? "0000:C1:00.0" : peer, pci));
}

EXPORT int nvmlDeviceGetNvLinkRemoteDeviceType(handle device, unsigned link, int *type) {
    ENTER();
    struct named named;
    RESOLVE(device, named, DEVICE);
    const char *peer = value_of("gpu.%u.nvlink.%u", named.gpu, link);
    if (peer == NULL) return leave(NOT_SUPPORTED);
    *type = strchr(peer, ':') == NULL ? 2 : 0;
    return leave(SUCCESS);
}

EXPORT int nvmlDeviceGetTopologyCommonAncestor(handle one, handle other, int *level) {
    ENTER();
    struct named first, second;
    RESOLVE(one, first, DEVICE);
    RESOLVE(other, second, DEVICE);
    long long read;
    if (!number_of(&read, "gpu.%u.topology.%u", first.gpu, second.gpu)
        && !number_of(&read, "gpu.%u.topology.%u", second.gpu, first.gpu)) return leave(NOT_SUPPORTED);
    *level = (int)read;
    return leave(SUCCESS);
}

#ifndef OLD_DRIVER
EXPORT int nvmlDeviceGetRemappedRows(handle device, unsigned *correctable, unsigned *uncorrectable,
                                     unsigned *is_pending, unsigned *is_failed) {
    long long read = 0;
    int result = number(__func__, device, "remap_failed", &read);
    *correctable = *uncorrectable = *is_pending = 0;
    *is_failed = (unsigned)read;
    return result;
}

struct process { unsigned pid; unsigned long long memory; unsigned gi, ci; };
static int processes(const char *function, handle device, const char *field, unsigned *found, struct process *all) {
    int result = enter(function);
    if (result != SUCCESS) return result;
    struct named named;
    result = resolve(device, &named);
    if (result != SUCCESS) return leave(result);
    const char *value = named.kind == DEVICE ? value_of("gpu.%u.%s", named.gpu, field)
        : strcmp(field, "processes") == 0 ? value_of("gpu.%u.busy.%u", named.gpu, named.gi) : NULL;
    unsigned size = *found, there = 0;
    for (const char *at = value; at != NULL && *at != '\0'; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        if (all != NULL && there < size) all[there] = (struct process){(unsigned)atoi(at), 1u << 20, ~0u, ~0u};
        there++;
    }
    *found = there;
    return leave(there > size || (there > 0 && all == NULL) ? INSUFFICIENT_SIZE : SUCCESS);
}

#define PROCESSES(name, field) \
    EXPORT int name(handle device, unsigned *found, struct process *all) { \
        return processes(__func__, device, field, found, all); \
    }
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, "processes")
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, "graphics_processes")
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3, "mps_processes")
#endif

/* ---- events ---- */

struct event_set { bool is_waited_on; int changes; unsigned last, generation; unsigned long long types[MAX_GPUS]; bool is_of[MAX_GPUS]; };
struct event { handle device; unsigned long long type, code; unsigned gi, ci; };
struct search { struct event_set *set; struct event *event; unsigned serial; };

static bool note_serial(const char *rest, const char *value, void *context) {
    unsigned serial = (unsigned)strtoul(rest, NULL, 10), *last = context;
    (void)value;
    if (serial > *last) *last = serial;
    return true;
}

/* The file is replaced for each change, so its directory is what to follow. */
static int follow_changes(void) {
    char directory[PATH_MAX];
    snprintf(directory, sizeof directory, "%s", state_path());
    char *slash = strrchr(directory, '/');
    if (slash == NULL) return -1;
    *slash = '\0';
    int changes = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (changes >= 0) inotify_add_watch(changes, directory, IN_MOVED_TO | IN_CLOSE_WRITE | IN_DELETE);
    return changes;
}

static void await_change(int changes, int within_ms) {
    char told[4096];
    if (changes < 0) { usleep(10000); return; }
    struct pollfd waiting = {.fd = changes, .events = POLLIN};
    if (poll(&waiting, 1, within_ms) > 0)
        while (read(changes, told, sizeof told) > 0) continue;
}

EXPORT int nvmlEventSetCreate(struct event_set **set) {
    ENTER();
    int result = session();
    if (result != SUCCESS) return leave(result);
    *set = calloc(1, sizeof **set);
    (*set)->generation = generation;
    (*set)->changes = follow_changes();
    each("event.", note_serial, &(*set)->last);
    return leave(SUCCESS);
}

/* `listening` says how many event sets are waited on, and `listened` how many ever were, so that a test knows
 * when an event will be heard. Without a right to write nobody is told. */
static void count_listening(int more) {
    long long listening = 0, listened = 0;
    char value[32];
    if (!begin_change()) return;
    number_of(&listening, "listening");
    number_of(&listened, "listened");
    snprintf(value, sizeof value, "%lld", listening + more);
    put(value, "listening");
    snprintf(value, sizeof value, "%lld", listened + (more > 0));
    put(value, "listened");
    commit_change();
    end_change();
}

EXPORT int nvmlEventSetFree(struct event_set *set) {
    ENTER();
    if (set->is_waited_on && set->generation == generation_now()) count_listening(-1);
    if (set->changes >= 0) close(set->changes);
    free(set);
    return leave(SUCCESS);
}

EXPORT int nvmlDeviceGetSupportedEventTypes(handle device, unsigned long long *types) {
    long long read = 0;
    int result = number(__func__, device, "events", &read);
    *types = (unsigned long long)read;
    return result;
}

EXPORT int nvmlDeviceRegisterEvents(handle device, unsigned long long types, struct event_set *set) {
    ENTER();
    struct named named;
    RESOLVE(device, named, DEVICE);
    long long supported = 0;
    number_of(&supported, "gpu.%u.events", named.gpu);
    if (types & ~(unsigned long long)supported) return leave(NOT_SUPPORTED);
    set->is_of[named.gpu % MAX_GPUS] = true;
    set->types[named.gpu % MAX_GPUS] |= types;
    return leave(SUCCESS);
}

#ifndef OLD_DRIVER
/* The oldest event that the set has not had. */
static bool find_event(const char *rest, const char *value, void *context) {
    struct search *search = context;
    unsigned serial = (unsigned)strtoul(rest, NULL, 10), gpu;
    unsigned long long type, code;
    if (serial <= search->set->last || (search->serial != 0 && serial >= search->serial)) return true;
    if (sscanf(value, "%u %llu %llu", &gpu, &type, &code) != 3 || !(search->set->types[gpu % MAX_GPUS] & type))
        return true;
    search->serial = serial;
    *search->event = (struct event){name_it(DEVICE, gpu, 0, 0), type, code, ~0u, ~0u};
    return true;
}

static bool has_lost_gpu(const struct event_set *set) {
    for (unsigned gpu = 0; gpu < MAX_GPUS; gpu++)
        if (set->is_of[gpu] && state_of(gpu) != SUCCESS) return true;
    return false;
}

EXPORT int nvmlEventSetWait_v2(struct event_set *set, struct event *event, unsigned within_ms) {
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    while (true) {
        ENTER();
        int result = session();
        if (result == SUCCESS && set->generation != generation) result = UNKNOWN;
        if (result != SUCCESS) return leave(result);
        if (!set->is_waited_on) count_listening(1);
        set->is_waited_on = true;
        struct search search = {set, event, 0};
        each("event.", find_event, &search);
        if (search.serial != 0) set->last = search.serial;
        result = search.serial != 0 ? SUCCESS : has_lost_gpu(set) ? GPU_IS_LOST : TIMED_OUT;
        leave(result);
        if (result != TIMED_OUT) return result;
        clock_gettime(CLOCK_MONOTONIC, &now);
        long waited = (now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000;
        if (waited >= within_ms) return TIMED_OUT;
        await_change(set->changes, (int)(within_ms - waited));
    }
}
#endif
