// Fuzzer inputs that are protobuf messages as text. A target links proto_mutator.cc if libFuzzer makes the inputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <google/protobuf/message.h>

namespace slackline::fuzz {

// Returns the empty input of this program. Each target with text input defines it.
std::unique_ptr<google::protobuf::Message> NewInput();

// Reads `message` from text. Returns false if the data is no message of that type.
bool ParseText(const uint8_t* data, size_t size, google::protobuf::Message& message);

}  // namespace slackline::fuzz
