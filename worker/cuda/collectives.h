// Includes NCCL or, for AMD, RCCL, which has the same names.
#pragma once

#if defined(USE_ROCM) || defined(__HIP_PLATFORM_AMD__) || defined(__HIPCC__)
#include <rccl/rccl.h>
#else
#include <nccl.h>
#endif
