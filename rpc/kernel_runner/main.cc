// SPDX-License-Identifier: Apache-2.0
//
// Runs one function of one kernel library that TVM compiled for a CPU, without TVM, and prints its
// times as JSON: {"status": "ok", "seconds": [...], "output_files": [...]} or
// {"status": "run_error", "message": "..."}. Exit code 0 for both, 2 for a wrong command line.
#include <tvm/ffi/c_api.h>

#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "../common/json_writer.h"
#include "../cpu_runtime/crash_report.h"
#include "../cpu_runtime/library.h"
#include "../cpu_runtime/thread_team.h"
#include "../cpu_runtime/tvm_symbols.h"
#include "measure.h"
#include "options.h"
#include "tensor.h"

namespace autotune {
namespace kernel_runner {
namespace {

std::string RunKernel(const Options& options) {
  cpu_runtime::ThreadTeam team(options.threads);
  cpu_runtime::UseTeam(&team);
  const cpu_runtime::Library library(options.library);
  const cpu_runtime::KernelFunction kernel = library.Kernel(options.symbol);

  std::vector<std::unique_ptr<Tensor>> tensors;
  std::vector<TVMFFIAny> args;
  std::vector<std::string> output_files;
  for (const TensorSpec& spec : options.tensors) {
    tensors.push_back(std::make_unique<Tensor>(spec));
    if (spec.is_output) {
      tensors.back()->Poison();
      output_files.push_back(JsonString(spec.path));
    } else {
      tensors.back()->Load();
    }
    args.push_back(cpu_runtime::Argument(tensors.back()->handle()));
  }

  const auto run = [&] { cpu_runtime::Call(kernel, args); };
  run();
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (options.tensors[i].is_output) tensors[i]->Store();
  }
  std::vector<std::string> seconds;
  for (const double value : Measure(run, options.repeat, options.min_repeat_ms)) {
    seconds.push_back(JsonReal(value));
  }
  return JsonObject()
      .Text("status", "ok")
      .Raw("seconds", JsonList(seconds))
      .Raw("output_files", JsonList(output_files))
      .str();
}

int Main(const std::vector<std::string>& words) {
  Options options;
  try {
    options = Options::Parse(words);
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "autotune_kernel_runner: %s\n%s", error.what(), Options::Usage());
    return 2;
  }
  cpu_runtime::ReportCrashes();
  std::string json;
  try {
    json = RunKernel(options);
  } catch (const std::exception& error) {
    json = JsonObject().Text("status", "run_error").Text("message", error.what()).str();
  }
  std::puts(json.c_str());
  return 0;
}

}  // namespace
}  // namespace kernel_runner
}  // namespace autotune

int main(int argc, char** argv) {
  return autotune::kernel_runner::Main(std::vector<std::string>(argv + 1, argv + argc));
}
