/* MIG: modes, profiles, GPU instances and compute instances. What is created and destroyed is written into the
 * state file, so that the next process finds it. */
#define _GNU_SOURCE
#include "fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef OLD_DRIVER
#define MAX_PROFILES 0x12
#define MAX_INSTANCES 32
#define MEMORY_SLICES 8
#define COMPUTE_SLICES 7

/* `gpu.<n>.profile.<enumerator>`: id slices capacity memory-slices MiB starts name */
struct profile { unsigned number, id, slices, capacity, memory_slices, memory_mib; char starts[64], name[64]; };
/* `gpu.<n>.gi.<id>`: the profile's enumerator and the first memory slice */
struct instance { unsigned id, profile, start; };
struct instances { struct instance all[MAX_INSTANCES]; unsigned count; };
/* `gpu.<n>.ci.<gi>.<id>`: slices uuid */
struct compute { unsigned gi, id, slices; };
struct computes { struct compute all[MAX_INSTANCES]; unsigned count; };

static bool read_profile(unsigned gpu, unsigned number, struct profile *profile) {
    const char *value = value_of("gpu.%u.profile.%u", gpu, number);
    profile->number = number;
    return value != NULL && sscanf(value, "%u %u %u %u %u %63s %63s", &profile->id, &profile->slices,
        &profile->capacity, &profile->memory_slices, &profile->memory_mib, profile->starts, profile->name) == 7;
}

static bool find_profile(unsigned gpu, unsigned id, struct profile *profile) {
    for (unsigned number = 0; number < MAX_PROFILES; number++)
        if (read_profile(gpu, number, profile) && profile->id == id) return true;
    return false;
}

static bool note_instance(const char *rest, const char *value, void *context) {
    struct instances *found = context;
    struct instance one;
    if (sscanf(rest, "%u", &one.id) == 1 && sscanf(value, "%u %u", &one.profile, &one.start) == 2
        && found->count < MAX_INSTANCES) found->all[found->count++] = one;
    return true;
}

static struct instances instances_of(unsigned gpu) {
    char prefix[64];
    struct instances found = {.count = 0};
    snprintf(prefix, sizeof prefix, "gpu.%u.gi.", gpu);
    each(prefix, note_instance, &found);
    return found;
}

static bool note_compute(const char *rest, const char *value, void *context) {
    struct computes *found = context;
    struct compute one;
    if (sscanf(rest, "%u.%u", &one.gi, &one.id) == 2 && sscanf(value, "%u", &one.slices) == 1
        && found->count < MAX_INSTANCES) found->all[found->count++] = one;
    return true;
}

static struct computes computes_of(unsigned gpu) {
    char prefix[64];
    struct computes found = {.count = 0};
    snprintf(prefix, sizeof prefix, "gpu.%u.ci.", gpu);
    each(prefix, note_compute, &found);
    return found;
}

static long long flag(unsigned gpu, const char *field) {
    long long read = 0;
    number_of(&read, "gpu.%u.%s", gpu, field);
    return read;
}

static bool has_value(const char *value) { return value != NULL && *value != '\0'; }

/* ---- modes ---- */

EXPORT int nvmlDeviceGetMigMode(handle device, unsigned *current, unsigned *pending) {
    ENTER();
    struct named named;
    RESOLVE(device, named, DEVICE);
    if (value_of("gpu.%u.mig.current", named.gpu) == NULL) return leave(NOT_SUPPORTED);
    *current = (unsigned)flag(named.gpu, "mig.current");
    *pending = (unsigned)flag(named.gpu, "mig.pending");
    return leave(SUCCESS);
}

EXPORT int nvmlDeviceSetMigMode(handle device, unsigned mode, int *activation) {
    ENTER();
    struct named named;
    RESOLVE(device, named, DEVICE);
    *activation = SUCCESS;
    if (value_of("gpu.%u.mig.current", named.gpu) == NULL) return leave(NOT_SUPPORTED);
    if (mode > 1) return leave(INVALID_ARGUMENT);
    if (!begin_change()) return leave(NO_PERMISSION);
    int result = SUCCESS;
    bool is_change = mode != flag(named.gpu, "mig.current");
    if (is_change && (sessions() > 1 || instances_of(named.gpu).count > 0 || has_value(value_of("gpu.%u.processes", named.gpu))))
        result = IN_USE;
    else {
        put(mode ? "1" : "0", "gpu.%u.mig.pending", named.gpu);
        if (is_change && flag(named.gpu, "mig.needs_reset")) *activation = RESET_REQUIRED;
        else put(mode ? "1" : "0", "gpu.%u.mig.current", named.gpu);
        commit_change();
    }
    end_change();
    return leave(result);
}

/* ---- profiles ---- */

struct profile_info {
    unsigned id, is_p2p, slices, capacity, multiprocessors, copy_engines, decoders, encoders, jpegs, ofas;
    unsigned long long memory_mib;
};
struct profile_info_v2 {
    unsigned version, id, is_p2p, slices, capacity, multiprocessors, copy_engines, decoders, encoders, jpegs, ofas;
    unsigned long long memory_mib;
    char name[96];
};

EXPORT int nvmlDeviceGetGpuInstanceProfileInfo(handle device, unsigned number, struct profile_info *info) {
    ENTER();
    struct named named;
    struct profile profile;
    RESOLVE(device, named, DEVICE);
    if (!read_profile(named.gpu, number, &profile))
        return leave(number < MAX_PROFILES ? NOT_SUPPORTED : INVALID_ARGUMENT);
    *info = (struct profile_info){.id = profile.id, .slices = profile.slices, .capacity = profile.capacity,
                                  .memory_mib = profile.memory_mib};
    return leave(SUCCESS);
}

EXPORT int nvmlDeviceGetGpuInstanceProfileInfoV(handle device, unsigned number, struct profile_info_v2 *info) {
    ENTER();
    struct named named;
    struct profile profile;
    RESOLVE(device, named, DEVICE);
    if (info->version != (sizeof *info | 2u << 24)) return leave(VERSION_MISMATCH);
    if (!read_profile(named.gpu, number, &profile))
        return leave(number < MAX_PROFILES ? NOT_SUPPORTED : INVALID_ARGUMENT);
    *info = (struct profile_info_v2){.version = info->version, .id = profile.id, .slices = profile.slices,
                                     .capacity = profile.capacity, .memory_mib = profile.memory_mib};
    snprintf(info->name, sizeof info->name, "MIG %s", profile.name);
    return leave(SUCCESS);
}

/* ---- GPU instances ---- */

static bool has_room(unsigned gpu, const struct instances *there, unsigned start, unsigned size) {
    if (start + size > MEMORY_SLICES) return false;
    for (unsigned i = 0; i < there->count; i++) {
        struct profile other;
        if (!read_profile(gpu, there->all[i].profile, &other)) continue;
        unsigned first = there->all[i].start;
        if (start < first + other.memory_slices && first < start + size) return false;
    }
    return true;
}

struct placement { unsigned start, size; };

static bool find_room(unsigned gpu, const struct profile *profile, const struct placement *wanted, unsigned *start) {
    struct instances there = instances_of(gpu);
    unsigned same = 0, slices = profile->slices;
    for (unsigned i = 0; i < there.count; i++) {
        struct profile other;
        if (!read_profile(gpu, there.all[i].profile, &other)) continue;
        same += other.id == profile->id;
        slices += other.slices;
    }
    if (same >= profile->capacity || slices > COMPUTE_SLICES) return false;
    for (const char *at = profile->starts; at != NULL; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        *start = (unsigned)atoi(at);
        bool is_asked = wanted == NULL || (wanted->start == *start && wanted->size == profile->memory_slices);
        if (is_asked && has_room(gpu, &there, *start, profile->memory_slices)) return true;
    }
    return false;
}

/* Ids begin where a real GPU's begin. */
static unsigned free_id(unsigned gpu, unsigned slices) {
    unsigned id = slices == 1 ? 7 : slices == 2 ? 3 : slices < 7 ? 1 : 0;
    while (value_of("gpu.%u.gi.%u", gpu, id) != NULL) id++;
    return id;
}

static int create(handle device, unsigned profile_id, const struct placement *wanted, handle *made) {
    struct named named;
    struct profile profile;
    unsigned start;
    char value[64];
    RESOLVE(device, named, DEVICE);
    if (!flag(named.gpu, "mig.current")) return leave(NOT_SUPPORTED);
    if (!find_profile(named.gpu, profile_id, &profile)) return leave(INVALID_ARGUMENT);
    if (!begin_change()) return leave(NO_PERMISSION);
    bool fits = find_room(named.gpu, &profile, wanted, &start);
    if (fits) {
        unsigned id = free_id(named.gpu, profile.slices);
        snprintf(value, sizeof value, "%u %u", profile.number, start);
        put(value, "gpu.%u.gi.%u", named.gpu, id);
        *made = name_it(GPU_INSTANCE, named.gpu, id, 0);
        commit_change();
    }
    end_change();
    return leave(fits ? SUCCESS : INSUFFICIENT_RESOURCES);
}

EXPORT int nvmlDeviceCreateGpuInstance(handle device, unsigned profile_id, handle *made) {
    ENTER();
    return create(device, profile_id, NULL, made);
}

EXPORT int nvmlDeviceCreateGpuInstanceWithPlacement(handle device, unsigned profile_id, const struct placement *wanted,
                                                    handle *made) {
    ENTER();
    return create(device, profile_id, wanted, made);
}

EXPORT int nvmlGpuInstanceDestroy(handle instance) {
    ENTER();
    struct named named;
    RESOLVE(instance, named, GPU_INSTANCE);
    if (!begin_change()) return leave(NO_PERMISSION);
    int result = value_of("gpu.%u.gi.%u", named.gpu, named.gi) == NULL ? NOT_FOUND : SUCCESS;
    struct computes computes = computes_of(named.gpu);
    for (unsigned i = 0; i < computes.count; i++)
        if (computes.all[i].gi == named.gi) result = IN_USE;
    if (result == SUCCESS) {
        take_away("gpu.%u.gi.%u", named.gpu, named.gi);
        commit_change();
    }
    end_change();
    return leave(result);
}

EXPORT int nvmlDeviceGetGpuInstances(handle device, unsigned profile_id, handle *found, unsigned *count) {
    ENTER();
    struct named named;
    struct profile profile;
    RESOLVE(device, named, DEVICE);
    if (!flag(named.gpu, "mig.current")) return leave(NOT_SUPPORTED);
    if (!find_profile(named.gpu, profile_id, &profile)) return leave(INVALID_ARGUMENT);
    struct instances there = instances_of(named.gpu);
    *count = 0;
    for (unsigned i = 0; i < there.count; i++)
        if (there.all[i].profile == profile.number)
            found[(*count)++] = name_it(GPU_INSTANCE, named.gpu, there.all[i].id, 0);
    return leave(SUCCESS);
}

EXPORT int nvmlDeviceGetGpuInstanceById(handle device, unsigned id, handle *found) {
    ENTER();
    struct named named;
    RESOLVE(device, named, DEVICE);
    if (value_of("gpu.%u.gi.%u", named.gpu, id) == NULL) return leave(NOT_FOUND);
    *found = name_it(GPU_INSTANCE, named.gpu, id, 0);
    return leave(SUCCESS);
}

struct instance_info { handle device; unsigned id, profile_id; struct placement placement; };
EXPORT int nvmlGpuInstanceGetInfo(handle instance, struct instance_info *info) {
    ENTER();
    struct named named;
    struct profile profile;
    unsigned number, start;
    RESOLVE(instance, named, GPU_INSTANCE);
    const char *value = value_of("gpu.%u.gi.%u", named.gpu, named.gi);
    if (value == NULL || sscanf(value, "%u %u", &number, &start) != 2 || !read_profile(named.gpu, number, &profile))
        return leave(NOT_FOUND);
    *info = (struct instance_info){name_it(DEVICE, named.gpu, 0, 0), named.gi, profile.id,
                                   {start, profile.memory_slices}};
    return leave(SUCCESS);
}

/* ---- compute instances ---- */

static const unsigned SLICES_OF[] = {1, 2, 3, 4, 7, 8, 6}; /* By the profile's enumerator, which is its id too. */

static bool slices_of_instance(const struct named *named, unsigned *slices) {
    unsigned number;
    struct profile profile;
    const char *value = value_of("gpu.%u.gi.%u", named->gpu, named->gi);
    if (value == NULL || sscanf(value, "%u", &number) != 1 || !read_profile(named->gpu, number, &profile)) return false;
    *slices = profile.slices;
    return true;
}

static unsigned slices_taken(const struct named *named) {
    struct computes computes = computes_of(named->gpu);
    unsigned taken = 0;
    for (unsigned i = 0; i < computes.count; i++)
        if (computes.all[i].gi == named->gi) taken += computes.all[i].slices;
    return taken;
}

struct compute_profile_info { unsigned id, slices, capacity, multiprocessors, copy, decoder, encoder, jpeg, ofa; };
EXPORT int nvmlGpuInstanceGetComputeInstanceProfileInfo(handle instance, unsigned number, unsigned engine,
                                                        struct compute_profile_info *info) {
    ENTER();
    struct named named;
    unsigned slices;
    RESOLVE(instance, named, GPU_INSTANCE);
    if (engine != 0 || number > 8) return leave(INVALID_ARGUMENT);
    if (!slices_of_instance(&named, &slices)) return leave(NOT_FOUND);
    if (number > 6 || SLICES_OF[number] > slices) return leave(NOT_SUPPORTED);
    *info = (struct compute_profile_info){.id = number, .slices = SLICES_OF[number],
                                          .capacity = slices / SLICES_OF[number]};
    return leave(SUCCESS);
}

/* As NVIDIA's, the UUID is the same whenever the same place is cut in the same way. */
static void name_compute(char *value, size_t length, const struct named *named, unsigned ci, unsigned slices) {
    unsigned long long hash = 14695981039346656037ull;
    for (const char *at = value_of("gpu.%u.uuid", named->gpu); at != NULL && *at != '\0'; at++)
        hash = (hash ^ (unsigned char)*at) * 1099511628211ull;
    hash = (hash ^ named->gi) * 1099511628211ull;
    hash = (hash ^ slices) * 1099511628211ull;
    snprintf(value, length, "%u MIG-%08x-%04x-5%03x-8%03x-%08x%04x", slices, (unsigned)hash, (unsigned)(hash >> 32) & 0xffff,
             (unsigned)(hash >> 48) & 0xfff, named->gi, (unsigned)(hash >> 16), ci);
}

EXPORT int nvmlGpuInstanceCreateComputeInstance(handle instance, unsigned profile_id, handle *made) {
    ENTER();
    struct named named;
    unsigned slices;
    char value[128];
    RESOLVE(instance, named, GPU_INSTANCE);
    if (profile_id > 6) return leave(INVALID_ARGUMENT);
    if (!begin_change()) return leave(NO_PERMISSION);
    int result = slices_of_instance(&named, &slices) ? SUCCESS : NOT_FOUND;
    if (result == SUCCESS && slices_taken(&named) + SLICES_OF[profile_id] > slices) result = INSUFFICIENT_RESOURCES;
    if (result == SUCCESS) {
        unsigned ci = 0;
        while (value_of("gpu.%u.ci.%u.%u", named.gpu, named.gi, ci) != NULL) ci++;
        name_compute(value, sizeof value, &named, ci, SLICES_OF[profile_id]);
        put(value, "gpu.%u.ci.%u.%u", named.gpu, named.gi, ci);
        *made = name_it(COMPUTE_INSTANCE, named.gpu, named.gi, ci);
        commit_change();
    }
    end_change();
    return leave(result);
}

EXPORT int nvmlComputeInstanceDestroy(handle compute) {
    ENTER();
    struct named named;
    RESOLVE(compute, named, COMPUTE_INSTANCE);
    if (!begin_change()) return leave(NO_PERMISSION);
    int result = value_of("gpu.%u.ci.%u.%u", named.gpu, named.gi, named.ci) == NULL ? NOT_FOUND : SUCCESS;
    if (has_value(value_of("gpu.%u.busy.%u", named.gpu, named.gi))) result = IN_USE;
    if (result == SUCCESS) {
        take_away("gpu.%u.ci.%u.%u", named.gpu, named.gi, named.ci);
        commit_change();
    }
    end_change();
    return leave(result);
}

EXPORT int nvmlGpuInstanceGetComputeInstances(handle instance, unsigned profile_id, handle *found, unsigned *count) {
    ENTER();
    struct named named;
    RESOLVE(instance, named, GPU_INSTANCE);
    if (profile_id > 6) return leave(INVALID_ARGUMENT);
    struct computes computes = computes_of(named.gpu);
    *count = 0;
    for (unsigned i = 0; i < computes.count; i++)
        if (computes.all[i].gi == named.gi && computes.all[i].slices == SLICES_OF[profile_id])
            found[(*count)++] = name_it(COMPUTE_INSTANCE, named.gpu, named.gi, computes.all[i].id);
    return leave(SUCCESS);
}

EXPORT int nvmlGpuInstanceGetComputeInstanceById(handle instance, unsigned id, handle *found) {
    ENTER();
    struct named named;
    RESOLVE(instance, named, GPU_INSTANCE);
    if (value_of("gpu.%u.ci.%u.%u", named.gpu, named.gi, id) == NULL) return leave(NOT_FOUND);
    *found = name_it(COMPUTE_INSTANCE, named.gpu, named.gi, id);
    return leave(SUCCESS);
}

/* ---- MIG devices: compute instances, as the rest of NVML sees them ---- */

EXPORT int nvmlDeviceGetMaxMigDeviceCount(handle device, unsigned *most) {
    ENTER();
    struct named named;
    RESOLVE(device, named, DEVICE);
    *most = value_of("gpu.%u.mig.current", named.gpu) == NULL ? 0 : COMPUTE_SLICES;
    return leave(SUCCESS);
}

EXPORT int nvmlDeviceGetMigDeviceHandleByIndex(handle device, unsigned index, handle *found) {
    ENTER();
    struct named named;
    RESOLVE(device, named, DEVICE);
    if (!flag(named.gpu, "mig.current")) return leave(NOT_SUPPORTED);
    if (index >= COMPUTE_SLICES) return leave(INVALID_ARGUMENT);
    struct computes computes = computes_of(named.gpu);
    if (index >= computes.count) return leave(NOT_FOUND);
    *found = name_it(MIG_DEVICE, named.gpu, computes.all[index].gi, computes.all[index].id);
    return leave(SUCCESS);
}

EXPORT int nvmlDeviceGetGpuInstanceId(handle device, unsigned *id) {
    ENTER();
    struct named named;
    RESOLVE(device, named, MIG_DEVICE);
    *id = named.gi;
    return leave(SUCCESS);
}

EXPORT int nvmlDeviceGetComputeInstanceId(handle device, unsigned *id) {
    ENTER();
    struct named named;
    RESOLVE(device, named, MIG_DEVICE);
    *id = named.ci;
    return leave(SUCCESS);
}

struct attributes {
    unsigned multiprocessors, copy, decoder, encoder, jpeg, ofa, gi_slices, ci_slices;
    unsigned long long memory_mib;
};
EXPORT int nvmlDeviceGetAttributes_v2(handle device, struct attributes *attributes) {
    ENTER();
    struct named named;
    RESOLVE(device, named, MIG_DEVICE);
    const char *value = value_of("gpu.%u.ci.%u.%u", named.gpu, named.gi, named.ci);
    memset(attributes, 0, sizeof *attributes);
    if (value == NULL || !slices_of_instance(&named, &attributes->gi_slices)) return leave(NOT_FOUND);
    attributes->ci_slices = (unsigned)atoi(value);
    return leave(SUCCESS);
}
#endif
