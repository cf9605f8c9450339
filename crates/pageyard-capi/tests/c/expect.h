/* Ends the program if a condition does not hold. */
#ifndef EXPECT_H
#define EXPECT_H

#include <stdio.h>
#include <stdlib.h>

#define EXPECT(holds)                                                                  \
    do {                                                                               \
        if (!(holds)) {                                                                \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #holds); \
            exit(1);                                                                   \
        }                                                                              \
    } while (0)

/* Called with each status; a program may define it before. */
#ifndef SEEN
#define SEEN(status) ((void)0)
#endif

#define EXPECT_STATUS(call, status)                                                               \
    do {                                                                                          \
        pageyard_status got_ = (call);                                                            \
        SEEN(got_);                                                                               \
        if (got_ != (status)) {                                                                   \
            fprintf(stderr, "%s:%d: %s: %s (%d), not %s\n", __FILE__, __LINE__, #call,            \
                    pageyard_strerror(got_), (int)got_, #status);                                 \
            exit(1);                                                                              \
        }                                                                                         \
    } while (0)

#define OK(call) EXPECT_STATUS(call, PAGEYARD_OK)

/* The engine under test; -DENGINE=PAGEYARD_ENGINE_PACKED selects the other one. */
#ifndef ENGINE
#define ENGINE PAGEYARD_ENGINE_LINUX612
#endif
#define IS_PACKED (ENGINE == PAGEYARD_ENGINE_PACKED)

#endif
