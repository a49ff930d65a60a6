// SPDX-License-Identifier: Apache-2.0
//
// What it costs to go from one setting to another.
#ifndef AUTOTUNE_STEP_RUNNER_SWITCHING_H_
#define AUTOTUNE_STEP_RUNNER_SWITCHING_H_

#include <functional>
#include <vector>

#include "settings.h"

namespace autotune {
namespace step_runner {

/// Median seconds that work takes longer just after a change, the change itself included, for each
/// ordered pair of settings; `told` hears of each.
void MeasureSwitches(const std::vector<Setting>& settings, int repeats,
                     const std::function<void(size_t from, size_t to, double seconds)>& told);

}  // namespace step_runner
}  // namespace autotune

#endif  // AUTOTUNE_STEP_RUNNER_SWITCHING_H_
