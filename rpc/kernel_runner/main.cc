// SPDX-License-Identifier: Apache-2.0
//
// Runs one function of one kernel library that TVM compiled for a CPU, without TVM, and prints its
// times as JSON: {"status": "ok", "seconds": [...], "output_files": [...]} or
// {"status": "run_error", "message": "..."}. Exit code 0 for both, 2 for a wrong command line.
#include <dlfcn.h>
#include <tvm/ffi/c_api.h>

#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "../common/json_writer.h"
#include "crash_report.h"
#include "measure.h"
#include "options.h"
#include "tensor.h"
#include "thread_team.h"
#include "tvm_symbols.h"

namespace autotune {
namespace kernel_runner {
namespace {

/// The signature of every function that TVM exports from a library.
using KernelFunction = int (*)(void* self, const TVMFFIAny* args, int32_t num_args,
                               TVMFFIAny* result);

KernelFunction LoadKernel(const std::string& path, const std::string& symbol) {
  // dlopen looks for a name without a slash in the system's folders, not here.
  const std::string file = path.find('/') == std::string::npos ? "./" + path : path;
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error(dlerror());
  BindLibrary(library);
  for (const std::string& name : {symbol, "__tvm_ffi_" + symbol}) {
    if (void* address = dlsym(library, name.c_str())) {
      return reinterpret_cast<KernelFunction>(address);
    }
  }
  throw std::runtime_error(path + " has neither " + symbol + " nor __tvm_ffi_" + symbol);
}

std::string RunKernel(const Options& options) {
  ThreadTeam team(options.threads);
  UseTeam(&team);
  const KernelFunction kernel = LoadKernel(options.library, options.symbol);

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
    TVMFFIAny arg{};
    arg.type_index = kTVMFFIDLTensorPtr;
    arg.v_ptr = tensors.back()->handle();
    args.push_back(arg);
  }

  const auto run = [&] {
    TVMFFIAny result{};
    if (kernel(nullptr, args.data(), static_cast<int32_t>(args.size()), &result) != 0) {
      throw std::runtime_error(TakeRaisedError());
    }
  };
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
  ReportCrashes();
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
