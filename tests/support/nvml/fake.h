/* A library that speaks NVML's ABI without a GPU: what its parts share. See nvml.c. */
#ifndef FAKE_NVML_H
#define FAKE_NVML_H

#include <stdbool.h>
#include <stdint.h>

/* Error codes, as in nvml.h. */
enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, TIMED_OUT = 10, GPU_IS_LOST = 15, RESET_REQUIRED = 16,
    IN_USE = 19, INSUFFICIENT_RESOURCES = 23, VERSION_MISMATCH = 25, UNKNOWN = 999,
};

#define MAX_GPUS 64
#define EXPORT __attribute__((visibility("default")))

/* Handles are numbers that carry what they name, so that none needs to be freed, and a handle of a driver that
 * was restarted is known by its generation. */
typedef struct opaque *handle;
enum kind { NOTHING, DEVICE, MIG_DEVICE, GPU_INSTANCE, COMPUTE_INSTANCE };
struct named { enum kind kind; unsigned generation, gpu, gi, ci; };

handle name_it(enum kind kind, unsigned gpu, unsigned gi, unsigned ci);
/* Say what a handle names; UNKNOWN for one of an older driver, GPU_IS_LOST where its GPU is gone. */
int resolve(handle given, struct named *named);

/* state.c: keys and values, one in a line of the file, read again when the file changed. */
const char *state_path(void);
bool load(void);
const char *value_of(const char *format, ...) __attribute__((format(printf, 1, 2)));
bool number_of(long long *number, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Call `visit` with the rest of each key that begins with the prefix, and its value; stop when it says false. */
void each(const char *prefix, bool (*visit)(const char *rest, const char *value, void *context), void *context);
/* Between these the file is locked against other processes, and read again. `commit` writes it. */
bool begin_change(void);
void commit_change(void);
void end_change(void);
void put(const char *value, const char *format, ...) __attribute__((format(printf, 2, 3)));
void take_away(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* nvml.c: every exported function begins with `enter`, which is true while the lock is held, and ends with
 * `leave`, so that orders to hang, fail or kill hold for each of them. */
/* How often this process has NVML open. */
unsigned sessions(void);
int enter(const char *function);
int leave(int result);
#define ENTER() do { int entered = enter(__func__); if (entered != SUCCESS) return entered; } while (0)
#define RESOLVE(given, named, wanted) do { \
    int resolved = resolve(given, &(named)); \
    if (resolved != SUCCESS) return leave(resolved); \
    if ((named).kind != (wanted)) return leave(INVALID_ARGUMENT); } while (0)

#endif
