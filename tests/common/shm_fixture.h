// Helpers for file descriptors in the tests of shared memory.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <filesystem>
#include <iterator>

#include "common/shm/descriptor.h"

namespace slackline::shm {

inline size_t OpenDescriptors() {
  // Listing the folder opens one more descriptor: the folder itself.
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator()) - 1;
}

inline Descriptor Duplicate(int fd) { return Descriptor(::fcntl(fd, F_DUPFD_CLOEXEC, 0)); }

// Fails a test that ends with another number of open descriptors than it began with.
class ShmTest : public ::testing::Test {
 protected:
  void TearDown() override { EXPECT_EQ(OpenDescriptors(), open_before_) << "descriptors leak"; }

 private:
  const size_t open_before_ = OpenDescriptors();
};

}  // namespace slackline::shm
