// The role of a process of a job, as its certificate states it.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace slackline::security {

// An operator gives orders to a running job: the `slackline` command.
enum class Role : uint8_t { kScheduler, kServer, kWorker, kOperator };
inline constexpr Role kRoles[] = {Role::kScheduler, Role::kServer, Role::kWorker, Role::kOperator};

// Returns the role's name in file names and certificates: "scheduler", "server", "worker", "operator".
const char* RoleName(Role role);

class Roles {
 public:
  constexpr Roles() = default;
  constexpr Roles(std::initializer_list<Role> roles) {
    for (const Role role : roles) bits_ |= Bit(role);
  }
  static constexpr Roles All() { return {Role::kScheduler, Role::kServer, Role::kWorker, Role::kOperator}; }

  constexpr bool Has(Role role) const { return (bits_ & Bit(role)) != 0; }
  // Returns the roles as text: "server, worker".
  std::string ToString() const;

 private:
  static constexpr uint8_t Bit(Role role) { return static_cast<uint8_t>(1 << static_cast<int>(role)); }
  uint8_t bits_ = 0;
};

// Names of jobs and of workers.
bool IsName(absl::string_view text);
inline constexpr char kNameAllowed[] = "1 to 100 letters, digits, '-', '_' and '.'";

// The job and role of a certificate: spiffe://slackline/JOB/ROLE, its only URI. Only a worker may have a certificate of
// its own, spiffe://slackline/JOB/worker/NAME.
struct Identity {
  std::string job;
  Role role = Role::kWorker;
  std::string name = {};  // empty: the certificate is that of all of the role

  std::string ToUri() const;
  // Returns nullopt for any other text.
  static std::optional<Identity> FromUri(absl::string_view uri);
};

}  // namespace slackline::security
