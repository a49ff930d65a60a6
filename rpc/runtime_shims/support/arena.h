// SPDX-License-Identifier: Apache-2.0
#ifndef AUTOTUNE_RUNTIME_SHIMS_SUPPORT_ARENA_H_
#define AUTOTUNE_RUNTIME_SHIMS_SUPPORT_ARENA_H_

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

namespace tvm {
namespace support {

/// Memory for the arguments of one call, given back all at once. Nothing in it is destroyed.
class Arena {
 public:
  template <typename T>
  T* allocate_(size_t count = 1) {
    static_assert(alignof(T) <= kAlign, "a page begins at an address for any plain type");
    return reinterpret_cast<T*>(Take(count * sizeof(T)));
  }

  void RecycleAll() {
    if (!pages_.empty() && first_size_ > kPage) pages_.clear();
    if (!pages_.empty()) pages_.resize(1);
    left_ = pages_.empty() ? 0 : first_size_;
    next_ = pages_.empty() ? nullptr : pages_[0].get();
  }

 private:
  static constexpr size_t kPage = 16384;
  static constexpr size_t kAlign = alignof(std::max_align_t);

  char* Take(size_t size) {
    size = (size + kAlign - 1) / kAlign * kAlign;
    if (size > left_) {
      left_ = std::max(size, kPage);
      pages_.emplace_back(new char[left_]);  // Aligned as `new` aligns: for any plain type.
      next_ = pages_.back().get();
      if (pages_.size() == 1) first_size_ = left_;
    }
    char* taken = next_;
    next_ += size;
    left_ -= size;
    return taken;
  }

  std::vector<std::unique_ptr<char[]>> pages_;
  size_t first_size_ = 0;
  char* next_ = nullptr;
  size_t left_ = 0;
};

}  // namespace support
}  // namespace tvm

#endif  // AUTOTUNE_RUNTIME_SHIMS_SUPPORT_ARENA_H_
