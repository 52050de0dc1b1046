// An assertion that stays on in release builds, for conditions that only a bug can break. An error that a network, a
// disk or a peer can cause is a Status.
#pragma once

#include <cstdio>
#include <cstdlib>

#define SLACKLINE_CHECK(condition)                                                              \
  do {                                                                                          \
    if (!(condition)) {                                                                         \
      std::fprintf(stderr, "%s:%d: bug: this must hold: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                             \
    }                                                                                           \
  } while (false)
