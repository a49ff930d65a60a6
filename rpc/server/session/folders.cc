// SPDX-License-Identifier: Apache-2.0
#include "folders.h"

#include <filesystem>
#include <stdexcept>
#include <system_error>

namespace autotune {
namespace server {

void MakeFolders(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) throw std::runtime_error("cannot make " + path + ": " + error.message());
  std::filesystem::permissions(path, std::filesystem::perms::owner_all, error);
}

void RemoveFolder(const std::string& path) {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

}  // namespace server
}  // namespace autotune
