// SPDX-License-Identifier: Apache-2.0
#include "tensor.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>

namespace autotune {
namespace kernel_runner {
namespace {

constexpr size_t kAlignment = 64;

DLDataType ParseType(const std::string& name) {
  static const std::map<std::string, DLDataType> types = {
      {"f16", {kDLFloat, 16, 1}}, {"f32", {kDLFloat, 32, 1}},  {"f64", {kDLFloat, 64, 1}},
      {"bf16", {kDLBfloat, 16, 1}}, {"i8", {kDLInt, 8, 1}},    {"i16", {kDLInt, 16, 1}},
      {"i32", {kDLInt, 32, 1}},   {"i64", {kDLInt, 64, 1}},    {"u8", {kDLUInt, 8, 1}},
      {"u16", {kDLUInt, 16, 1}},  {"u32", {kDLUInt, 32, 1}},   {"u64", {kDLUInt, 64, 1}},
      {"bool", {kDLBool, 8, 1}}};
  const auto it = types.find(name);
  if (it == types.end()) throw std::invalid_argument("unknown element type '" + name + "'");
  return it->second;
}

std::vector<int64_t> ParseShape(const std::string& text) {
  std::vector<int64_t> shape;
  std::istringstream axes(text);
  for (std::string axis; std::getline(axes, axis, 'x');) {
    if (axis.empty() || axis.size() > 12 ||
        !std::all_of(axis.begin(), axis.end(), [](char c) { return c >= '0' && c <= '9'; })) {
      throw std::invalid_argument("malformed shape '" + text + "'");
    }
    shape.push_back(std::stoll(axis));
  }
  return shape;
}

}  // namespace

TensorSpec TensorSpec::Parse(const std::string& text, bool is_output) {
  const size_t first = text.find(':');
  const size_t second = first == std::string::npos ? first : text.find(':', first + 1);
  if (second == std::string::npos || second + 1 == text.size()) {
    throw std::invalid_argument("'" + text + "' is not TYPE:SHAPE:FILE");
  }
  TensorSpec spec;
  spec.dtype = ParseType(text.substr(0, first));
  spec.shape = ParseShape(text.substr(first + 1, second - first - 1));
  spec.path = text.substr(second + 1);
  spec.is_output = is_output;
  return spec;
}

Tensor::Tensor(const TensorSpec& spec) : spec_(spec), strides_(spec.shape.size()) {
  int64_t count = 1;
  for (size_t axis = spec_.shape.size(); axis-- > 0;) {
    strides_[axis] = count;
    if (__builtin_mul_overflow(count, spec_.shape[axis], &count) || count > INT64_MAX / 16) {
      throw std::runtime_error("the tensor of " + spec_.path + " is too large");
    }
  }
  bytes_ = static_cast<size_t>(count) * (spec_.dtype.bits / 8);
  data_.reset(std::aligned_alloc(kAlignment, (bytes_ / kAlignment + 1) * kAlignment));
  if (data_ == nullptr) {
    throw std::runtime_error("no memory for " + std::to_string(bytes_) + " bytes of " + spec_.path);
  }
  handle_.data = data_.get();
  handle_.device = {kDLCPU, 0};
  handle_.ndim = static_cast<int32_t>(spec_.shape.size());
  handle_.dtype = spec_.dtype;
  handle_.shape = spec_.shape.data();
  handle_.strides = strides_.data();
}

void Tensor::Load() {
  std::ifstream file(spec_.path, std::ios::binary | std::ios::ate);
  if (!file) throw std::runtime_error("cannot read " + spec_.path);
  const auto size = static_cast<size_t>(file.tellg());
  if (size != bytes_) {
    throw std::runtime_error(spec_.path + " has " + std::to_string(size) + " bytes, not " +
                             std::to_string(bytes_));
  }
  file.seekg(0);
  file.read(static_cast<char*>(data_.get()), static_cast<std::streamsize>(bytes_));
  if (!file) throw std::runtime_error("cannot read " + spec_.path);
}

void Tensor::Poison() {
  // All bits set are a NaN in every IEEE format and in bfloat16.
  const bool real = spec_.dtype.code == kDLFloat || spec_.dtype.code == kDLBfloat;
  std::memset(data_.get(), real ? 0xff : 0x7f, bytes_);
}

void Tensor::Store() const {
  std::ofstream file(spec_.path, std::ios::binary | std::ios::trunc);
  file.write(static_cast<const char*>(data_.get()), static_cast<std::streamsize>(bytes_));
  file.close();
  if (!file) throw std::runtime_error("cannot write " + spec_.path);
}

}  // namespace kernel_runner
}  // namespace autotune
