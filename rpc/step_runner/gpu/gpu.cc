// SPDX-License-Identifier: Apache-2.0
#include "gpu.h"

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>
#include <tuple>

#include "../../common/clock.h"
#include "../../common/median.h"
#include "../../common/programs_folder.h"
#include "gpu_memory.h"
#include "opencl.h"

namespace autotune {
namespace step_runner {
namespace {

/// Tensors in places that host and GPU both use while the GPU makes some calls.
std::set<size_t> Both(const Plan& plan, const std::vector<size_t>& calls) {
  using Range = std::pair<uint64_t, uint64_t>;
  const auto range = [&](size_t tensor) {
    return Range(plan.tensors[tensor].offset, plan.tensors[tensor].bytes);
  };
  const std::set<size_t> there(calls.begin(), calls.end());
  std::set<Range> host{range(plan.loss)}, gpu;
  for (const size_t tensor : plan.feeds) host.insert(range(tensor));
  for (size_t call = 0; call < plan.calls.size(); ++call) {
    for (const Operand& operand : plan.calls[call].operands) {
      (there.count(call) != 0 ? gpu : host).insert(range(operand.tensor));
    }
  }
  std::set<size_t> both;
  for (size_t tensor = 0; tensor < plan.tensors.size(); ++tensor) {
    if (host.count(range(tensor)) != 0 && gpu.count(range(tensor)) != 0) both.insert(tensor);
  }
  return both;
}

class OpenClGpu final : public Gpu {
 public:
  OpenClGpu(const std::string& folder, const Plan& plan, char* arena,
            const std::vector<size_t>& calls, Memory memory, bool timed)
      : plan_(plan),
        timed_(timed),
        cl_(timed),
        memory_(cl_, plan, arena, memory, Both(plan, calls), ProgramsFolder(folder + "/programs"), timed) {
    autotune_opencl::Options options;
    options.variant = plan.gpu_variant;
    options.cache_folder = ProgramsFolder(folder + "/programs");
    const std::string kernels = folder + "/" + plan.gpu_folder;
    Require(autotune_opencl::Library::Open(kernels, cl_.context(), cl_.device(), options, &library_));
    for (const size_t call : calls) {
      const auto found = plan.offloaded.find(call);
      if (found == plan.offloaded.end()) {
        throw std::runtime_error("call " + std::to_string(call) + " has no kernel for a GPU");
      }
      Require(library_->Prepare(found->second));
      names_[call] = found->second;
    }
    Clear();
  }

  char* Host(size_t tensor) const override { return memory_.Host(tensor); }
  bool Makes(size_t call) const override { return names_.count(call) != 0; }

  void Bring(size_t call, const KernelCall& as) override {
    for (size_t i = 0; i < as.operands.size(); ++i) {
      const size_t tensor = as.operands[i].tensor;
      const bool reads = i < as.inputs;
      if (!Makes(call)) {
        reads ? memory_.HostReads(tensor) : memory_.HostWrites(tensor);
      } else if (i < as.inputs + as.outputs) {
        reads ? memory_.GpuReads(tensor) : memory_.GpuWrites(tensor);
      }
    }
    TakeCrossings(call);
  }

  void Close() override { TakeCrossings(plan_.calls.size()); }

  void Enqueue(size_t call) override {
    const KernelCall& as = plan_.calls[call];
    std::vector<cl_mem> operands;
    for (size_t i = 0; i < as.inputs + as.outputs; ++i) {
      operands.push_back(memory_.Operand(as.operands[i].tensor));
    }
    const auto enqueue = [&](cl_event* done) {
      Require(library_->Enqueue(names_.at(call), cl_.queue(), operands.data(), operands.size(), done));
    };
    if (!timed_) {
      enqueue(nullptr);
      return;
    }
    Timed timed{call, cl_.Marker(), Event()};
    cl_event end = nullptr;
    enqueue(&end);
    timed.end = cl_.Own(end);
    made_.push_back(std::move(timed));
  }

  void HostReads(size_t tensor) override { memory_.HostReads(tensor); }
  void HostWrites(size_t tensor) override { memory_.HostWrites(tensor); }
  void Copy(size_t from, size_t to) override { memory_.Copy(from, to); }
  void Finish() override { cl_.Finish(); }

  std::vector<GpuTimes> Times() override {
    for (const Timed& one : made_) times_[one.call].ran += Seconds(one);
    for (const auto& [way, one] : enqueued_) times_[one.call].crossed[way] += Seconds(one);
    std::vector<GpuTimes> found = std::move(times_);
    Clear();
    return found;
  }

 private:
  struct Timed {
    size_t call;
    Event begin, end;
  };

  static void Require(const autotune_opencl::Status& status) {
    if (!status.ok()) throw std::runtime_error(status.text);
  }

  void TakeCrossings(size_t call) {
    CrossingTimes times = memory_.TakeTimes();
    times_[call].waited = times.waited;
    times_[call].crossed = times.crossed;
    for (auto& [way, before, after] : times.enqueued) {
      enqueued_.emplace_back(way, Timed{call, std::move(before), std::move(after)});
    }
  }

  double Seconds(const Timed& one) const {
    return std::max(0.0, cl_.End(one.end) - cl_.End(one.begin));
  }

  void Clear() {
    made_.clear();
    enqueued_.clear();
    times_.assign(plan_.calls.size() + 1, {});
  }

  const Plan& plan_;
  const bool timed_;
  OpenCl cl_;
  GpuMemory memory_;
  std::unique_ptr<autotune_opencl::Library> library_;
  std::map<size_t, std::string> names_;
  std::vector<Timed> made_;
  std::vector<std::pair<Way, Timed>> enqueued_;
  std::vector<GpuTimes> times_;
};

/// A plan of one tensor, whose memory has no parts that overlap (`Gpu::Open`).
Plan Alone(const TensorPlace& tensor) {
  Plan plan;
  plan.arena_bytes = tensor.bytes;
  plan.tensors = {{0, tensor.dtype, tensor.bytes}};
  return plan;
}

/// Medians of a tensor's way to the GPU and back.
std::pair<double, double> Cross(const OpenCl& cl, GpuMemory* memory, size_t tensor, int repeats) {
  std::vector<double> there, back;
  for (int repeat = 0; repeat <= repeats; ++repeat) {
    memory->HostWrites(tensor);
    const double start = Now();
    memory->GpuReads(tensor);
    cl.Finish();
    const double middle = Now();
    memory->GpuWrites(tensor);
    const double after = Now();
    memory->HostReads(tensor);
    const double end = Now();
    if (repeat == 0) continue;  // Buffers are made at first use.
    there.push_back(middle - start);
    back.push_back(end - after);
  }
  return {Median(std::move(there)), Median(std::move(back))};
}

}  // namespace

Gpu* Gpu::Open(const std::string& folder, const Plan& plan, char* arena,
               const std::vector<size_t>& calls, Memory memory, bool timed) {
  return new OpenClGpu(folder, plan, arena, calls, memory, timed);
}

void MeasureCrossings(const std::string& folder, const Plan& plan, char* arena, int repeats,
                      const std::function<void(const std::string&)>& device,
                      const std::function<void(const Crossing&)>& each) {
  const OpenCl cl(false);
  const std::string programs = ProgramsFolder(folder + "/programs");
  const autotune_opencl::DeviceInfo info = autotune_opencl::internal::Describe(cl.api(), cl.device());
  const auto type = autotune_opencl::internal::DeviceValue<cl_device_type>(cl.api(), cl.device(),
                                                                           CL_DEVICE_TYPE);
  const bool gpu = (type & CL_DEVICE_TYPE_GPU) != 0;
  device((gpu ? "gpu " : "other ") + info.name + ", " + info.driver);
  std::set<size_t> crossing;
  for (const auto& [call, kernel] : plan.offloaded) {
    const KernelCall& as = plan.calls[call];
    for (size_t i = 0; i < as.inputs + as.outputs; ++i) crossing.insert(as.operands[i].tensor);
  }
  std::map<std::tuple<uint64_t, std::vector<int64_t>, std::vector<size_t>>, size_t> kinds;
  for (const size_t tensor : crossing) {
    const auto order = plan.orders.find(tensor);
    const bool same = order == plan.orders.end();
    kinds.emplace(std::make_tuple(plan.tensors[tensor].bytes,
                                  same ? std::vector<int64_t>() : order->second.shape,
                                  same ? std::vector<size_t>() : order->second.axes),
                  tensor);
  }
  for (const Memory kind : {Memory::kCopy, Memory::kMap}) {
    for (const auto& one : kinds) {
      const size_t tensor = one.second;
      const TensorPlace& place = plan.tensors[tensor];
      const auto crossed = [&](const Plan& alone) {
        GpuMemory memory(cl, alone, arena + place.offset, kind, {0}, programs, false);
        return Cross(cl, &memory, 0, repeats);
      };
      Plan alone = Alone(place);
      Crossing found{tensor, kind, 0, 0, 0, 0};
      std::tie(found.to_gpu, found.to_host) = crossed(alone);
      const auto order = plan.orders.find(tensor);
      if (order != plan.orders.end()) {
        alone.orders.emplace(0, order->second);
        const auto [to_gpu, to_host] = crossed(alone);
        found.reorder_to_gpu = std::max(0.0, to_gpu - found.to_gpu);
        found.reorder_to_host = std::max(0.0, to_host - found.to_host);
      }
      each(found);
    }
  }
}

}  // namespace step_runner
}  // namespace autotune
