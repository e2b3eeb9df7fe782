/* Logs, in the order of completion, what a process does to the files below a folder.

   Loaded with LD_PRELOAD; silent until recorder_start(folder, log). Every call is made and logged
   under one lock. A record is the struct below, two paths and data. What the C library writes by
   itself (stdio, mappings) is logged as the whole content of the file when it is flushed, synced or
   closed; `model.py` makes writes of the difference. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))real(#name))
#define EXPORT __attribute__((visibility("default")))

struct record {
    char op;
    int64_t number;
    uint32_t path, other;
    uint64_t data;
} __attribute__((packed));

struct mapping {
    char *start;
    size_t size;
    int fd;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char root[PATH_MAX];
static size_t root_length;
static int logged = -1;
static struct mapping mappings[1024];

static void *real(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    if (!found) {
        dprintf(2, "recorder: the C library has no %s\n", name);
        abort();
    }
    return found;
}

static void put(const void *data, size_t size)
{
    while (size) {
        ssize_t done = syscall(SYS_write, logged, data, size);
        if (done < 0)
            abort();
        data = (const char *)data + done;
        size -= done;
    }
}

static void note(char op, const char *path, const char *other, int64_t number, const void *data,
                 size_t size)
{
    struct record record = {op, number, strlen(path), strlen(other), size};
    put(&record, sizeof record);
    put(path, record.path);
    put(other, record.other);
    put(data, size);
}

static int inside(const char *path)
{
    return logged >= 0 && !strncmp(path, root, root_length) &&
           (path[root_length] == '/' || !path[root_length]);
}

/* Path of a descriptor; empty when it is of no file of ours, or of one that is deleted. */
static const char *path_of(int fd, char *path)
{
    char name[64];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t size = logged < 0 ? -1 : readlink(name, path, PATH_MAX - 1);
    path[size < 0 ? 0 : size] = 0;
    const char *deleted = " (deleted)";
    if (!inside(path) ||
        (size > 10 && !strcmp(path + size - strlen(deleted), deleted)))
        path[0] = 0;
    return path;
}

/* Absolute path of a name that need not exist: the folder resolved, the last part as it is. */
static const char *resolve(int folder, const char *name, char *path)
{
    char given[2 * PATH_MAX], base[PATH_MAX];
    path[0] = 0;
    if (logged < 0)
        return path;
    if (name[0] == '/')
        snprintf(given, sizeof given, "%s", name);
    else {
        if (folder == AT_FDCWD) {
            if (!getcwd(base, sizeof base))
                return path;
        } else {
            char link[64];
            snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
            ssize_t size = readlink(link, base, sizeof base - 1);
            base[size < 0 ? 0 : size] = 0;
        }
        snprintf(given, sizeof given, "%s/%s", base, name);
    }
    size_t size = strlen(given);
    while (size > 1 && given[size - 1] == '/')
        given[--size] = 0;
    char *last = strrchr(given, '/');
    if (!last)
        return path;
    *last = 0;
    if (!realpath(*given ? given : "/", base))
        return path;
    if (snprintf(path, PATH_MAX, "%s/%s", strcmp(base, "/") ? base : "", last + 1) >= PATH_MAX)
        path[0] = 0;
    if (!inside(path))
        path[0] = 0;
    return path;
}

static int is_writable(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && (flags & O_ACCMODE) != O_RDONLY;
}

/* Log what a file holds. */
static void note_content(const char *path)
{
    struct stat found;
    int fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY);
    if (fd < 0)
        return;
    if (!fstat(fd, &found) && S_ISREG(found.st_mode)) {
        char *data = malloc(found.st_size + 1);
        ssize_t size = data ? pread(fd, data, found.st_size, 0) : -1;
        if (size != found.st_size)
            abort();
        note('S', path, "", 0, data, size);
        free(data);
    }
    syscall(SYS_close, fd);
}

EXPORT void recorder_start(const char *folder, const char *file)
{
    pthread_mutex_lock(&lock);
    if (!realpath(folder, root))
        abort();
    root_length = strlen(root);
    logged = syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    note('0', root, "", 0, "", 0);
    pthread_mutex_unlock(&lock);
}

EXPORT void recorder_stop(void)
{
    pthread_mutex_lock(&lock);
    syscall(SYS_close, logged);
    logged = -1;
    pthread_mutex_unlock(&lock);
}

#define BEGIN                                                                                      \
    char path[PATH_MAX], other[PATH_MAX];                                                          \
    (void)path, (void)other;                                                                       \
    pthread_mutex_lock(&lock)
#define END                                                                                        \
    int saved = errno;                                                                             \
    pthread_mutex_unlock(&lock);                                                                   \
    errno = saved;                                                                                 \
    return result

/* -- opening ------------------------------------------------------------------------------- */

static int64_t size_before(const char *path)
{
    struct stat found;
    return *path && !stat(path, &found) ? found.st_size : -1;
}

static void note_open(int fd, int flags, int64_t before)
{
    char path[PATH_MAX];
    if (fd < 0 || !*path_of(fd, path))
        return;
    struct stat found;
    if (fstat(fd, &found) || !S_ISREG(found.st_mode))
        return;
    if (flags & O_TMPFILE & ~O_DIRECTORY)
        note('?', path, "O_TMPFILE", 0, "", 0);
    if (before < 0)
        note('C', path, "", 0, "", 0);
    else if (flags & O_TRUNC && before > 0)
        note('T', path, "", 0, "", 0);
}

#define OPEN_BODY(folder, call)                                                                    \
    int mode = 0;                                                                                  \
    if (flags & (O_CREAT | (O_TMPFILE & ~O_DIRECTORY))) {                                          \
        va_list more;                                                                              \
        va_start(more, flags);                                                                     \
        mode = va_arg(more, int);                                                                  \
        va_end(more);                                                                              \
    }                                                                                              \
    if (!(flags & (O_CREAT | O_TRUNC)))                                                            \
        return call;                                                                               \
    BEGIN;                                                                                         \
    int64_t before = size_before(resolve(folder, name, path));                                     \
    int result = call;                                                                             \
    note_open(result, flags, before);                                                              \
    END

EXPORT int open(const char *name, int flags, ...)
{
    OPEN_BODY(AT_FDCWD, REAL(open)(name, flags, mode));
}
EXPORT int open64(const char *name, int flags, ...)
{
    OPEN_BODY(AT_FDCWD, REAL(open64)(name, flags, mode));
}
EXPORT int openat(int folder, const char *name, int flags, ...)
{
    OPEN_BODY(folder, REAL(openat)(folder, name, flags, mode));
}
EXPORT int openat64(int folder, const char *name, int flags, ...)
{
    OPEN_BODY(folder, REAL(openat64)(folder, name, flags, mode));
}
EXPORT int creat(const char *name, mode_t mode)
{
    return open(name, O_CREAT | O_WRONLY | O_TRUNC, mode);
}
EXPORT int creat64(const char *name, mode_t mode)
{
    return open(name, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

#define FOPEN(function)                                                                            \
    EXPORT FILE *function(const char *name, const char *mode)                                      \
    {                                                                                              \
        if (!strpbrk(mode, "wa"))                                                                  \
            return REAL(function)(name, mode);                                                     \
        BEGIN;                                                                                     \
        int64_t before = size_before(resolve(AT_FDCWD, name, path));                               \
        FILE *result = REAL(function)(name, mode);                                                 \
        if (result)                                                                                \
            note_open(fileno(result), strchr(mode, 'w') ? O_TRUNC : 0, before);                    \
        END;                                                                                       \
    }
FOPEN(fopen)
FOPEN(fopen64)

#define MKSTEMP(function, parameters, arguments)                                                   \
    EXPORT int function parameters                                                                 \
    {                                                                                              \
        BEGIN;                                                                                     \
        int result = REAL(function) arguments;                                                     \
        note_open(result, 0, -1);                                                                  \
        END;                                                                                       \
    }
MKSTEMP(mkstemp, (char *name), (name))
MKSTEMP(mkstemp64, (char *name), (name))
MKSTEMP(mkostemp, (char *name, int flags), (name, flags))
MKSTEMP(mkostemp64, (char *name, int flags), (name, flags))

/* -- data ---------------------------------------------------------------------------------- */

static void note_write(int fd, const char *path, int64_t offset, const struct iovec *parts,
                       int count, ssize_t size)
{
    if (size <= 0 || !*path)
        return;
    if (offset < 0)
        offset = lseek(fd, 0, SEEK_CUR) - size;
    struct record record = {'W', offset, strlen(path), 0, size};
    put(&record, sizeof record);
    put(path, record.path);
    for (int k = 0; k < count && size > 0; k++) {
        size_t part = parts[k].iov_len < (size_t)size ? parts[k].iov_len : (size_t)size;
        put(parts[k].iov_base, part);
        size -= part;
    }
}

#define WRITE(function, parameters, arguments, offset, parts, count)                               \
    EXPORT ssize_t function parameters                                                             \
    {                                                                                              \
        if (logged < 0)                                                                            \
            return REAL(function) arguments;                                                       \
        BEGIN;                                                                                     \
        ssize_t result = REAL(function) arguments;                                                 \
        saved_errno = errno;                                                                       \
        note_write(fd, path_of(fd, path), offset, parts, count, result);                           \
        errno = saved_errno;                                                                       \
        END;                                                                                       \
    }
static __thread int saved_errno;
#define ONE (&(struct iovec){(void *)data, size})
WRITE(write, (int fd, const void *data, size_t size), (fd, data, size), -1, ONE, 1)
WRITE(pwrite, (int fd, const void *data, size_t size, off_t at), (fd, data, size, at), at, ONE, 1)
WRITE(pwrite64, (int fd, const void *data, size_t size, off64_t at), (fd, data, size, at), at, ONE,
      1)
WRITE(writev, (int fd, const struct iovec *parts, int count), (fd, parts, count), -1, parts, count)
WRITE(pwritev, (int fd, const struct iovec *parts, int count, off_t at), (fd, parts, count, at), at,
      parts, count)
WRITE(pwritev64, (int fd, const struct iovec *parts, int count, off64_t at),
      (fd, parts, count, at), at, parts, count)
WRITE(pwritev2, (int fd, const struct iovec *parts, int count, off_t at, int flags),
      (fd, parts, count, at, flags), at, parts, count)
WRITE(pwritev64v2, (int fd, const struct iovec *parts, int count, off64_t at, int flags),
      (fd, parts, count, at, flags), at, parts, count)

/* What moves data otherwise: the content after it. */
#define MOVE(type, function, parameters, arguments, fd)                                            \
    EXPORT type function parameters                                                                \
    {                                                                                              \
        if (logged < 0)                                                                            \
            return REAL(function) arguments;                                                       \
        BEGIN;                                                                                     \
        type result = REAL(function) arguments;                                                    \
        if (result >= 0 && *path_of(fd, path))                                                     \
            note_content(path);                                                                    \
        END;                                                                                       \
    }
MOVE(ssize_t, sendfile, (int to, int from, off_t *at, size_t size), (to, from, at, size), to)
MOVE(ssize_t, sendfile64, (int to, int from, off64_t *at, size_t size), (to, from, at, size), to)
MOVE(ssize_t, copy_file_range,
     (int from, off64_t *a, int to, off64_t *b, size_t size, unsigned flags),
     (from, a, to, b, size, flags), to)
MOVE(int, fallocate, (int fd, int mode, off_t at, off_t size), (fd, mode, at, size), fd)
MOVE(int, fallocate64, (int fd, int mode, off64_t at, off64_t size), (fd, mode, at, size), fd)
MOVE(int, posix_fallocate, (int fd, off_t at, off_t size), (fd, at, size), fd)
MOVE(int, posix_fallocate64, (int fd, off64_t at, off64_t size), (fd, at, size), fd)

#define FTRUNCATE(function, kind)                                                                  \
    EXPORT int function(int fd, kind size)                                                         \
    {                                                                                              \
        BEGIN;                                                                                     \
        int result = REAL(function)(fd, size);                                                     \
        if (!result && *path_of(fd, path))                                                         \
            note('T', path, "", size, "", 0);                                                      \
        END;                                                                                       \
    }
FTRUNCATE(ftruncate, off_t)
FTRUNCATE(ftruncate64, off64_t)

#define TRUNCATE(function, kind)                                                                   \
    EXPORT int function(const char *name, kind size)                                               \
    {                                                                                              \
        BEGIN;                                                                                     \
        int result = REAL(function)(name, size);                                                   \
        if (!result && *resolve(AT_FDCWD, name, path))                                             \
            note('T', path, "", size, "", 0);                                                      \
        END;                                                                                       \
    }
TRUNCATE(truncate, off_t)
TRUNCATE(truncate64, off64_t)

/* -- mappings ------------------------------------------------------------------------------ */

static void note_mapping(void *start, size_t size, int how, int flags, int fd)
{
    char path[PATH_MAX];
    int shared = (flags & MAP_TYPE) == MAP_SHARED || (flags & MAP_TYPE) == MAP_SHARED_VALIDATE;
    if (start == MAP_FAILED || !shared || !(how & PROT_WRITE) || fd < 0 || !*path_of(fd, path))
        return;
    for (size_t k = 0; k < sizeof mappings / sizeof *mappings; k++)
        if (!mappings[k].start) {
            mappings[k] = (struct mapping){start, size, fcntl(fd, F_DUPFD_CLOEXEC, 3)};
            return;
        }
    note('?', path, "too many writable mappings", 0, "", 0);
}

#define MMAP(function, kind)                                                                       \
    EXPORT void *function(void *start, size_t size, int how, int flags, int fd, kind at)           \
    {                                                                                              \
        if (logged < 0 || flags & MAP_ANONYMOUS)                                                   \
            return REAL(function)(start, size, how, flags, fd, at);                                \
        BEGIN;                                                                                     \
        void *result = REAL(function)(start, size, how, flags, fd, at);                            \
        note_mapping(result, size, how, flags, fd);                                                \
        END;                                                                                       \
    }
MMAP(mmap, off_t)
MMAP(mmap64, off64_t)

static struct mapping *mapping_at(const void *start)
{
    for (size_t k = 0; k < sizeof mappings / sizeof *mappings; k++) {
        struct mapping *m = &mappings[k];
        if (m->start && (char *)start >= m->start && (char *)start < m->start + m->size)
            return m;
    }
    return NULL;
}

EXPORT int msync(void *start, size_t size, int flags)
{
    BEGIN;
    int result = REAL(msync)(start, size, flags);
    struct mapping *m = mapping_at(start);
    if (!result && m && *path_of(m->fd, path)) {
        note_content(path);
        if (flags & MS_SYNC)
            note('F', path, "", 0, "", 0);
    }
    END;
}

EXPORT int munmap(void *start, size_t size)
{
    if (logged < 0)
        return REAL(munmap)(start, size);
    BEGIN;
    struct mapping *m = mapping_at(start);
    if (m) {
        if (*path_of(m->fd, path))
            note_content(path);
        syscall(SYS_close, m->fd);
        m->start = NULL;
    }
    int result = REAL(munmap)(start, size);
    END;
}

/* -- names --------------------------------------------------------------------------------- */

#define ON_NAME(type, function, parameters, arguments, op, folder, name)                           \
    EXPORT type function parameters                                                                \
    {                                                                                              \
        BEGIN;                                                                                     \
        resolve(folder, name, path);                                                               \
        type result = REAL(function) arguments;                                                    \
        if (!result && *path)                                                                      \
            note(op, path, "", 0, "", 0);                                                          \
        END;                                                                                       \
    }
ON_NAME(int, unlink, (const char *name), (name), 'U', AT_FDCWD, name)
ON_NAME(int, unlinkat, (int folder, const char *name, int flags), (folder, name, flags), 'U', folder,
        name)
ON_NAME(int, rmdir, (const char *name), (name), 'U', AT_FDCWD, name)
ON_NAME(int, remove, (const char *name), (name), 'U', AT_FDCWD, name)
ON_NAME(int, mkdir, (const char *name, mode_t mode), (name, mode), 'M', AT_FDCWD, name)
ON_NAME(int, mkdirat, (int folder, const char *name, mode_t mode), (folder, name, mode), 'M', folder,
        name)
ON_NAME(int, symlink, (const char *to, const char *name), (to, name), '?', AT_FDCWD, name)
ON_NAME(int, symlinkat, (const char *to, int folder, const char *name), (to, folder, name), '?',
        folder, name)

#define ON_NAMES(function, parameters, arguments, op, from, a, to, b)                              \
    EXPORT int function parameters                                                                 \
    {                                                                                              \
        BEGIN;                                                                                     \
        resolve(from, a, path);                                                                    \
        resolve(to, b, other);                                                                     \
        int result = REAL(function) arguments;                                                     \
        if (!result && (*path || *other))                                                          \
            note(*path && *other ? op : '?', path, other, 0, "", 0);                               \
        END;                                                                                       \
    }
ON_NAMES(rename, (const char *a, const char *b), (a, b), 'R', AT_FDCWD, a, AT_FDCWD, b)
ON_NAMES(renameat, (int from, const char *a, int to, const char *b), (from, a, to, b), 'R', from, a,
         to, b)
ON_NAMES(renameat2, (int from, const char *a, int to, const char *b, unsigned flags),
         (from, a, to, b, flags), flags & RENAME_EXCHANGE ? 'X' : 'R', from, a, to, b)
ON_NAMES(link, (const char *a, const char *b), (a, b), 'L', AT_FDCWD, a, AT_FDCWD, b)
ON_NAMES(linkat, (int from, const char *a, int to, const char *b, int flags),
         (from, a, to, b, flags), 'L', from, a, to, b)

/* -- syncing and closing ------------------------------------------------------------------- */

#define SYNC(function)                                                                             \
    EXPORT int function(int fd)                                                                    \
    {                                                                                              \
        BEGIN;                                                                                     \
        int result = REAL(function)(fd);                                                           \
        if (!result && *path_of(fd, path)) {                                                       \
            note_content(path);                                                                    \
            note('F', path, "", 0, "", 0);                                                         \
        }                                                                                          \
        END;                                                                                       \
    }
SYNC(fsync)
SYNC(fdatasync)

EXPORT int syncfs(int fd)
{
    BEGIN;
    int result = REAL(syncfs)(fd);
    if (!result && logged >= 0)
        note('Y', root, "", 0, "", 0);
    END;
}

EXPORT void sync(void)
{
    pthread_mutex_lock(&lock);
    REAL(sync)();
    if (logged >= 0)
        note('Y', root, "", 0, "", 0);
    pthread_mutex_unlock(&lock);
}

EXPORT int close(int fd)
{
    if (logged < 0)
        return REAL(close)(fd);
    BEGIN;
    if (is_writable(fd) && *path_of(fd, path))
        note_content(path);
    int result = REAL(close)(fd);
    END;
}

EXPORT int fflush(FILE *file)
{
    if (logged < 0 || !file)
        return REAL(fflush)(file);
    BEGIN;
    int result = REAL(fflush)(file);
    if (!result && is_writable(fileno(file)) && *path_of(fileno(file), path))
        note_content(path);
    END;
}

EXPORT int fclose(FILE *file)
{
    if (logged < 0)
        return REAL(fclose)(file);
    BEGIN;
    path[0] = 0;
    if (is_writable(fileno(file)))
        path_of(fileno(file), path);
    int result = REAL(fclose)(file);
    if (*path)
        note_content(path);
    END;
}
