// "Did you mean ...?"
#pragma once

#include <string>

#include <google/protobuf/descriptor.h>

namespace slackline::job_file {

// The full key that `name`, unknown in `section`, was most likely meant to be: a key of that section spelled
// nearly so, or the same name in another section of `root`. Empty if nothing is near.
//   prefix  full key of the section with a dot at its end, or empty for the root
std::string NearestKey(const std::string& name, const google::protobuf::Descriptor& section, const std::string& prefix,
                       const google::protobuf::Descriptor& root);

}  // namespace slackline::job_file
