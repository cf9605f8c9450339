/*
 * The bare core without a libc, as a kernel would use it.
 *
 *     cc -ffreestanding -nostdlib -static -fno-stack-protector freestanding.c \
 *         $(pkg-config --cflags --libs pageyard-core) && ./a.out
 *
 * On arm64 add -mno-outline-atomics; otherwise the compiler's atomics are functions that need a
 * libc.
 *
 * Only two system calls, to print and to exit, depend on an operating system (x86-64 and arm64
 * Linux), so that the example can be run. Physical memory is an array.
 */
#include <pageyard_core.h>

/* ---- What every C environment provides, and this one must write itself. ---- */

void *memcpy(void *to, const void *from, size_t bytes);
void *memmove(void *to, const void *from, size_t bytes);
void *memset(void *to, int value, size_t bytes);
int memcmp(const void *a, const void *b, size_t bytes);

void *memcpy(void *to, const void *from, size_t bytes) {
    volatile unsigned char *t = (unsigned char *)to;
    const unsigned char *f = (const unsigned char *)from;
    while (bytes-- > 0) *t++ = *f++;
    return to;
}
void *memmove(void *to, const void *from, size_t bytes) {
    volatile unsigned char *t = (unsigned char *)to;
    const unsigned char *f = (const unsigned char *)from;
    if (t < f) return memcpy(to, from, bytes);
    while (bytes-- > 0) t[bytes] = f[bytes];
    return to;
}
void *memset(void *to, int value, size_t bytes) {
    volatile unsigned char *t = (unsigned char *)to;
    while (bytes-- > 0) *t++ = (unsigned char)value;
    return to;
}
int memcmp(const void *a, const void *b, size_t bytes) {
    const volatile unsigned char *x = (const unsigned char *)a, *y = (const unsigned char *)b;
    for (; bytes > 0; bytes--, x++, y++)
        if (*x != *y) return *x - *y;
    return 0;
}

#if defined(__x86_64__)
static long system_call(long number, long a, long b, long c) {
    long answer;
    __asm__ volatile("syscall"
                     : "=a"(answer)
                     : "a"(number), "D"(a), "S"(b), "d"(c)
                     : "rcx", "r11", "memory");
    return answer;
}
enum { WRITE = 1, EXIT = 231 };
__asm__(".globl _start\n_start: xor %ebp, %ebp\n and $-16, %rsp\n call start\n");
#elif defined(__aarch64__)
static long system_call(long number, long a, long b, long c) {
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x8 __asm__("x8") = number;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x1), "r"(x2), "r"(x8) : "memory");
    return x0;
}
enum { WRITE = 64, EXIT = 94 };
__asm__(".globl _start\n_start: bl start\n");
#else
#error "system calls for this processor"
#endif

static void end(int status) {
    for (;;) system_call(EXIT, status, 0, 0);
}

static void print(const char *text) {
    size_t length = 0;
    while (((volatile const char *)text)[length] != 0) length++;
    system_call(WRITE, 1, (long)text, (long)length);
}

static void expect(int holds, const char *what) {
    if (holds) return;
    print("failed: ");
    print(what);
    print("\n");
    end(1);
}

/* ---- The machine. ---- */

enum { PAGE = PAGEYARD_PAGE_SIZE, MEMORY = 64 << 20, LARGEST = PAGE << PAGEYARD_MAX_ORDER };

/* Physical memory; a frame's number is its address here, in pages. */
static unsigned char memory[MEMORY] __attribute__((aligned(LARGEST)));

static unsigned char *bytes_of(uint64_t pfn) {
    return (unsigned char *)(uintptr_t)(pfn * PAGE);
}

static unsigned holds, taken;

/* A ticket lock. (A kernel also disables interrupts.) */
static void lock(struct pageyard_lock *lock) {
    uint64_t turn = __atomic_fetch_add(&lock->words[0], 1, __ATOMIC_RELAXED);
    while (__atomic_load_n(&lock->words[1], __ATOMIC_ACQUIRE) != turn) {}
    holds++;
    taken++;
}
static int32_t try_lock(struct pageyard_lock *lock) {
    uint64_t turn = __atomic_load_n(&lock->words[1], __ATOMIC_RELAXED);
    if (!__atomic_compare_exchange_n(&lock->words[0], &turn, turn + 1, 0, __ATOMIC_ACQUIRE,
                                     __ATOMIC_RELAXED))
        return 0;
    holds++;
    taken++;
    return 1;
}
static void unlock(struct pageyard_lock *lock) {
    holds--;
    __atomic_fetch_add(&lock->words[1], 1, __ATOMIC_RELEASE);
}

static uint32_t cpu(void *context) {
    (void)context;
    return 0;
}

static void zero(void *context, uint64_t pfn, uint32_t order) {
    (void)context;
    memset(bytes_of(pfn), 0, (size_t)PAGE << order);
}

/* The one block in this program that can move. */
static uint64_t movable;

static int32_t relocate(void *context, uint64_t from, uint64_t to, uint32_t order) {
    (void)context;
    expect(holds == 0, "hooks that may sleep are called without a lock");
    if (from != movable || order != 0) return PAGEYARD_MOVE_REFUSED;
    memcpy(bytes_of(to), bytes_of(from), PAGE);
    movable = to;
    return PAGEYARD_MOVED;
}

/* ---- The program. ---- */

__attribute__((used)) static void start(void) {
    static char text[4096], why[160];
    static pageyard_platform machine;
    static pageyard_layout layout;
    uint64_t first = (uintptr_t)memory / PAGE, last = first + MEMORY / PAGE;
    pageyard_range all = {first, last}, maps;
    pageyard_zone zone = {all, 0, PAGEYARD_ZONE_NORMAL};
    uint16_t node_of_cpu = 0;
    pageyard_core *yard;
    uint64_t block, blocks[32], moved_from;
    size_t room, got, i;

    layout.struct_size = sizeof layout;
    layout.version = PAGEYARD_VERSION;
    layout.zones = &zone;
    layout.zone_count = 1;
    layout.usable = &all;
    layout.usable_count = 1;
    layout.cpus = &node_of_cpu;
    layout.cpu_count = 1;

    /* The maps lie at the start of the memory that they describe, and are reserved there. */
    expect(pageyard_core_room(&layout, &room) == PAGEYARD_OK, "pageyard_core_room");
    maps.start = first;
    maps.end = first + (room + PAGE - 1) / PAGE;
    layout.reserved = &maps;
    layout.reserved_count = 1;
    expect(pageyard_core_room(&layout, &room) == PAGEYARD_OK, "pageyard_core_room");
    maps.end = first + (room + PAGE - 1) / PAGE;

    machine.struct_size = sizeof machine;
    machine.version = PAGEYARD_VERSION;
    machine.cpu = cpu;
    machine.lock = lock;
    machine.try_lock = try_lock;
    machine.unlock = unlock;
    machine.zero = zero;
    machine.relocate = relocate;
    if (pageyard_core_create(&layout, &machine, memory, (maps.end - first) * PAGE, &yard, why,
                             sizeof why) != PAGEYARD_OK) {
        print(why);
        print("\n");
        end(1);
    }

    /* A block, its contents, and misuse that is reported. */
    expect(pageyard_core_alloc(yard, 3, PAGEYARD_KERNEL, &block) == PAGEYARD_OK, "alloc");
    memset(bytes_of(block), 0x55, PAGE << 3);
    expect(pageyard_core_free(yard, block + 1, 0) == PAGEYARD_ERR_NOT_HEAD, "not the head");
    expect(pageyard_core_free(yard, block, 2) == PAGEYARD_ERR_WRONG_ORDER, "wrong order");
    expect(pageyard_core_free(yard, block, 3) == PAGEYARD_OK, "free");
    expect(pageyard_core_free(yard, block, 3) == PAGEYARD_ERR_DOUBLE_FREE, "double free");
    expect(pageyard_core_alloc(yard, 3, PAGEYARD_KERNEL | PAGEYARD_ZERO, &block) == PAGEYARD_OK,
           "alloc zeroed");
    for (i = 0; i < (PAGE << 3); i++) expect(bytes_of(block)[i] == 0, "zeroed");
    expect(pageyard_core_free(yard, block, 3) == PAGEYARD_OK, "free zeroed");
    expect(pageyard_core_free(yard, maps.start, 0) == PAGEYARD_ERR_RESERVED, "maps are reserved");

    /* A bulk request. */
    expect(pageyard_core_alloc_bulk(yard, PAGEYARD_KERNEL, blocks, 32, &got) == PAGEYARD_OK
               && got == 32, "bulk");
    expect(pageyard_core_free_bulk(yard, blocks, got, 0, &got) == PAGEYARD_OK && got == 32,
           "free bulk");

    /* All pages of a 2 MiB block are freed except one, which can move. */
    expect(pageyard_core_alloc(yard, 9, PAGEYARD_HIGHUSER_MOVABLE, &block) == PAGEYARD_OK,
           "alloc movable");
    expect(pageyard_core_split(yard, block, 9, 0) == PAGEYARD_OK, "split");
    movable = moved_from = block + 100;
    for (i = 0; i < 512; i++)
        if (i != 100) expect(pageyard_core_free(yard, block + i, 0) == PAGEYARD_OK, "free a part");
    expect(pageyard_core_set_movable(yard, movable, 0, 1) == PAGEYARD_OK, "set movable");
    memset(bytes_of(movable), 0x77, PAGE);

    /* A device needs exactly these 2 MiB. */
    expect(pageyard_core_alloc_contig(yard, block, block + 512, PAGEYARD_TYPE_MOVABLE,
                                      PAGEYARD_KERNEL) == PAGEYARD_OK, "contiguous range");
    expect(movable != moved_from && bytes_of(movable)[PAGE - 1] == 0x77, "moved with its contents");
    expect(pageyard_core_free_contig(yard, block, block + 512) == PAGEYARD_OK, "free the range");
    expect(pageyard_core_free(yard, movable, 0) == PAGEYARD_OK, "free what moved");

    expect(pageyard_core_tick(yard, 0) == PAGEYARD_OK, "tick");
    expect(pageyard_core_drain(yard) == PAGEYARD_OK, "drain");
    expect(pageyard_core_set_knob(yard, "min_free_kbytes", "1024") == PAGEYARD_OK, "set a knob");
    expect(holds == 0 && taken > 0, "the locks are this program's, and all were given back");
    expect(pageyard_core_text(yard, PAGEYARD_TEXT_BUDDYINFO, text, sizeof text, NULL)
               == PAGEYARD_OK, "text");
    print(text);
    expect(pageyard_core_destroy(yard) == PAGEYARD_OK, "destroy");
    expect(pageyard_core_alloc(yard, 0, PAGEYARD_KERNEL, &block) == PAGEYARD_ERR_HANDLE, "stale");
    print("all is well\n");
    end(0);
}
