#pragma once
// What a fuzz target claims about accepted input; a broken claim stops the fuzzer with the input.

#include <cstdio>
#include <cstdlib>

#define FUZZ_REQUIRE(claim)                                                          \
    do {                                                                             \
        if (!(claim)) {                                                              \
            std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #claim); \
            std::abort();                                                            \
        }                                                                            \
    } while (false)
