// Parts of a machine for the scripts that share it.
#include "cli/run/seat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace slackline::cli::seat_test {
namespace {

using testing::ElementsAre;

TEST(SeatTest, EachScriptHasItsGpusAndCores) {
  const Machine machine = {.cores = {0, 1, 2, 3, 8}, .gpus = {"0", "1", "2", "3"}};
  EXPECT_THAT(EnvironmentOfSeat(machine, 0, 2), ElementsAre("SLACKLINE_LOCAL_RANK=0", "SLACKLINE_LOCAL_WORLD_SIZE=2",
                                                            "CUDA_VISIBLE_DEVICES=0,1", "SLACKLINE_CORES=0,1,2"));
  EXPECT_THAT(EnvironmentOfSeat(machine, 1, 2), ElementsAre("SLACKLINE_LOCAL_RANK=1", "SLACKLINE_LOCAL_WORLD_SIZE=2",
                                                            "CUDA_VISIBLE_DEVICES=2,3", "SLACKLINE_CORES=3,8"));
}

TEST(SeatTest, ScriptsShareGpusWhereThereAreFewer) {
  const Machine machine = {.cores = {0}, .gpus = {"GPU-a", "GPU-b"}, .gpu_variable = "ROCR_VISIBLE_DEVICES"};
  std::string shared;
  for (uint32_t seat = 0; seat < 4; ++seat) {
    const std::vector<std::string> environment = EnvironmentOfSeat(machine, seat, 4);
    ASSERT_EQ(environment.size(), 3) << "fewer cores than scripts: none is named";
    shared += environment[2] + " ";
  }
  EXPECT_EQ(shared,
            "ROCR_VISIBLE_DEVICES=GPU-a ROCR_VISIBLE_DEVICES=GPU-a ROCR_VISIBLE_DEVICES=GPU-b "
            "ROCR_VISIBLE_DEVICES=GPU-b ");
}

TEST(SeatTest, WithoutGpusNothingSaysWhichAreSeen) {
  EXPECT_THAT(EnvironmentOfSeat({.cores = {4, 5}}, 1, 2),
              ElementsAre("SLACKLINE_LOCAL_RANK=1", "SLACKLINE_LOCAL_WORLD_SIZE=2", "SLACKLINE_CORES=5"));
}

}  // namespace
}  // namespace slackline::cli::seat_test
