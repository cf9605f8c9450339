/* Invalid and extreme numbers and flags, and a program that calls one function with them. */
#ifndef HOSTILE_H
#define HOSTILE_H

#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "expect.h"

enum { FIRST = 1 << 20, PAGES = 1 << 15 };

/* Zero, powers of two and their neighbours where behaviour changes, and the extremes of all types.
 * */
static const uint64_t NUMBERS[] = {
    0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 15, 16, 31, 32, 63, 64, 127, 255, 256, 511, 512, 513,
    1023, 1024, 4095, 4096, PAGES - 1, PAGES, PAGES + 1, UINT16_MAX, 1 << 16, FIRST - 1, FIRST,
    FIRST + 1, FIRST + 512, FIRST + PAGES - 1, FIRST + PAGES, FIRST + PAGES + 1, INT32_MAX,
    (uint64_t)1 << 31, UINT32_MAX, (uint64_t)1 << 32, (uint64_t)1 << 40, (uint64_t)1 << 50,
    (uint64_t)1 << 52, (uint64_t)INT64_MAX, (uint64_t)1 << 63, UINT64_MAX - 1, UINT64_MAX};
/* Frames and sizes, for calls that try three numbers: at and beside the ends of the memory and of a
 * pageblock, and the extremes. */
static const uint64_t PLACES[] = {
    0, 1, 511, 512, 513, 1024, PAGES - 1, PAGES, PAGES + 1, FIRST - 1, FIRST, FIRST + 1, FIRST + 512,
    FIRST + PAGES - 1, FIRST + PAGES, FIRST + PAGES + 1, UINT32_MAX, (uint64_t)1 << 52,
    (uint64_t)INT64_MAX, (uint64_t)1 << 63, UINT64_MAX - 1, UINT64_MAX};
/* Kinds, numbers of a node and the like, for calls that also try two numbers: where behaviour
 * changes, and some that do not exist. */
static const uint64_t FEW[] = {0, 1, 2, 3, 4, 5, 6, 7, 12, 20, 63, 64, INT32_MAX, UINT32_MAX};
/* Every pair of bits, each bit alone, and all bits but one; the first four are ordinary flags. */
#define FLAGS (4 + 1024 + 64)

#define COUNT(array) (sizeof(array) / sizeof *(array))
/* Runs the body with `name` set to each number of an array, as a type. */
#define EACH_OF(numbers, type, name)                                                \
    for (size_t name##_at = 0; name##_at < COUNT(numbers); name##_at++)             \
        for (type name = (type)(numbers)[name##_at], *name##_once = &name; name##_once; \
             name##_once = NULL)
#define EACH(type, name) EACH_OF(NUMBERS, type, name)
#define EACH_FLAGS(name)                                            \
    for (uint32_t name##_at = 0; name##_at < FLAGS; name##_at++)    \
        for (uint32_t name = flags_of(name##_at), name##_once = 1; name##_once; name##_once = 0)
/* A few flags, for calls that also try other numbers. */
#define EACH_OF_SOME_FLAGS(name)                            \
    for (uint32_t name##_at = 0; name##_at < 8; name##_at++) \
        for (uint32_t name = some_flags(name##_at), name##_once = 1; name##_once; name##_once = 0)

static inline uint32_t flags_of(uint32_t i) {
    if (i < 4)
        return i == 0 ? 0 : i == 1 ? UINT32_MAX : i == 2 ? PAGEYARD_KERNEL : PAGEYARD_ATOMIC;
    i -= 4;
    if (i < 1024)
        return 1u << i / 32 | 1u << i % 32 | PAGEYARD_KERNEL | PAGEYARD_ZERO;
    i -= 1024;
    return i < 32 ? ~(1u << i) : 1u << (i - 32) | PAGEYARD_ZERO;
}

static inline uint32_t some_flags(uint32_t i) {
    static const uint32_t some[8] = {0, UINT32_MAX, PAGEYARD_KERNEL, PAGEYARD_ATOMIC,
                                     PAGEYARD_KERNEL | PAGEYARD_ZERO | 1u << 31,
                                     PAGEYARD_KERNEL | PAGEYARD_COMP,
                                     PAGEYARD_KERNEL | PAGEYARD_NOFAIL | PAGEYARD_THISNODE,
                                     ~(uint32_t)(PAGEYARD_DMA | PAGEYARD_DMA32 | PAGEYARD_HIGHMEM |
                                                 PAGEYARD_MOVABLE | PAGEYARD_RECLAIMABLE)};
    return some[i];
}

/* Settings, and names that no setting has. */
static const char *const NAMES[] = {
    "", "min_free_kbytes", "watermark_scale_factor", "watermark_boost_factor", "numa_stat",
    "lowmem_reserve_ratio", "percpu_pagelist_high_fraction", "compaction_proactiveness",
    "compact_memory", "extfrag_threshold", "zone_reclaim_mode", "stat_interval", "pcp_autotune",
    "debug_pagealloc", "numa_zonelist_order", "%s%n", "\xff\xfe", "\xf0\x9f\x98"};
static const char *const VALUES[] = {
    "", " ", "0", "1", "-1", "2147483648", "18446744073709551615", "18446744073709551616", "1e9",
    "0x10", "9 9 9 9 9 9 9 9", "-9223372036854775809", "%s%n%n", "\xff", "Node", "\n1\n",
    "99999999999999999999999999999999999999999999999999999999999999999999999999999999999999"};

/* The current call, for the message of a signal handler. */
static struct {
    const char *function;
    uint64_t numbers[5];
} last;

#define CALL(function_, ...)                                                 \
    (memcpy(last.numbers, (uint64_t[5]){__VA_ARGS__}, sizeof last.numbers),  \
     last.function = #function_)

static inline void dead(int number) {
    char text[256];
    int n = snprintf(text, sizeof text, "%s: signal %d, of %#llx, %#llx, %#llx, %#llx, %#llx\n",
                     last.function, number, (unsigned long long)last.numbers[0],
                     (unsigned long long)last.numbers[1], (unsigned long long)last.numbers[2],
                     (unsigned long long)last.numbers[3], (unsigned long long)last.numbers[4]);
    if (write(2, text, (size_t)n) != n)
        _exit(3);
    _exit(2);
}

/* Asserts that a status is one of those in the header. */
static inline int known(pageyard_status status) {
    SEEN(status);
    if (strcmp(pageyard_strerror(status), pageyard_strerror(-12345)) == 0) {
        fprintf(stderr, "%s: status %d, of %#llx, %#llx, %#llx, %#llx\n", last.function, (int)status,
                (unsigned long long)last.numbers[0], (unsigned long long)last.numbers[1],
                (unsigned long long)last.numbers[2], (unsigned long long)last.numbers[3]);
        exit(1);
    }
    return status == PAGEYARD_OK;
}

/* Names the call on a fatal signal, and limits memory and time. */
static inline void watch(void) {
    static const int fatal[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGXCPU,
                                SIGALRM};
    struct rlimit memory = {(rlim_t)4 << 30, (rlim_t)4 << 30}, seconds = {300, 600};
    size_t i;
    for (i = 0; i < COUNT(fatal); i++)
        signal(fatal[i], dead);
    EXPECT(setrlimit(RLIMIT_AS, &memory) == 0 && setrlimit(RLIMIT_CPU, &seconds) == 0);
    /* Not a measurement: a call that waits for ever is named, too. */
    alarm(900);
}

typedef struct {
    const char *name;
    void (*run)(void);
} row;
#define ROW(function) {#function, h_##function}

#endif
