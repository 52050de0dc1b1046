// Included before everything else under the thread sanitizer: protobuf's map fields have two members more in code that
// is compiled with it, and the distribution's library is not.
#pragma once

// These two look at the macro, too, and keep what they have seen.
#include <bits/c++config.h>

#include "absl/base/config.h"

#undef __SANITIZE_THREAD__
