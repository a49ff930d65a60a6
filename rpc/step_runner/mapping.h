// SPDX-License-Identifier: Apache-2.0
#ifndef AUTOTUNE_STEP_RUNNER_MAPPING_H_
#define AUTOTUNE_STEP_RUNNER_MAPPING_H_

#include <cstdint>
#include <string>

namespace autotune {
namespace step_runner {

/// Memory that belongs to this process alone until it ends: fresh pages, or a file's.
class Mapping {
 public:
  /// Fresh pages, none of them in memory yet.
  explicit Mapping(uint64_t bytes);
  /// A file, read only. Throws std::runtime_error where it cannot be read.
  explicit Mapping(const std::string& path);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  char* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }

 private:
  char* data_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace step_runner
}  // namespace autotune

#endif  // AUTOTUNE_STEP_RUNNER_MAPPING_H_
