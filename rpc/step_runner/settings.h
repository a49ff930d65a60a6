// SPDX-License-Identifier: Apache-2.0
//
// Settings of cores and clocks that a step goes through, and the changes between them.
#ifndef AUTOTUNE_STEP_RUNNER_SETTINGS_H_
#define AUTOTUNE_STEP_RUNNER_SETTINGS_H_

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "../cpu_runtime/thread_team.h"

namespace autotune {
namespace step_runner {

/// How tensors cross between the host and a GPU: by a copy, or by mapping memory that both share.
enum class Memory { kCopy, kMap };

/// Cores, threads, and clocks by the folder of their policy.
struct Setting {
  std::vector<int> cpus;  ///< Empty for those that the process has.
  int threads = 1;
  std::vector<std::pair<std::string, long>> khz;
};

/// A file of them:
///
///   setting CPUS THREADS [POLICY=KHZ]...   such as: setting 4-7 4 /sys/.../policy4=2841600
///   at CALL SETTING                        from this call of the step on, by the setting's number
///   use CALL VARIANT                       how a call is made, by the number of its variant in the plan
///   gpu CALL                               the GPU makes the call
///   memory copy|map                        how tensors get to the GPU and back; copy without the line
struct Settings {
  std::vector<Setting> settings;
  std::map<size_t, size_t> at;    ///< Setting by the call that it begins at.
  std::map<size_t, size_t> used;  ///< Variant by call.
  std::vector<size_t> on_gpu;     ///< Calls.
  Memory memory = Memory::kCopy;

  /// Throws std::runtime_error with the line that is wrong.
  static Settings Read(const std::string& path);
};

/// Changes the process from one setting to another. Each has its own team of threads, which stay on
/// its cores and sleep meanwhile; the calling thread goes from cores to cores.
class Switch {
 public:
  explicit Switch(const std::vector<Setting>& settings);

  /// Throws std::runtime_error where the system refuses.
  void To(size_t setting);

 private:
  void SetClock(const std::string& policy, long khz);

  const std::vector<Setting> settings_;
  std::vector<std::unique_ptr<cpu_runtime::ThreadTeam>> teams_;
  std::map<std::string, long> khz_;
  size_t now_;
};

}  // namespace step_runner
}  // namespace autotune

#endif  // AUTOTUNE_STEP_RUNNER_SETTINGS_H_
