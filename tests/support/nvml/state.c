/* The state file: lines of a key, a space and a value; `library.py` has the list of keys. It is replaced at
 * once by whoever changes it, holding a lock on `<file>.lock`, so that readers need no lock. */
#define _GNU_SOURCE
#include "fake.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

struct line { char *key, *value; };
static struct line *lines;
static size_t count, room;
static int opened = -1; /* The version that was read: while it is open its inode is not used again. */
static struct stat seen;
static int lock_file = -1;

const char *state_path(void) {
    static char beside[PATH_MAX + sizeof "/nvml.state"];
    const char *given = getenv("FAKE_NVML_STATE");
    if (given != NULL && *given != '\0') return given;
    Dl_info info;
    if (beside[0] == '\0' && dladdr((void *)state_path, &info) != 0) {
        char library[PATH_MAX];
        if (realpath(info.dli_fname, library) == NULL) snprintf(library, sizeof library, "%s", info.dli_fname);
        char *slash = strrchr(library, '/');
        if (slash != NULL) *slash = '\0';
        snprintf(beside, sizeof beside, "%s/nvml.state", library);
    }
    return beside;
}

static void forget_lines(void) {
    for (size_t i = 0; i < count; i++) free(lines[i].key);
    count = 0;
}

static void add_line(const char *key, const char *value) {
    if (count == room) {
        room = room == 0 ? 256 : room * 2;
        lines = realloc(lines, room * sizeof *lines);
    }
    size_t length = strlen(key);
    lines[count].key = malloc(length + strlen(value) + 2);
    lines[count].value = lines[count].key + length + 1;
    strcpy(lines[count].key, key);
    strcpy(lines[count].value, value);
    count++;
}

static void parse(char *text) {
    forget_lines();
    char *rest = text, *line;
    while ((line = strsep(&rest, "\n")) != NULL) {
        if (*line == '\0' || *line == '#') continue;
        char *space = strchr(line, ' ');
        if (space == NULL) { add_line(line, ""); continue; }
        *space = '\0';
        add_line(line, space + 1);
    }
}

static bool is_same(const struct stat *one, const struct stat *other) {
    return one->st_ino == other->st_ino && one->st_dev == other->st_dev && one->st_size == other->st_size
        && one->st_mtim.tv_sec == other->st_mtim.tv_sec && one->st_mtim.tv_nsec == other->st_mtim.tv_nsec;
}

bool load(void) {
    struct stat now;
    if (stat(state_path(), &now) != 0) return false;
    if (opened >= 0 && is_same(&now, &seen)) return true;
    int fd = open(state_path(), O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &now) != 0) { if (fd >= 0) close(fd); return false; }
    char *text = malloc((size_t)now.st_size + 1);
    ssize_t length = 0, got;
    while (length < now.st_size && (got = read(fd, text + length, (size_t)(now.st_size - length))) > 0) length += got;
    text[length] = '\0';
    parse(text);
    free(text);
    if (opened >= 0) close(opened);
    opened = fd;
    seen = now;
    return true;
}

#define KEY(format) \
    char key[256]; va_list arguments; va_start(arguments, format); \
    vsnprintf(key, sizeof key, format, arguments); va_end(arguments)

static struct line *find(const char *key) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(lines[i].key, key) == 0) return &lines[i];
    return NULL;
}

const char *value_of(const char *format, ...) {
    KEY(format);
    struct line *found = find(key);
    return found == NULL ? NULL : found->value;
}

bool number_of(long long *number, const char *format, ...) {
    KEY(format);
    struct line *found = find(key);
    if (found == NULL || *found->value == '\0') return false;
    *number = strtoll(found->value, NULL, 0);
    return true;
}

void each(const char *prefix, bool (*visit)(const char *, const char *, void *), void *context) {
    size_t length = strlen(prefix);
    for (size_t i = 0; i < count; i++)
        if (strncmp(lines[i].key, prefix, length) == 0
            && !visit(lines[i].key + length, lines[i].value, context)) return;
}

void take_away(const char *format, ...) {
    KEY(format);
    struct line *found = find(key);
    if (found == NULL) return;
    free(found->key);
    memmove(found, found + 1, (size_t)(lines + count - found - 1) * sizeof *found);
    count--;
}

void put(const char *value, const char *format, ...) {
    KEY(format);
    take_away("%s", key);
    add_line(key, value);
}

bool begin_change(void) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s.lock", state_path());
    lock_file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (lock_file < 0) return false;
    if (flock(lock_file, LOCK_EX) == 0 && load()) return true;
    end_change();
    return false;
}

void commit_change(void) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s.%d", state_path(), (int)getpid());
    FILE *file = fopen(path, "we");
    if (file == NULL) return;
    for (size_t i = 0; i < count; i++) fprintf(file, "%s %s\n", lines[i].key, lines[i].value);
    if (fclose(file) == 0) (void)!rename(path, state_path());
}

void end_change(void) {
    if (lock_file >= 0) close(lock_file);
    lock_file = -1;
}
