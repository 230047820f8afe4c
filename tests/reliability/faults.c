// Makes the n-th call that changes files in one folder fail, as a broken, full or read-only disk would.
//
// A process that is started with this in LD_PRELOAD calls the C library's write, fsync, rename, mkdir, open, ... through
// the functions below. They count the calls that concern a file in the folder that faults_arm names, write a line about
// each into a log, and let the chosen one fail without asking the system. Every other call is passed on as it is.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static char folder[PATH_MAX]; // without a slash at its end; empty until faults_arm
static long first, last;      // the calls that fail, counted from 1
static int error_number;
static int log_descriptor = -1;
static atomic_long count;

// Lets calls from `from` to `to` in the folder fail with `error`. An absolute path without links is expected.
void faults_arm(const char *path, long from, long to, int error, const char *log) {
    log_descriptor = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666);
    first = from, last = to, error_number = error;
    atomic_store(&count, 0);
    snprintf(folder, sizeof folder, "%s", path);
}

// Counts a call on an absolute path. Returns whether it must fail, with errno set.
static int fails(const char *kind, const char *path) {
    size_t length = strlen(folder);
    if (length == 0 || strncmp(path, folder, length) != 0 || (path[length] != '/' && path[length] != 0))
        return 0;
    long n = atomic_fetch_add(&count, 1) + 1;
    int failed = first <= n && n <= last;
    char line[PATH_MAX + 64];
    int size = snprintf(line, sizeof line, "%ld %s %d %s\n", n, kind, failed, path + length);
    syscall(SYS_write, log_descriptor, line, size < (int)sizeof line ? size : (int)sizeof line - 1);
    if (failed)
        errno = error_number;
    return failed;
}

static int fails_at(const char *kind, int directory, const char *path) {
    char whole[2 * PATH_MAX];
    if (folder[0] == 0 || path == NULL)
        return 0;
    if (path[0] == '/') {
        snprintf(whole, sizeof whole, "%s", path);
    } else {
        char link[64], base[PATH_MAX];
        if (directory == AT_FDCWD)
            snprintf(link, sizeof link, "/proc/self/cwd");
        else
            snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
        ssize_t length = readlink(link, base, sizeof base - 1);
        if (length < 0)
            return 0;
        base[length] = 0;
        snprintf(whole, sizeof whole, "%s/%s", base, path);
    }
    return fails(kind, whole);
}

static int fails_open(const char *kind, int descriptor) {
    char link[64], path[PATH_MAX];
    if (folder[0] == 0 || descriptor <= 2)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    return fails(kind, path);
}

// DEFINE(result, name, (parameters), (arguments), condition): the function `name`, which fails where the condition holds.
#define DEFINE(result, name, parameters, arguments, condition)                                                         \
    result name parameters {                                                                                           \
        static result(*real) parameters;                                                                               \
        if (!real)                                                                                                     \
            real = (result(*) parameters)dlsym(RTLD_NEXT, #name);                                                      \
        if (condition)                                                                                                 \
            return -1;                                                                                                 \
        return real arguments;                                                                                         \
    }

#define ON_DESCRIPTOR(result, name, kind, parameters, arguments)                                                       \
    DEFINE(result, name, parameters, arguments, fails_open(kind, fd))

ON_DESCRIPTOR(ssize_t, write, "write", (int fd, const void *data, size_t size), (fd, data, size))
ON_DESCRIPTOR(ssize_t, pwrite, "write", (int fd, const void *data, size_t size, off_t at), (fd, data, size, at))
ON_DESCRIPTOR(ssize_t, pwrite64, "write", (int fd, const void *data, size_t size, off64_t at), (fd, data, size, at))
ON_DESCRIPTOR(ssize_t, writev, "write", (int fd, const struct iovec *parts, int number), (fd, parts, number))
ON_DESCRIPTOR(ssize_t, pwritev, "write", (int fd, const struct iovec *parts, int number, off_t at),
              (fd, parts, number, at))
ON_DESCRIPTOR(ssize_t, pwritev64, "write", (int fd, const struct iovec *parts, int number, off64_t at),
              (fd, parts, number, at))
ON_DESCRIPTOR(int, fsync, "sync", (int fd), (fd))
ON_DESCRIPTOR(int, fdatasync, "sync", (int fd), (fd))
ON_DESCRIPTOR(int, ftruncate, "truncate", (int fd, off_t size), (fd, size))
ON_DESCRIPTOR(int, ftruncate64, "truncate", (int fd, off64_t size), (fd, size))
ON_DESCRIPTOR(int, fallocate, "truncate", (int fd, int mode, off_t at, off_t size), (fd, mode, at, size))

#define ON_PATH(name, kind, directory, path, parameters, arguments)                                                    \
    DEFINE(int, name, parameters, arguments, fails_at(kind, directory, path))

ON_PATH(rename, "rename", AT_FDCWD, to, (const char *from, const char *to), (from, to))
ON_PATH(renameat, "rename", there, to, (int here, const char *from, int there, const char *to), (here, from, there, to))
ON_PATH(renameat2, "rename", there, to, (int here, const char *from, int there, const char *to, unsigned flags),
        (here, from, there, to, flags))
ON_PATH(link, "link", AT_FDCWD, to, (const char *from, const char *to), (from, to))
ON_PATH(linkat, "link", there, to, (int here, const char *from, int there, const char *to, int flags),
        (here, from, there, to, flags))
ON_PATH(symlink, "link", AT_FDCWD, to, (const char *from, const char *to), (from, to))
ON_PATH(mkdir, "mkdir", AT_FDCWD, path, (const char *path, mode_t mode), (path, mode))
ON_PATH(mkdirat, "mkdir", here, path, (int here, const char *path, mode_t mode), (here, path, mode))
ON_PATH(unlink, "remove", AT_FDCWD, path, (const char *path), (path))
ON_PATH(unlinkat, "remove", here, path, (int here, const char *path, int flags), (here, path, flags))
ON_PATH(rmdir, "remove", AT_FDCWD, path, (const char *path), (path))

// A file that is opened to read it is no change: it is counted only where the flags ask for more.
#define OPEN(name, directory, parameters, arguments)                                                                   \
    int name parameters {                                                                                              \
        static int(*real)(AT_##name int flags, ...);                                                       \
        if (!real)                                                                                                     \
            real = dlsym(RTLD_NEXT, #name);                                                                            \
        mode_t mode = 0;                                                                                               \
        if (flags & (O_CREAT | O_TMPFILE)) {                                                                           \
            va_list more;                                                                                              \
            va_start(more, flags);                                                                                     \
            mode = va_arg(more, mode_t);                                                                               \
            va_end(more);                                                                                              \
        }                                                                                                              \
        if ((flags & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)) && fails_at("open", directory, path))                    \
            return -1;                                                                                                 \
        return real arguments;                                                                                         \
    }
#define AT_open const char *,
#define AT_open64 const char *,
#define AT_openat int, const char *,
#define AT_openat64 int, const char *,

OPEN(open, AT_FDCWD, (const char *path, int flags, ...), (path, flags, mode))
OPEN(open64, AT_FDCWD, (const char *path, int flags, ...), (path, flags, mode))
OPEN(openat, here, (int here, const char *path, int flags, ...), (here, path, flags, mode))
OPEN(openat64, here, (int here, const char *path, int flags, ...), (here, path, flags, mode))
