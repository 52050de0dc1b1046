// Suggests the key that a misspelled key was meant to be.
#pragma once

#include <string>

#include <google/protobuf/descriptor.h>

namespace slackline::job_file {

// Returns the full key that `name`, unknown in `section`, was most likely meant to be: a similar key of that section,
// or the same name in another section of `root`. Returns an empty text if there is no similar key.
//   prefix  full key of the section with a dot at its end, or empty for the root
std::string NearestKey(const std::string& name, const google::protobuf::Descriptor& section, const std::string& prefix,
                       const google::protobuf::Descriptor& root);

}  // namespace slackline::job_file
