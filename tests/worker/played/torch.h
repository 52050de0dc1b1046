// Fake GPUs (gpus.h) as LibTorch's devices.
#pragma once

#include <c10/core/Device.h>

namespace slackline::worker::played {

at::Device Gpu(int index);

}  // namespace slackline::worker::played
