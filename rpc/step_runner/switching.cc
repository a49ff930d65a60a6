// SPDX-License-Identifier: Apache-2.0
#include "switching.h"

#include <tvm/runtime/c_backend_api.h>

#include <utility>

#include "../common/clock.h"
#include "../common/median.h"

namespace autotune {
namespace step_runner {
namespace {

constexpr int kRounds = 4;
constexpr int kWorkOfARound = 200000;

/// Work that no compiler leaves out, and that needs no memory.
int Work(int, TVMParallelGroupEnv*, void*) {
  volatile double sink = 0;
  double value = 1.0;
  for (int i = 0; i < kWorkOfARound; ++i) value = value * 1.0000001 + 1e-9;
  sink = value;
  (void)sink;
  return 0;
}

/// Some parallel loops, as kernels have them.
double Rounds() {
  const double start = Now();
  for (int round = 0; round < kRounds; ++round) TVMBackendParallelLaunch(Work, nullptr, 0);
  return Now() - start;
}

}  // namespace

void MeasureSwitches(const std::vector<Setting>& settings, int repeats,
                     const std::function<void(size_t, size_t, double)>& told) {
  Switch between(settings);
  for (size_t from = 0; from < settings.size(); ++from) {
    for (size_t to = 0; to < settings.size(); ++to) {
      if (from == to) continue;
      std::vector<double> costs;
      for (int i = 0; i < repeats; ++i) {
        between.To(from);
        Rounds();
        const double start = Now();
        between.To(to);
        const double changed = Now() - start;
        const double first = Rounds();
        const double settled = Rounds();
        costs.push_back(changed + first - settled);
      }
      told(from, to, Median(std::move(costs)));
    }
  }
}

}  // namespace step_runner
}  // namespace autotune
