// SPDX-License-Identifier: Apache-2.0
#include "plan.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace autotune {
namespace step_runner {
namespace {

constexpr size_t kElementBytes = 4;
constexpr size_t kMostAxes = 4;

uint64_t Number(const std::string& text) {
  if (text.empty() || text.size() > 18 ||
      !std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; })) {
    throw std::invalid_argument("'" + text + "' is no number");
  }
  return std::stoull(text);
}

std::vector<int64_t> Shape(const std::string& text) {
  std::vector<int64_t> shape;
  if (text == "-") return shape;
  std::istringstream axes(text);
  for (std::string axis; std::getline(axes, axis, 'x');) {
    shape.push_back(static_cast<int64_t>(Number(axis)));
  }
  return shape;
}

uint64_t Bytes(const std::vector<int64_t>& shape) {
  uint64_t bytes = kElementBytes;
  for (const int64_t axis : shape) {
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(axis), &bytes)) {
      throw std::invalid_argument("a shape is too large");
    }
  }
  return bytes;
}

size_t Index(const std::string& text, size_t count, const char* what) {
  const uint64_t index = Number(text);
  if (index >= count) throw std::invalid_argument(std::string("there is no ") + what + " " + text);
  return index;
}

/// Takes in one line.
class Reader {
 public:
  explicit Reader(Plan* plan) : plan_(plan) {}

  void Take(const std::string& line) {
    std::istringstream words(line);
    std::string kind;
    words >> kind;
    if (kind == "step") {
      words >> plan_->name;
    } else if (kind == "arena") {
      plan_->arena_bytes = Number(Word(&words));
    } else if (kind == "library") {
      plan_->libraries.push_back(Beside(Word(&words)));
    } else if (kind == "tensor") {
      TakeTensor(&words);
    } else if (kind == "kernel") {
      const std::string symbol = Word(&words);
      plan_->kernels.push_back({symbol, Index(Word(&words), plan_->libraries.size(), "library")});
    } else if (kind == "value") {
      plan_->values.push_back(Tensor(Word(&words)));
    } else if (kind == "feed") {
      plan_->feeds.push_back(Tensor(Word(&words)));
    } else if (kind == "call") {
      plan_->calls.push_back(Call(&words));
      plan_->variants.emplace_back();
    } else if (kind == "variant") {
      const size_t call = Index(Word(&words), plan_->calls.size(), "call");
      plan_->variants[call].push_back(Call(&words));
    } else if (kind == "copy") {
      const size_t from = Tensor(Word(&words)), to = Tensor(Word(&words));
      if (plan_->tensors[from].bytes != plan_->tensors[to].bytes) {
        throw std::invalid_argument("tensors of a copy differ in size");
      }
      plan_->copies.emplace_back(from, to);
    } else if (kind == "gpu") {
      plan_->gpu_folder = Beside(Word(&words));
      plan_->gpu_variant = Word(&words);
    } else if (kind == "order") {
      const size_t tensor = Tensor(Word(&words));
      plan_->orders[tensor] = TakeOrder(plan_->tensors[tensor], &words);
    } else if (kind == "offload") {
      const size_t call = Index(Word(&words), plan_->calls.size(), "call");
      plan_->offloaded[call] = Word(&words);
    } else if (kind == "loss") {
      plan_->loss = Tensor(Word(&words));
    } else {
      throw std::invalid_argument("'" + kind + "' is not known");
    }
  }

 private:
  static std::string Word(std::istringstream* words) {
    std::string word;
    if (!(*words >> word)) throw std::invalid_argument("a word is missing");
    return word;
  }

  static std::string Beside(const std::string& name) {
    if (name.find('/') != std::string::npos) {
      throw std::invalid_argument("'" + name + "' does not lie beside the plan");
    }
    return name;
  }

  static Order TakeOrder(const TensorPlace& tensor, std::istringstream* words) {
    Order order{Shape(Word(words)), {}};
    std::istringstream axes(Word(words));
    std::vector<bool> seen(order.shape.size());
    for (std::string axis; std::getline(axes, axis, ',');) {
      order.axes.push_back(Index(axis, seen.size(), "axis"));
      seen[order.axes.back()] = true;
    }
    const bool whole = std::count(seen.begin(), seen.end(), true) == std::ptrdiff_t(seen.size());
    if (!whole || order.axes.size() != seen.size() || seen.size() > kMostAxes ||
        Bytes(order.shape) != tensor.bytes) {
      throw std::invalid_argument("that is no order of the tensor");
    }
    return order;
  }

  size_t Tensor(const std::string& text) const {
    return Index(text, plan_->tensors.size(), "tensor");
  }

  void TakeTensor(std::istringstream* words) {
    const uint64_t offset = Number(Word(words));
    const std::string type = Word(words);
    if (type != "f32" && type != "i32") throw std::invalid_argument("type '" + type + "'");
    const uint8_t code = type == "f32" ? kDLFloat : kDLInt;
    const uint64_t bytes = Bytes(Shape(Word(words)));
    if (offset > plan_->arena_bytes || bytes > plan_->arena_bytes - offset) {
      throw std::invalid_argument("the tensor lies outside of the arena");
    }
    plan_->tensors.push_back({offset, {code, 32, 1}, bytes});
  }

  KernelCall Call(std::istringstream* words) const {
    KernelCall call{Index(Word(words), plan_->kernels.size(), "kernel"), {}};
    size_t* const counts[] = {&call.inputs, &call.outputs, nullptr};
    size_t part = 0;
    for (std::string word; *words >> word;) {
      if (word == ">") {
        if (counts[part++] == nullptr) throw std::invalid_argument("a call has three parts");
        continue;
      }
      if (counts[part] != nullptr) ++*counts[part];
      const size_t colon = word.find(':');
      if (colon == std::string::npos) throw std::invalid_argument("'" + word + "' has no shape");
      const Operand operand{Tensor(word.substr(0, colon)), Shape(word.substr(colon + 1))};
      if (Bytes(operand.shape) != plan_->tensors[operand.tensor].bytes) {
        throw std::invalid_argument("'" + word + "' is of another size than its tensor");
      }
      call.operands.push_back(operand);
    }
    return call;
  }

  Plan* plan_;
};

}  // namespace

uint64_t Plan::largest_bytes() const {
  uint64_t largest = 0;
  for (const TensorPlace& tensor : tensors) largest = std::max(largest, tensor.bytes);
  return largest;
}

Plan Plan::Read(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path);
  Plan plan;
  Reader reader(&plan);
  size_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (line.empty()) continue;
    try {
      reader.Take(line);
    } catch (const std::invalid_argument& error) {
      throw std::runtime_error(path + ":" + std::to_string(number) + ": " + error.what());
    }
  }
  if (plan.name.empty() || plan.calls.empty() || plan.tensors.empty()) {
    throw std::runtime_error(path + " is no step");
  }
  return plan;
}

}  // namespace step_runner
}  // namespace autotune
