// SPDX-License-Identifier: Apache-2.0
#include "step.h"

#include <cstring>
#include <fstream>
#include <stdexcept>

namespace autotune {
namespace step_runner {

Step::Step(const std::string& folder)
    : plan_(Plan::Read(folder + "/step.plan")),
      arena_(plan_.arena_bytes),
      feeds_(folder + "/feeds.bin"),
      folder_(folder) {
  for (const std::string& name : plan_.libraries) libraries_.emplace_back(folder + "/" + name);
  size_t operands = 0;
  for (const KernelCall& call : plan_.calls) operands += call.operands.size();
  for (const auto& variants : plan_.variants) {
    for (const KernelCall& call : variants) operands += call.operands.size();
  }
  // Their addresses are kept, so they may not move.
  tensors_.reserve(operands);
  strides_.reserve(operands);
  for (size_t call = 0; call < plan_.calls.size(); ++call) {
    std::vector<Bound> bound{Bind(plan_.calls[call])};
    for (const KernelCall& variant : plan_.variants[call]) bound.push_back(Bind(variant));
    calls_.push_back(std::move(bound));
  }
  used_.resize(calls_.size());
  for (const size_t tensor : plan_.feeds) feed_bytes_ += plan_.tensors[tensor].bytes;
  if (feed_bytes_ == 0 || feeds_.bytes() < feed_bytes_) {
    throw std::runtime_error(folder + "/feeds.bin is shorter than one step's data");
  }
  const Mapping values(folder + "/values.bin");
  uint64_t at = 0;
  for (const size_t tensor : plan_.values) {
    const uint64_t bytes = plan_.tensors[tensor].bytes;
    if (bytes > values.bytes() - at) {
      throw std::runtime_error(folder + "/values.bin is too short");
    }
    std::memcpy(Place(tensor), values.data() + at, bytes);
    at += bytes;
  }
}

Step::Bound Step::Bind(const KernelCall& call) {
  const KernelPlace& kernel = plan_.kernels[call.kernel];
  Bound bound{libraries_[kernel.library].Kernel(kernel.symbol), {}, tensors_.size()};
  for (const Operand& operand : call.operands) {
    std::vector<int64_t> strides(operand.shape.size());
    int64_t count = 1;
    for (size_t axis = strides.size(); axis-- > 0;) {
      strides[axis] = count;
      count *= operand.shape[axis];
    }
    strides_.push_back(std::move(strides));
    DLTensor tensor{};
    tensor.data = Place(operand.tensor);
    tensor.device = {kDLCPU, 0};
    tensor.ndim = static_cast<int32_t>(operand.shape.size());
    tensor.dtype = plan_.tensors[operand.tensor].dtype;
    tensor.shape = const_cast<int64_t*>(operand.shape.data());
    tensor.strides = strides_.back().data();
    tensors_.push_back(tensor);
    numbers_.push_back(operand.tensor);
    bound.arguments.push_back(cpu_runtime::Argument(&tensors_.back()));
  }
  return bound;
}

void Step::Call(const Bound& bound) {
  // Memory that a GPU shares may be elsewhere each time that it is mapped.
  for (size_t i = 0; gpu_ && i < bound.arguments.size(); ++i) {
    tensors_[bound.first + i].data = Place(numbers_[bound.first + i]);
  }
  cpu_runtime::Call(bound.function, bound.arguments);
}

void Step::Use(size_t call, size_t variant) {
  if (call >= calls_.size() || variant >= calls_[call].size()) {
    throw std::runtime_error("call " + std::to_string(call) + " has no variant " +
                             std::to_string(variant));
  }
  used_[call] = variant;
}

void Step::Offload(const std::vector<size_t>& calls, Memory memory, bool timed) {
  gpu_ = Gpu::Open(folder_, plan_, arena_.data(), calls, memory, timed);
}

float Step::Run(uint64_t number, const std::function<void(size_t call)>& before) {
  uint64_t at = (number % (feeds_.bytes() / feed_bytes_)) * feed_bytes_;
  for (const size_t tensor : plan_.feeds) {
    if (gpu_) gpu_->HostWrites(tensor);
    std::memcpy(Place(tensor), feeds_.data() + at, plan_.tensors[tensor].bytes);
    at += plan_.tensors[tensor].bytes;
  }
  for (size_t call = 0; call < calls_.size(); ++call) {
    before(call);
    const size_t used = used_[call];
    if (gpu_) gpu_->Bring(call, used == 0 ? plan_.calls[call] : plan_.variants[call][used - 1]);
    if (gpu_ && gpu_->Makes(call)) {
      gpu_->Enqueue(call);
    } else {
      Call(calls_[call][used]);
    }
  }
  if (gpu_) gpu_->Finish();
  before(calls_.size());
  for (const auto& [from, to] : plan_.copies) {
    if (gpu_) {
      gpu_->Copy(from, to);
    } else {
      std::memcpy(Place(to), Place(from), plan_.tensors[to].bytes);
    }
  }
  if (gpu_) {
    gpu_->HostReads(plan_.loss);
    gpu_->Finish();
    gpu_->Close();
  }
  float loss = 0;
  std::memcpy(&loss, Place(plan_.loss), sizeof(loss));
  return loss;
}

}  // namespace step_runner
}  // namespace autotune
