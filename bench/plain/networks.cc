#include "bench/plain/networks.h"

#include "bench/plain/chain.h"
#include "bench/plain/resnet.h"

namespace slackline::bench {

std::shared_ptr<PlainNetwork> MakePlainNetwork(const std::string& model, Order order) {
  if (model == "resnet18") return std::make_shared<PlainResnet>(order);
  return std::make_shared<PlainChain>(/*convolutions=*/model == "cnn", order);
}

}  // namespace slackline::bench
