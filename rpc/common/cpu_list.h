// SPDX-License-Identifier: Apache-2.0
//
// Lists of cores as the kernel writes them.
#ifndef AUTOTUNE_COMMON_CPU_LIST_H_
#define AUTOTUNE_COMMON_CPU_LIST_H_

#include <stdexcept>
#include <string>
#include <vector>

namespace autotune {

constexpr int kMostCpus = 1024;

/// Core numbers of a list such as "0-3,6"; throws std::invalid_argument.
inline std::vector<int> ParseCpuList(const std::string& text) {
  std::vector<int> cpus;
  size_t at = 0;
  while (at < text.size()) {
    size_t end = text.find(',', at);
    if (end == std::string::npos) end = text.size();
    const std::string part = text.substr(at, end - at);
    const size_t dash = part.find('-');
    size_t used = 0;
    const int first = std::stoi(part, &used);
    int last = first;
    if (dash != std::string::npos) {
      if (used != dash) throw std::invalid_argument(part);
      last = std::stoi(part.substr(dash + 1), &used);
      used += dash + 1;
    }
    if (used != part.size() || first < 0 || last < first || last >= kMostCpus) {
      throw std::invalid_argument(part);
    }
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
    at = end + 1;
  }
  return cpus;
}

/// The list of rising core numbers: "0-3,6".
inline std::string CpuListText(const std::vector<int>& cpus) {
  std::string text;
  for (size_t i = 0; i < cpus.size();) {
    size_t last = i;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += std::to_string(cpus[i]);
    if (last > i) text += '-' + std::to_string(cpus[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace autotune

#endif  // AUTOTUNE_COMMON_CPU_LIST_H_
