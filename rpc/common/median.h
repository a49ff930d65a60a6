// SPDX-License-Identifier: Apache-2.0
#ifndef AUTOTUNE_COMMON_MEDIAN_H_
#define AUTOTUNE_COMMON_MEDIAN_H_

#include <algorithm>
#include <cstddef>
#include <vector>

namespace autotune {

/// The middle value, of an even number the upper one; there must be one.
inline double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace autotune

#endif  // AUTOTUNE_COMMON_MEDIAN_H_
