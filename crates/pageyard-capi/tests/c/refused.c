/* A library without the packed engine: prints the errors of room, create and kernel_init. */
#include <pageyard_core.h>

#include <string.h>

#include "expect.h"

int main(void) {
    static char memory[1 << 20];
    pageyard_range all = {1 << 20, 1 << 21};
    pageyard_zone zone = {{1 << 20, 1 << 21}, 0, PAGEYARD_ZONE_NORMAL};
    pageyard_memory map = {0, sizeof memory, PAGEYARD_MEMORY_USABLE, 0};
    pageyard_platform platform;
    pageyard_core *yard = NULL;
    pageyard_layout layout;
    uint16_t cpu = 0;
    size_t bytes;
    char why[100];

    memset(&layout, 0, sizeof layout);
    layout.struct_size = sizeof layout;
    layout.version = PAGEYARD_VERSION;
    layout.zones = &zone;
    layout.zone_count = 1;
    layout.usable = &all;
    layout.usable_count = 1;
    layout.cpus = &cpu;
    layout.cpu_count = 1;
    layout.engine = PAGEYARD_ENGINE_PACKED;
    EXPECT_STATUS(pageyard_core_room(&layout, &bytes), PAGEYARD_ERR_ENGINE);
    puts(pageyard_strerror(PAGEYARD_ERR_ENGINE));
    EXPECT_STATUS(pageyard_core_create(&layout, NULL, memory, sizeof memory, &yard, why, sizeof why),
                  PAGEYARD_ERR_ENGINE);
    puts(why);
    memset(&platform, 0, sizeof platform);
    platform.struct_size = sizeof platform;
    platform.version = PAGEYARD_VERSION;
    platform.direct_map = memory;
    platform.engine = PAGEYARD_ENGINE_PACKED;
    EXPECT_STATUS(pageyard_kernel_init(&map, 1, NULL, 0, 1, &platform, &yard, why, sizeof why),
                  PAGEYARD_ERR_ENGINE);
    puts(why);
    EXPECT(yard == NULL);
    return 0;
}
