// SPDX-License-Identifier: Apache-2.0
//
// Where compiled OpenCL programs are kept for later processes.
#ifndef AUTOTUNE_COMMON_PROGRAMS_FOLDER_H_
#define AUTOTUNE_COMMON_PROGRAMS_FOLDER_H_

#include <cstdlib>
#include <string>

namespace autotune {

/// Names the folder; empty, no program is kept.
constexpr const char* kProgramsVariable = "AUTOTUNE_OPENCL_PROGRAMS";

/// The folder that the variable names, else the user's own, else `otherwise`; empty to keep no program.
inline std::string ProgramsFolder(const std::string& otherwise) {
  if (const char* chosen = std::getenv(kProgramsVariable)) return chosen;
#ifdef __ANDROID__
  (void)otherwise;  // A shell's own folder is the only one that it may write.
  return "/data/local/tmp/autotune-opencl-programs";
#else
  const auto absolute = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value != nullptr && value[0] == '/' ? value : "");
  };
  // The specification of XDG's folders says to ignore a relative path.
  if (const std::string cache = absolute("XDG_CACHE_HOME"); !cache.empty()) return cache + "/autotune/opencl-programs";
  if (const std::string home = absolute("HOME"); home.size() > 1) return home + "/.cache/autotune/opencl-programs";
  return otherwise;
#endif
}

}  // namespace autotune

#endif  // AUTOTUNE_COMMON_PROGRAMS_FOLDER_H_
