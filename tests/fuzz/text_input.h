// Inputs that are protobuf messages as text. Link proto_mutator.cc where libFuzzer makes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <google/protobuf/message.h>

namespace slackline::fuzz {

// The empty input of this program: each target with text input defines it.
std::unique_ptr<google::protobuf::Message> NewInput();

// False when it is not such a message as text.
bool ParseText(const uint8_t* data, size_t size, google::protobuf::Message& message);

}  // namespace slackline::fuzz
