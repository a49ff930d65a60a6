// SPDX-License-Identifier: Apache-2.0
//
// What a measurement depends on and the system may change meanwhile: heat, clocks, cores.
#ifndef AUTOTUNE_SERVER_CONDITIONS_H_
#define AUTOTUNE_SERVER_CONDITIONS_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "options.h"

namespace autotune {
namespace server {

/// A sensor's degrees Celsius as JSON; "null" where there is none.
std::string Celsius(const std::string& zone);

/// Finds the device's files once; each reading opens them anew.
class Conditions {
 public:
  /// `server` is the process whose cores the system decides: TVM binds a session's own threads.
  Conditions(const Options& options, pid_t server);

  /// A JSON object:
  ///   celsius, zone   the server's temperature sensor; null and "" where it has none
  ///   online, cpus    cores that are on, and those of them that kernels may use
  ///   clocks          of the clusters that kernels may use, and of the graphics processor: name, cpus,
  ///                   khz now, cap_khz (the highest allowed now), highest_khz (0: not known)
  std::string Json() const;

 private:
  struct Clock {
    std::string name;
    std::string cpus;
    std::string now;
    std::string cap;
    uint64_t per_khz;
    uint64_t highest_khz;
  };

  std::string zone_;
  std::string zone_name_;
  std::vector<int> wanted_;  // empty: all
  pid_t server_;
  std::vector<Clock> clocks_;
};

}  // namespace server
}  // namespace autotune

#endif  // AUTOTUNE_SERVER_CONDITIONS_H_
