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
// and where a GPU makes some calls, for each of them and for those that wait before they begin, its number
// and microseconds on the GPU, waiting for the GPU, and bringing tensors to and fro: copying, mapping and reordering
// them; after the last call, what the end of the step took:
//
//   gpu 3:120.5:0.0:61.2:0.0:5.1 4:80.1:0.0:0.0:0.0:0.0 ...
//
// With --crossings, the OpenCL device, and microseconds of what it costs to bring a tensor to the GPU and
// back, by a copy or by mapping, and to change its order meanwhile:
//
//   opencl gpu|other NAME, DRIVER
//   crossing TENSOR copy 35.1 40.2 reorder 5.0 6.1
//
// Exit code 1 where the step fails, 2 for a wrong command line.
#include <algorithm>
#include <array>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include "../common/clock.h"
#include "../cpu_runtime/thread_team.h"
#include "../cpu_runtime/tvm_symbols.h"
#include "gpu/gpu.h"
#include "options.h"
#include "settings.h"
#include "step.h"
#include "switching.h"

namespace autotune {
namespace step_runner {
namespace {

constexpr int kSwitchRepeats = 15;
constexpr int kCrossingRepeats = 9;

void PrintCalls(const std::vector<double>& times) {
  std::printf("calls %.6f", times.front());
  for (size_t i = 1; i < times.size(); ++i) std::printf(" %.3f", 1e6 * (times[i] - times[i - 1]));
  std::printf("\n");
}

void PrintGpu(const std::vector<GpuTimes>& times) {
  std::printf("gpu");
  for (size_t call = 0; call < times.size(); ++call) {
    const GpuTimes& one = times[call];
    const std::array<double, 5> took{one.ran, one.waited, one.crossed[kCopied], one.crossed[kMapped],
                                     one.crossed[kReordered]};
    if (std::all_of(took.begin(), took.end(), [](double seconds) { return seconds == 0; })) continue;
    std::printf(" %zu", call);
    for (const double seconds : took) std::printf(":%.3f", 1e6 * seconds);
  }
  std::printf("\n");
}

void PrintCrossings(const std::string& folder) {
  const Step step(folder);
  MeasureCrossings(
      folder, step.plan(), step.arena(), kCrossingRepeats,
      [](const std::string& device) { std::printf("opencl %s\n", device.c_str()); },
      [](const Crossing& one) {
        std::printf("crossing %zu %s %.2f %.2f reorder %.2f %.2f\n", one.tensor,
                    one.memory == Memory::kMap ? "map" : "copy", 1e6 * one.to_gpu,
                    1e6 * one.to_host, 1e6 * one.reorder_to_gpu, 1e6 * one.reorder_to_host);
        std::fflush(stdout);
      });
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
  if (!changes.on_gpu.empty()) step.Offload(changes.on_gpu, changes.memory, options.trace);
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
    if (options.trace && step.gpu() != nullptr) PrintGpu(step.gpu()->Times());
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
    if (options.crossings) {
      PrintCrossings(options.folder);
    } else if (options.switches.empty()) {
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
