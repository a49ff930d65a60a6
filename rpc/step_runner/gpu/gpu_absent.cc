// SPDX-License-Identifier: Apache-2.0
//
// In place of gpu.cc, for steps that stay on the CPU: no OpenCL headers are needed then.
#include <stdexcept>

#include "gpu.h"

namespace autotune {
namespace step_runner {
namespace {

[[noreturn]] void Refuse() {
  throw std::runtime_error("this program was built without OpenCL");
}

}  // namespace

Gpu* Gpu::Open(const std::string&, const Plan&, char*, const std::vector<size_t>&, Memory, bool) {
  Refuse();
}

void MeasureCrossings(const std::string&, const Plan&, char*, int,
                      const std::function<void(const std::string&)>&,
                      const std::function<void(const Crossing&)>&) {
  Refuse();
}

}  // namespace step_runner
}  // namespace autotune
