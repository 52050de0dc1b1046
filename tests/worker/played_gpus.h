// GPUs that are played on a CPU, so that code for GPUs runs where there is none, and what it forgets to order is found.
//
// They are LibTorch's PrivateUse1 devices. What they are given is done at once, by LibTorch's operators for CPUs; what
// is kept besides is which stream each operator was for, and what streams and the host know of each other by events and
// waits (vector clocks, Fidge 1988 and Mattern 1989). On a real GPU streams run beside each other, and two accesses to
// the same memory, of which one writes, are a race unless one of the streams waits for the other in between. So does
// memory that is given back while another stream may still read it, unless LibTorch was told to keep it
// (recordDataPtrOnStream), since its allocator hands it out again to the stream that it was for. Copies between devices
// wait for each other's streams as LibTorch's copies between GPUs do.
//
// They are no GPUs: how fast anything is, and what kernels of GPUs compute, cannot be seen here.
#pragma once

#include <c10/core/Device.h>

#include <cstddef>
#include <string>
#include <vector>

namespace slackline::worker::played {

inline constexpr int kGpus = 4;

at::Device Gpu(int index);

// What was found since the last call, each once: "aten::mm reads on cuda:1's stream 3 what ... writes on stream 2".
std::vector<std::string> TakeFaults();
// Copies from and to the host's memory which the host has not waited for.
size_t CopiesUnderWay();
// Bytes of the device that are in use, and the most that were since the last call of this.
struct Bytes {
  size_t now = 0;
  size_t most = 0;
};
Bytes TakeBytes(int gpu);
// That it was given on the stream which is there without being made.
size_t OperatorsOnDefaultStream(int gpu);
// The operator of that name ("aten::mm") throws, when a GPU is given it for the `count`th time from now on.
void FailOn(const std::string& what, size_t count);

}  // namespace slackline::worker::played
