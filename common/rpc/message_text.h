// Free text in messages: last words of processes, exceptions, names of files. Such text need not be UTF-8.
#pragma once

#include <google/protobuf/message.h>

namespace slackline::rpc {

// Returns whether every `string` field of `message`, at any depth, equals its ValidText().
bool HasValidText(const google::protobuf::Message& message);

// Replaces each `string` field by its ValidText(). A receiver refuses a message with a proto3 string that is not UTF-8,
// whatever else the message contains.
void MendText(google::protobuf::Message& message);

}  // namespace slackline::rpc
