// SPDX-License-Identifier: Apache-2.0
#include "measure.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "../common/clock.h"

namespace autotune {
namespace kernel_runner {

std::vector<double> Measure(const std::function<void()>& run, int repeat, double min_repeat_ms) {
  const double least = min_repeat_ms / 1e3;
  std::vector<double> seconds;
  int64_t calls = 1;
  while (seconds.size() < static_cast<size_t>(repeat)) {
    const double start = Now();
    for (int64_t i = 0; i < calls; ++i) run();
    const double elapsed = Now() - start;
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
