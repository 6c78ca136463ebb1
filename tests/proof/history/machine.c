/* A machine with faults, for a program that is started with LD_PRELOAD.
 *
 * FAULTS_CONTROLS names a file of four numbers that all its processes share: by how many microseconds the clock
 * is wrong, how long a flush and a write take, and whether flushes are ignored.
 * FAULTS_DISK is a mounted file system, and FAULTS_UNDO a directory elsewhere. There each file of the disk has
 * another, named by its inode, with all writes since it was last flushed: what they replaced and what they
 * wrote. Whoever ends the program can then take back what a power cut would have lost.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct controls {
    int64_t clock_us, flush_us, write_us, ignores_flush;
};

struct record {
    int64_t offset, length, old_length, old_size;
};

static const struct controls nothing;
static const volatile struct controls *controls = &nothing;
static char *undo;
static dev_t disk;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("FAULTS_CONTROLS"), *directory = getenv("FAULTS_UNDO");
    struct stat found;
    int handle = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (handle >= 0) {
        void *shared = mmap(NULL, sizeof nothing, PROT_READ, MAP_SHARED, handle, 0);
        close(handle);
        if (shared != MAP_FAILED)
            controls = shared;
    }
    path = getenv("FAULTS_DISK");
    if (directory && path && stat(path, &found) == 0 && asprintf(&undo, "%s", directory) >= 0)
        disk = found.st_dev;
}

/* The clock. */

int clock_gettime(clockid_t clock, struct timespec *at)
{
    int result = syscall(SYS_clock_gettime, clock, at);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t us = at->tv_sec * 1000000LL + at->tv_nsec / 1000 + controls->clock_us;
        at->tv_sec = us / 1000000;
        at->tv_nsec = us % 1000000 * 1000 + at->tv_nsec % 1000;
    }
    return result;
}

int gettimeofday(struct timeval *at, void *zone)
{
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at)
        *at = now.tv_sec;
    return now.tv_sec;
}

/* The disk. */

static void pause_us(int64_t us)
{
    struct timespec wait = {us / 1000000, us % 1000000 * 1000};
    if (us > 0)
        nanosleep(&wait, NULL);
}

/* Open the record of a file and lock it; -1 for what is no file of the disk. */
static int open_record(int handle, struct stat *file)
{
    char *path;
    int record;
    if (!undo || handle <= 2 || fstat(handle, file) != 0 || file->st_dev != disk || !S_ISREG(file->st_mode))
        return -1;
    if (asprintf(&path, "%s/%llu", undo, (unsigned long long)file->st_ino) < 0)
        return -1;
    record = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    free(path);
    if (record >= 0)
        while (flock(record, LOCK_EX) != 0 && errno == EINTR)
            ;
    return record;
}

/* Read what is about to be replaced, also where the program may only write. */
static int64_t read_old(int handle, char *old, int64_t length, int64_t offset)
{
    char path[64];
    int64_t found = syscall(SYS_pread64, handle, old, length, offset);
    if (found < 0) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", handle);
        int other = open(path, O_RDONLY | O_CLOEXEC);
        found = syscall(SYS_pread64, other, old, length, offset);
        close(other);
    }
    return found < 0 ? 0 : found;
}

static void keep(int record, int handle, int64_t size, int64_t offset, const struct iovec *parts, int count)
{
    struct record head = {offset, 0, 0, size};
    char *old;
    for (int i = 0; i < count; i++)
        head.length += parts[i].iov_len;
    old = malloc(head.length ? head.length : 1);
    if (!old)
        abort();
    if (offset < size)
        head.old_length = read_old(handle, old, head.length, offset);
    struct iovec first[2] = {{&head, sizeof head}, {old, head.old_length}};
    if (syscall(SYS_writev, record, first, 2) < 0 || syscall(SYS_writev, record, parts, count) < 0)
        abort();
    free(old);
}

/* Write at an offset, or at the handle's own place if that is -1. */
static ssize_t write_parts(int handle, const struct iovec *parts, int count, int64_t offset)
{
    struct stat file;
    ssize_t written;
    int64_t recorded = 0;
    int record = open_record(handle, &file);
    if (record >= 0) {
        recorded = lseek(record, 0, SEEK_END);
        int64_t place = offset;
        if (place < 0)
            place = fcntl(handle, F_GETFL) & O_APPEND ? file.st_size : lseek(handle, 0, SEEK_CUR);
        pause_us(controls->write_us);
        fstat(handle, &file);
        keep(record, handle, file.st_size, place, parts, count);
    }
    if (offset < 0)
        written = syscall(SYS_writev, handle, parts, count);
    else
        written = syscall(SYS_pwritev, handle, parts, count, offset, 0);
    if (record >= 0) {
        int problem = errno;
        /* Nothing is to be taken back of what the disk did not take. */
        if (written < 0 && ftruncate(record, recorded) != 0)
            abort();
        close(record);
        errno = problem;
    }
    return written;
}

ssize_t write(int handle, const void *data, size_t length)
{
    struct iovec part = {(void *)data, length};
    if (!undo || handle <= 2)
        return syscall(SYS_write, handle, data, length);
    return write_parts(handle, &part, 1, -1);
}

ssize_t pwrite64(int handle, const void *data, size_t length, off64_t offset)
{
    struct iovec part = {(void *)data, length};
    return write_parts(handle, &part, 1, offset);
}

ssize_t pwritev64(int handle, const struct iovec *parts, int count, off64_t offset)
{
    return write_parts(handle, parts, count, offset);
}

ssize_t pwrite(int, const void *, size_t, off_t) __attribute__((alias("pwrite64")));
ssize_t pwritev(int, const struct iovec *, int, off_t) __attribute__((alias("pwritev64")));

static int flush(int handle, int number)
{
    struct stat file;
    int record, result;
    pause_us(controls->flush_us);
    if (controls->ignores_flush)
        return 0;
    record = open_record(handle, &file);
    result = syscall(number, handle);
    if (record >= 0) {
        int problem = errno;
        if (result == 0 && ftruncate(record, 0) != 0)
            abort();
        close(record);
        errno = problem;
    }
    return result;
}

int fsync(int handle)
{
    return flush(handle, SYS_fsync);
}

int fdatasync(int handle)
{
    return flush(handle, SYS_fdatasync);
}
