// SPDX-License-Identifier: Apache-2.0
#include "mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace autotune {
namespace step_runner {

Mapping::Mapping(uint64_t bytes) : bytes_(bytes) {
  void* pages =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) {
    throw std::runtime_error("no memory for " + std::to_string(bytes) + " bytes");
  }
  data_ = static_cast<char*>(pages);
}

Mapping::Mapping(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat about {};
  if (file < 0 || fstat(file, &about) != 0) {
    throw std::runtime_error("cannot read " + path + ": " + std::strerror(errno));
  }
  bytes_ = static_cast<uint64_t>(about.st_size);
  void* pages = bytes_ ? mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, file, 0) : nullptr;
  close(file);
  if (pages == MAP_FAILED) throw std::runtime_error("cannot map " + path);
  data_ = static_cast<char*>(pages);
}

Mapping::~Mapping() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

}  // namespace step_runner
}  // namespace autotune
