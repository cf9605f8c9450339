/* A planted mistake, which valgrind must find in scripts/sanitizers.sh: the caller passes a size of
   its structure that is larger than the structure's memory. */
#include <pageyard.h>

#include <stdlib.h>

int main(void) {
    size_t size = sizeof(pageyard_options);
    pageyard_options *options = (pageyard_options *)malloc(size - sizeof(uint64_t));
    if (options == NULL) return 2;
    pageyard_options_init(options, size, 64 << 20);
    free(options);
    return 0;
}
