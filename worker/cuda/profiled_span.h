// A span of worker.trace that NVIDIA's profilers show, too, as an NVTX range. Without a profiler, a range costs one
// test of a pointer. Builds for AMD record only the span.
#pragma once

#include "worker/base/trace.h"

#if !defined(USE_ROCM) && !defined(__HIP_PLATFORM_AMD__)
#define SLACKLINE_NVTX
#include <nvtx3/nvToolsExt.h>
#endif

namespace slackline::worker::gpu {

// ProfiledSpan covers the time in which the host enqueues work on a device. The profiler shows the device's own
// execution times on separate lines.
class ProfiledSpan {
 public:
  ProfiledSpan(const TraceRow& row, TraceName name) : span_(row, name) { Push(name); }
  ~ProfiledSpan() { Pop(); }
  ProfiledSpan(const ProfiledSpan&) = delete;
  ProfiledSpan& operator=(const ProfiledSpan&) = delete;

  // Ends the span and begins another one, in the same thread.
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
