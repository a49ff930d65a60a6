// SPDX-License-Identifier: Apache-2.0
#include "measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>

namespace autotune {
namespace kernel_runner {

std::vector<double> Measure(const std::function<void()>& run, int repeat, double min_repeat_ms) {
  using Clock = std::chrono::steady_clock;
  const double least = min_repeat_ms / 1e3;
  std::vector<double> seconds;
  int64_t calls = 1;
  while (seconds.size() < static_cast<size_t>(repeat)) {
    const Clock::time_point start = Clock::now();
    for (int64_t i = 0; i < calls; ++i) run();
    const double elapsed = std::chrono::duration<double>(Clock::now() - start).count();
    if (elapsed >= least) {
      seconds.push_back(elapsed / static_cast<double>(calls));
      continue;
    }
    // A tenth more than seems needed, and at most a hundred times more: the first, cold call of a
    // very short kernel says little.
    const double factor = elapsed > 0 ? 1.1 * least / elapsed : 100.0;
    calls = std::max(calls + 1, static_cast<int64_t>(std::ceil(static_cast<double>(calls) *
                                                               std::min(factor, 100.0))));
  }
  return seconds;
}

}  // namespace kernel_runner
}  // namespace autotune
