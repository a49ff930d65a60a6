// SPDX-License-Identifier: Apache-2.0
#include "machine.h"

#include <algorithm>
#include <cctype>
#include <cstdio>

#ifdef __ANDROID__
#include <sys/system_properties.h>
#endif
#ifdef __aarch64__
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace autotune {
namespace kernel_library {
namespace {

/// A small file of the system; empty where there is none. Read without streams, which would make the library larger.
std::string FileText(const char* path) {
  std::string text;
  if (std::FILE* file = std::fopen(path, "rb")) {
    char block[4096];
    while (const size_t count = std::fread(block, 1, sizeof(block), file)) text.append(block, count);
    std::fclose(file);
  }
  return text;
}

/// A line's value in the text of /proc/cpuinfo; empty where no line has the key.
std::string Value(const std::string& text, const std::string& key) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    const size_t colon = line.find(':');
    if (colon == std::string::npos || line.compare(0, key.size(), key) != 0) continue;
    if (line.find_first_not_of(" \t", key.size()) != colon) continue;
    const size_t value = line.find_first_not_of(" \t", colon + 1);
    return value == std::string::npos ? "" : line.substr(value);
  }
  return "";
}

#ifdef __ANDROID__
std::string Property(const char* name) {
  char value[PROP_VALUE_MAX] = "";
  return __system_property_get(name, value) > 0 ? value : "";
}
#endif

/// The last of a device tree's names, which is the chip's: "raspberrypi,4-model-b", "brcm,bcm2711".
std::string DeviceTree() {
  std::string names = FileText("/proc/device-tree/compatible");
  while (!names.empty() && names.back() == '\0') names.pop_back();
  const size_t last = names.rfind('\0');
  if (last != std::string::npos) names.erase(0, last + 1);
  const size_t comma = names.rfind(',');
  return comma == std::string::npos ? names : names.substr(comma + 1);
}

/// The processor's features, as /proc/cpuinfo names them.
std::string Features() {
#ifdef __aarch64__
  // From the kernel itself: emulators pass the emulating machine's /proc/cpuinfo on.
  const struct {
    const char* name;
    unsigned long kind;
    unsigned long bit;
  } known[] = {
      {"asimddp", AT_HWCAP, HWCAP_ASIMDDP},   {"asimdhp", AT_HWCAP, HWCAP_ASIMDHP},
      {"asimdfhm", AT_HWCAP, HWCAP_ASIMDFHM}, {"asimdrdm", AT_HWCAP, HWCAP_ASIMDRDM},
      {"atomics", AT_HWCAP, HWCAP_ATOMICS},   {"lrcpc", AT_HWCAP, HWCAP_LRCPC},
      {"sve", AT_HWCAP, HWCAP_SVE},           {"sve2", AT_HWCAP2, HWCAP2_SVE2},
      {"i8mm", AT_HWCAP2, HWCAP2_I8MM},       {"bf16", AT_HWCAP2, HWCAP2_BF16},
  };
  std::string present;
  for (const auto& one : known) {
    if ((getauxval(one.kind) & one.bit) != 0) present += std::string(one.name) + " ";
  }
  return present;
#else
  return Value(FileText("/proc/cpuinfo"), "flags");
#endif
}

std::string Folded(const std::string& name) {
  const size_t first = name.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) return "";
  const size_t last = name.find_last_not_of(" \t\r\n");
  std::string folded;
  for (const char c : name.substr(first, last - first + 1)) {
    folded += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return folded;
}

}  // namespace

std::string Soc() {
  std::string found;
#ifdef __ANDROID__
  found = Property("ro.soc.model");
  if (found.empty()) found = Property("ro.board.platform");
#endif
  if (found.empty()) found = DeviceTree();
  const std::string processor = found.empty() ? FileText("/proc/cpuinfo") : "";
  if (found.empty()) found = Value(processor, "Hardware");
  if (found.empty()) found = Value(processor, "model name");
  return found;
}

const char* MissingFeature(const char* const* features) {
  if (*features == nullptr) return nullptr;
  const std::string present = " " + Features() + " ";
  for (; *features != nullptr; ++features) {
    if (present.find(" " + std::string(*features) + " ") == std::string::npos) return *features;
  }
  return nullptr;
}

bool SameName(const std::string& one, const std::string& other) {
  return Folded(one) == Folded(other);
}

}  // namespace kernel_library
}  // namespace autotune
