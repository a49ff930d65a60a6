// SPDX-License-Identifier: Apache-2.0
//
// What this machine's processor is.
#ifndef AUTOTUNE_KERNEL_LIBRARY_MACHINE_H_
#define AUTOTUNE_KERNEL_LIBRARY_MACHINE_H_

#include <string>

namespace autotune {
namespace kernel_library {

/// The chip's name, as `autotune devices` gives it; empty where the system does not tell.
std::string Soc();

/// The first of the features (a list that ends with null) that the processor lacks; null where it has all.
const char* MissingFeature(const char* const* features);

/// Whether two names are the same but for capitals and space at their ends.
bool SameName(const std::string& one, const std::string& other);

}  // namespace kernel_library
}  // namespace autotune

#endif  // AUTOTUNE_KERNEL_LIBRARY_MACHINE_H_
