// Free text in messages: last words of processes, exceptions, names of files. Nobody has promised that these are UTF-8.
#pragma once

#include <google/protobuf/message.h>

namespace slackline::rpc {

// Whether every `string` field of `message`, at any depth, is as ValidText() would have it.
bool HasValidText(const google::protobuf::Message& message);

// Makes it so. A receiver refuses a message with a proto3 string that is not UTF-8, whatever else the message says.
void MendText(google::protobuf::Message& message);

}  // namespace slackline::rpc
