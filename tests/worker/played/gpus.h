// Fake GPUs, which run on a CPU, so that code for GPUs runs on a machine without one, and missing synchronisation in it
// is found.
//
// The fake GPUs are LibTorch's CUDA devices, in a build of LibTorch for CPUs. CUDA's runtime and NCCL are fakes as
// well. LibTorch's operators for CPUs do the work at once. The fakes also record the stream of each operator, and what
// streams and the host know of each other by events and waits (vector clocks, Fidge 1988 and Mattern 1989).
//
// Streams of a real GPU run beside each other. Two accesses to the same memory, of which one writes, are a race unless
// one of the streams waits for the other in between. Memory that is given back while another stream may still read it
// is a race, too, unless LibTorch was told to keep it (recordDataPtrOnStream): its allocator hands the memory out again
// to the stream that it was for. Copies between devices wait for each other's streams, as LibTorch's copies between
// GPUs do.
//
// Fake GPUs cannot show how fast anything is, or what the kernels of GPUs compute.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace slackline::worker::played {

inline constexpr int kGpus = 4;

// Returns the faults found since the last call, each once: "aten::mm reads on cuda:1's stream 3 what ... writes on
// stream 2".
std::vector<std::string> TakeFaults();
// Returns the number of copies from and to pinned memory of the host for which it has not waited.
size_t CopiesUnderWay();
// Bytes of the device that are in use, and the most that were in use since the last call of TakeBytes().
struct Bytes {
  size_t now = 0;
  size_t most = 0;
};
Bytes TakeBytes(int gpu);
// Pins memory of the host, as cudaHostRegister() does.
void Pin(const void* memory, size_t bytes);
// Returns the number of operators that the GPU was given on its default stream, which exists without being made.
size_t OperatorsOnDefaultStream(int gpu);
// Makes the operator of that name ("aten::mm") throw when a GPU is given it for the `count`th time from now on.
void FailOn(const std::string& what, size_t count);

}  // namespace slackline::worker::played
