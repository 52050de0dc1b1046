// Descriptors as the tests of shared memory need them.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <filesystem>
#include <iterator>

#include "common/shm/descriptor.h"

namespace slackline::shm {

inline size_t OpenDescriptors() {
  // One more while it looks: the folder itself.
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator()) - 1;
}

inline Descriptor Duplicate(int fd) { return Descriptor(::fcntl(fd, F_DUPFD_CLOEXEC, 0)); }

// Fails a test after which more descriptors are open than before.
class ShmTest : public ::testing::Test {
 protected:
  void TearDown() override { EXPECT_EQ(OpenDescriptors(), open_before_) << "descriptors leak"; }

 private:
  const size_t open_before_ = OpenDescriptors();
};

}  // namespace slackline::shm
