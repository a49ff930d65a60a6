// SPDX-License-Identifier: Apache-2.0
//
// The tensors that a kernel is called with, and the raw files they come from and go to.
#ifndef AUTOTUNE_KERNEL_RUNNER_TENSOR_H_
#define AUTOTUNE_KERNEL_RUNNER_TENSOR_H_

#include <dlpack/dlpack.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

namespace autotune {
namespace kernel_runner {

/// "f32:4x3x8x8:path": a type, a shape and a raw little-endian file. "f32::path" has no axes.
struct TensorSpec {
  DLDataType dtype{};
  std::vector<int64_t> shape;
  std::string path;
  bool is_output = false;

  /// Throws std::invalid_argument where the text is malformed.
  static TensorSpec Parse(const std::string& text, bool is_output);
};

/// A compact CPU tensor, aligned as generated vector code expects.
class Tensor {
 public:
  explicit Tensor(const TensorSpec& spec);
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;

  DLTensor* handle() { return &handle_; }

  /// Reads the spec's file; its size must be the tensor's.
  void Load();
  /// Fills with values that no kernel computes (NaN, or bytes of 0x7f), so that an element left
  /// unwritten shows in the result.
  void Poison();
  void Store() const;

 private:
  struct Free {
    void operator()(void* data) const { std::free(data); }
  };

  TensorSpec spec_;
  std::vector<int64_t> strides_;
  size_t bytes_ = 0;
  std::unique_ptr<void, Free> data_;
  DLTensor handle_{};
};

}  // namespace kernel_runner
}  // namespace autotune

#endif  // AUTOTUNE_KERNEL_RUNNER_TENSOR_H_
