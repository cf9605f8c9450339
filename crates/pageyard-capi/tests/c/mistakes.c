/* A mistake on purpose, for scripts/sanitizers.sh to see that valgrind finds it: the caller says that its
   structure is larger than its memory. */
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
