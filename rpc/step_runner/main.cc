// SPDX-License-Identifier: Apache-2.0
//
// Runs training steps whose kernels TVM compiled for a CPU, without TVM, and prints a line a step:
//
//   step 3 loss 2.3025851 ms 41.25
//
// With --trace, a line before that with the time of CLOCK_MONOTONIC in seconds at which the first
// call began, and microseconds from each call's beginning to the next one's:
//
//   calls 1234.567890 812.1 34.9 ...
//
// Exit code 1 where the step fails, 2 for a wrong command line.
#include <time.h>

#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include "../cpu_runtime/thread_team.h"
#include "../cpu_runtime/tvm_symbols.h"
#include "options.h"
#include "settings.h"
#include "step.h"
#include "switching.h"

namespace autotune {
namespace step_runner {
namespace {

constexpr int kSwitchRepeats = 15;

double Now() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

void PrintCalls(const std::vector<double>& times) {
  std::printf("calls %.6f", times.front());
  for (size_t i = 1; i < times.size(); ++i) std::printf(" %.1f", 1e6 * (times[i] - times[i - 1]));
  std::printf("\n");
}

void RunSteps(const Options& options) {
  Settings changes;
  if (options.settings.empty()) {
    Setting setting;
    setting.threads = options.threads;
    changes.settings.push_back(setting);
  } else {
    changes = Settings::Read(options.settings);
  }
  Step step(options.folder);
  for (const auto& [call, variant] : changes.used) step.Use(call, variant);
  Switch between(changes.settings);
  std::vector<double> times(step.calls() + 1);
  for (uint64_t number = 0; options.steps == 0 || number < options.steps; ++number) {
    const double start = Now();
    const float loss = step.Run(number, [&](size_t call) {
      const auto change = changes.at.find(call);
      if (change != changes.at.end()) between.To(change->second);
      if (options.trace) times[call] = Now();
    });
    const double end = Now();
    if (options.trace) PrintCalls(times);
    std::printf("step %llu loss %.8g ms %.4f\n", static_cast<unsigned long long>(number + 1),
                static_cast<double>(loss), 1e3 * (end - start));
    std::fflush(stdout);
  }
}

int Main(const std::vector<std::string>& words) {
  Options options;
  try {
    options = Options::Parse(words);
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "autotune_step_runner: %s\n%s", error.what(), Options::Usage());
    return 2;
  }
  try {
    if (options.switches.empty()) {
      RunSteps(options);
    } else {
      MeasureSwitches(Settings::Read(options.switches).settings, kSwitchRepeats,
                      [](size_t from, size_t to, double seconds) {
                        std::printf("switch %zu %zu us %.2f\n", from, to, 1e6 * seconds);
                        std::fflush(stdout);
                      });
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "autotune_step_runner: %s\n", error.what());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace step_runner
}  // namespace autotune

int main(int argc, char** argv) {
  return autotune::step_runner::Main(std::vector<std::string>(argv + 1, argv + argc));
}
