// What part of a model each server is to hold, by the links that pulls and pushes go over. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "common/ids.h"

namespace slackline::scheduler {

struct MachineLink {
  // Where two have one name, they have one link. Empty: nobody knows.
  std::string machine;
  // Of the machine; 0: nobody knows.
  uint32_t mbit = 0;
};

// Of each server, in Mbit/s: the link of its machine, divided among the servers that are there. Empty, and all are to
// hold equally much, where any link or machine is not known: a guess would be worse than none.
std::map<ServerId, double> LinkShares(const std::map<ServerId, MachineLink>& links);

// Of one server; 1 where there are no shares.
double ShareOf(const std::map<ServerId, double>& shares, ServerId server);

}  // namespace slackline::scheduler
