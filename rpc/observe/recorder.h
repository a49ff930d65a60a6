// SPDX-License-Identifier: Apache-2.0
#ifndef AUTOTUNE_OBSERVE_RECORDER_H_
#define AUTOTUNE_OBSERVE_RECORDER_H_

#include <string>
#include <vector>

#include "../common/clock.h"

namespace autotune {
namespace observe {

/// Writes the record: one JSON object a line, each in one write, so that a reader sees whole lines.
class Recorder {
 public:
  /// Throws std::runtime_error where the file cannot be made.
  explicit Recorder(const std::string& path);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// Whether the file was removed: whoever wanted the record is gone.
  bool Unwanted() const;
  void Begin(const std::vector<std::string>& watch, double interval_s, int pid);
  /// Reads every watched file. What cannot be read is null.
  void Sample();
  void Line(const char* kind, double at, const std::string& text);
  /// Cores that the command's threads may use; written when they change.
  void Cpus(const std::string& list);
  void End(int exit_code, long max_rss_kb, double user_s, double system_s, const std::string& why);

 private:
  void Write(const std::string& line);

  int file_;
  std::vector<std::string> watch_;
  std::string cpus_;
};

}  // namespace observe
}  // namespace autotune

#endif  // AUTOTUNE_OBSERVE_RECORDER_H_
