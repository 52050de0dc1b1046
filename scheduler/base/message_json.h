// Converts a message to JSON for people's tools: every field is present, under its own name; numbers are numbers.
#pragma once

#include <string>

#include <google/protobuf/message.h>

namespace slackline::scheduler {

// Returns the message as JSON. Floating-point numbers have six digits. Null stands for a number that is not finite, and
// for an absent optional field or message. Text that is not UTF-8 is replaced. Maps, bytes and enumerations are not
// supported. Protobuf's own JSON would write 64-bit integers as texts and leave out what is 0.
std::string ToJson(const google::protobuf::Message& message);

}  // namespace slackline::scheduler
