// SPDX-License-Identifier: Apache-2.0
//
// A training step as a file: one line a thing, words apart by spaces.
//
//   step NAME                          first line
//   arena BYTES
//   library FILE                       beside the plan
//   tensor OFFSET TYPE SHAPE           type f32 or i32; shape such as 4x3x8x8, or - for a scalar
//   kernel SYMBOL LIBRARY              by the number of the library
//   value TENSOR                       values.bin holds them one after the other
//   feed TENSOR                        feeds.bin holds them, step after step
//   call KERNEL TENSOR:SHAPE ... > TENSOR:SHAPE ... > TENSOR:SHAPE ...
//                                      in order; inputs, outputs and scratch, each of which may be
//                                      seen in another shape than it has
//   variant CALL KERNEL TENSOR:SHAPE ...  another way to make a call, by its number; settings choose it
//   gpu FOLDER VARIANT                 an OpenCL export beside the plan, and which of its variants
//   order TENSOR SHAPE AXES            how the GPU has a tensor: the axes of its shape on the CPU, such
//                                      as 8x32x32x16 0,3,1,2
//   offload CALL KERNEL                a call that the GPU can make, and its kernel there
//   copy FROM TO                       after the calls
//   loss TENSOR
#ifndef AUTOTUNE_STEP_RUNNER_PLAN_H_
#define AUTOTUNE_STEP_RUNNER_PLAN_H_

#include <dlpack/dlpack.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace autotune {
namespace step_runner {

struct TensorPlace {
  uint64_t offset;
  DLDataType dtype;
  uint64_t bytes;
};

struct KernelPlace {
  std::string symbol;
  size_t library;
};

struct Operand {
  size_t tensor;
  std::vector<int64_t> shape;
};

struct KernelCall {
  size_t kernel;
  std::vector<Operand> operands;  ///< Inputs, then outputs, then scratch.
  size_t inputs = 0, outputs = 0;
};

/// The axes of a tensor on the CPU, in the order in which the GPU has them.
struct Order {
  std::vector<int64_t> shape;
  std::vector<size_t> axes;
};

struct Plan {
  std::string name;
  uint64_t arena_bytes = 0;
  std::vector<std::string> libraries;
  std::vector<TensorPlace> tensors;
  std::vector<KernelPlace> kernels;
  std::vector<size_t> values;
  std::vector<size_t> feeds;
  std::vector<KernelCall> calls;
  std::vector<std::vector<KernelCall>> variants;  ///< Of each call, beside the call itself.
  std::vector<std::pair<size_t, size_t>> copies;
  size_t loss = 0;
  std::string gpu_folder, gpu_variant;       ///< Empty where no call can run on a GPU.
  std::map<size_t, Order> orders;            ///< Of tensors that the GPU has in another order.
  std::map<size_t, std::string> offloaded;   ///< The GPU's kernel by call.

  uint64_t largest_bytes() const;

  /// Throws std::runtime_error with the line that is wrong.
  static Plan Read(const std::string& path);
};

}  // namespace step_runner
}  // namespace autotune

#endif  // AUTOTUNE_STEP_RUNNER_PLAN_H_
