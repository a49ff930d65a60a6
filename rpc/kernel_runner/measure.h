// SPDX-License-Identifier: Apache-2.0
#ifndef AUTOTUNE_KERNEL_RUNNER_MEASURE_H_
#define AUTOTUNE_KERNEL_RUNNER_MEASURE_H_

#include <functional>
#include <vector>

namespace autotune {
namespace kernel_runner {

/// Calls `run` until each of `repeat` measurements took at least `min_repeat_ms`, and returns the
/// mean seconds of one call for each. The number of calls only grows, so later measurements rarely
/// have to be taken again.
std::vector<double> Measure(const std::function<void()>& run, int repeat, double min_repeat_ms);

}  // namespace kernel_runner
}  // namespace autotune

#endif  // AUTOTUNE_KERNEL_RUNNER_MEASURE_H_
