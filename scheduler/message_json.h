// A message as JSON for people's tools: every field is there, under its own name; numbers are numbers.
#pragma once

#include <string>

#include <google/protobuf/message.h>

namespace slackline::scheduler {

// Floating-point numbers with six digits; what is not a finite number, and an absent optional field or message, is
// null; what is not UTF-8 is replaced. Maps, bytes and enumerations are not for it.
// Protobuf's own JSON writes 64-bit integers as texts and leaves out what is 0.
std::string ToJson(const google::protobuf::Message& message);

}  // namespace slackline::scheduler
