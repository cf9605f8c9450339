/* A core that was built to do without some of the platform's functions refuses a platform that has them. */
#include <pageyard_core.h>
#include <stdio.h>

static uint32_t cpu(void *context) {
    (void)context;
    return 0;
}

static void unlock(struct pageyard_lock *lock) {
    (void)lock;
}

static int32_t relocate(void *context, uint64_t from, uint64_t to, uint32_t order) {
    (void)context, (void)from, (void)to, (void)order;
    return PAGEYARD_MOVED;
}

static void start(const pageyard_platform *platform) {
    const pageyard_memory memory = {1 << 22, 1 << 26, PAGEYARD_MEMORY_USABLE, 0};
    pageyard_core *yard;
    char why[160] = "";
    pageyard_status status =
        pageyard_kernel_init(&memory, 1, NULL, 0, 1, platform, &yard, why, sizeof why);
    printf("%s: %s\n", status == PAGEYARD_ERR_ARGUMENT ? "argument" : "another status", why);
}

int main(void) {
    pageyard_platform platform = {.struct_size = sizeof platform, .version = PAGEYARD_VERSION};
    platform.unlock = unlock;
    start(&platform);
    platform.unlock = NULL;
    platform.cpu = cpu;
    start(&platform);
    platform.cpu = NULL;
    platform.relocate = relocate;
    start(&platform);
    return 0;
}
