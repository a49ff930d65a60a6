// SPDX-License-Identifier: Apache-2.0
#include "crash_memory.h"

#include <time.h>

#include <algorithm>
#include <cstddef>
#include <fstream>

#include "../../common/json_writer.h"

namespace autotune {
namespace server {
namespace {

constexpr size_t kMostLines = 200;

}  // namespace

CrashMemory::CrashMemory(std::string path) : path_(std::move(path)) {
  std::ifstream file(path_);
  for (std::string line; std::getline(file, line);) {
    // A line that a power cut has shortened is left out.
    if (line.size() > 2 && line.front() == '{' && line.back() == '}') lines_.push_back(line);
  }
  if (lines_.size() > kMostLines) lines_.erase(lines_.begin(), lines_.end() - kMostLines);
}

void CrashMemory::Add(uint64_t session, const std::string& cause, const std::string& candidate) {
  lines_.push_back(JsonObject()
                       .Number("session", session)
                       .Text("cause", cause)
                       .Text("candidate", candidate)
                       .Number("unix_s", static_cast<uint64_t>(time(nullptr)))
                       .str());
  if (lines_.size() > kMostLines) {
    lines_.erase(lines_.begin());
    std::ofstream all(path_, std::ios::trunc);
    for (const std::string& line : lines_) all << line << '\n';
    return;
  }
  std::ofstream(path_, std::ios::app) << lines_.back() << '\n';
}

std::string CrashMemory::Json(size_t last) const {
  const auto count = static_cast<std::ptrdiff_t>(std::min(last, lines_.size()));
  return JsonList(std::vector<std::string>(lines_.end() - count, lines_.end()));
}

}  // namespace server
}  // namespace autotune
