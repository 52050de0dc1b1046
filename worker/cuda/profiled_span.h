// A span of worker.trace that NVIDIA's profilers see, too: an NVTX range. Without a profiler a range is a test of a
// pointer. Compiled for AMD there is the span only.
#pragma once

#include "worker/trace.h"

#if !defined(USE_ROCM) && !defined(__HIP_PLATFORM_AMD__)
#define SLACKLINE_NVTX
#include <nvtx3/nvToolsExt.h>
#endif

namespace slackline::worker::gpu {

// Of what the host hands out to a device; what the device does with it, and when, is on the profiler's own lines.
class ProfiledSpan {
 public:
  ProfiledSpan(const TraceRow& row, TraceName name) : span_(row, name) { Push(name); }
  ~ProfiledSpan() { Pop(); }
  ProfiledSpan(const ProfiledSpan&) = delete;
  ProfiledSpan& operator=(const ProfiledSpan&) = delete;

  // The span ends, and another one begins, in the same thread.
  void Next(TraceName name) {
    span_.Next(name);
    Pop();
    Push(name);
  }

 private:
#ifdef SLACKLINE_NVTX
  static void Push(TraceName name) {
    nvtxEventAttributes_t range = {};
    range.version = NVTX_VERSION;
    range.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    range.messageType = NVTX_MESSAGE_TYPE_ASCII;
    range.message.ascii = name.text;
    if (name.number >= 0) {
      range.payloadType = NVTX_PAYLOAD_TYPE_INT64;
      range.payload.llValue = name.number;
    }
    nvtxRangePushEx(&range);
  }
  static void Pop() { nvtxRangePop(); }
#else
  static void Push(TraceName) {}
  static void Pop() {}
#endif

  TraceSpan span_;
};

}  // namespace slackline::worker::gpu
