// Include this before everything else under the thread sanitizer. Protobuf's map fields have two more members in code
// that is compiled with the sanitizer, and the distribution's library is not compiled with it.
#pragma once

// The headers below look at the macro, too, and keep what they have seen.
#include <bits/c++config.h>

#include "absl/base/config.h"

#undef __SANITIZE_THREAD__
