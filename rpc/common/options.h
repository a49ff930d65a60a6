// SPDX-License-Identifier: Apache-2.0
//
// Values of command lines. A mistake is an std::invalid_argument with the line that says what it is.
#ifndef AUTOTUNE_COMMON_OPTIONS_H_
#define AUTOTUNE_COMMON_OPTIONS_H_

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "cpu_list.h"

namespace autotune {

[[noreturn]] inline void Refuse(const std::string& message) {
  throw std::invalid_argument(message);
}

/// The whole text as a number within limits.
inline double RealOption(const std::string& name, const std::string& text, double low,
                         double high) {
  size_t used = 0;
  double value = 0;
  try {
    value = std::stod(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  if (used == 0 || used != text.size() || !(value >= low && value <= high)) {
    char limits[64];
    std::snprintf(limits, sizeof(limits), "%.10g to %.10g", low, high);
    Refuse(name + " takes a number from " + limits + ", not '" + text + "'");
  }
  return value;
}

/// The same of a whole number.
inline int WholeOption(const std::string& name, const std::string& text, int low, int high) {
  const double value = RealOption(name, text, low, high);
  if (value != static_cast<int>(value)) Refuse(name + " takes a whole number, not '" + text + "'");
  return static_cast<int>(value);
}

/// A list of cores, as it was given.
inline std::string CpusOption(const std::string& name, const std::string& text) {
  try {
    ParseCpuList(text);
  } catch (const std::exception&) {
    Refuse(name + " takes a list such as 0-3,6, not '" + text + "'");
  }
  return text;
}

/// Ends the program as one whose command line cannot be understood.
[[noreturn]] inline void ExitWithUsage(const char* program, const std::exception& error,
                                       const char* usage) {
  std::fprintf(stderr, "%s: %s\n%s", program, error.what(), usage);
  std::exit(2);
}

}  // namespace autotune

#endif  // AUTOTUNE_COMMON_OPTIONS_H_
