// Include this before everything else under the thread sanitizer. Protobuf's map fields have two more members in code
// that is compiled with the sanitizer, and the distribution's library is not compiled with it.
#pragma once

// These headers test __SANITIZE_THREAD__. They come before it is undefined below, so that they still see it.
#include <bits/c++config.h>

#include "absl/base/config.h"

#undef __SANITIZE_THREAD__
