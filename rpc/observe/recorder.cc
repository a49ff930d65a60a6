// SPDX-License-Identifier: Apache-2.0
#include "recorder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "../common/json_writer.h"

namespace autotune {
namespace observe {
namespace {

constexpr size_t kMostBytes = 16384;

std::string Seconds(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.6f", value);
  return text;
}

/// The file's text as a JSON string; "null" where it cannot be read. Opened anew each time: drivers
/// answer at open.
std::string Content(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return "null";
  char buffer[kMostBytes];
  size_t size = 0;
  ssize_t got = 0;
  while (size < sizeof(buffer) && (got = read(file, buffer + size, sizeof(buffer) - size)) > 0) {
    size += static_cast<size_t>(got);
  }
  close(file);
  if (got < 0) return "null";
  while (size > 0 && (buffer[size - 1] == '\n' || buffer[size - 1] == '\0')) --size;
  return JsonString(std::string(buffer, size));
}

}  // namespace

Recorder::Recorder(const std::string& path)
    : file_(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644)) {
  if (file_ < 0) throw std::runtime_error(path + ": " + std::strerror(errno));
}

Recorder::~Recorder() { close(file_); }

bool Recorder::Unwanted() const {
  struct stat about;
  return fstat(file_, &about) == 0 && about.st_nlink == 0;
}

void Recorder::Begin(const std::vector<std::string>& watch, double interval_s, int pid) {
  std::string names;
  const size_t mark_size = 2;
  for (std::string path : watch) {
    const size_t mark = path.find("%p");
    if (mark != std::string::npos) path.replace(mark, mark_size, std::to_string(pid));
    watch_.push_back(path);
    names += (names.empty() ? "" : ",") + JsonString(path);
  }
  Write("{\"begin\":" + Seconds(Now()) + ",\"pid\":" + std::to_string(pid) +
        ",\"interval_s\":" + Seconds(interval_s) + ",\"watch\":[" + names + "]}");
}

void Recorder::Sample() {
  if (watch_.empty()) return;
  const double before = Now();
  std::string values;
  for (const std::string& path : watch_) {
    if (!values.empty()) values += ',';
    values += Content(path);
  }
  Write("{\"sample\":[" + Seconds(before) + "," + Seconds(Now()) + ",[" + values + "]]}");
}

void Recorder::Line(const char* kind, double at, const std::string& text) {
  Write(std::string("{\"") + kind + "\":[" + Seconds(at) + "," + JsonString(text) + "]}");
}

void Recorder::Cpus(const std::string& list) {
  if (list == cpus_) return;
  cpus_ = list;
  Write("{\"cpus\":[" + Seconds(Now()) + "," + JsonString(list) + "]}");
}

void Recorder::End(int exit_code, long max_rss_kb, double user_s, double system_s,
                   const std::string& why) {
  Write("{\"end\":" + Seconds(Now()) + ",\"exit\":" + std::to_string(exit_code) +
        ",\"max_rss_kb\":" + std::to_string(max_rss_kb) + ",\"user_s\":" + Seconds(user_s) +
        ",\"system_s\":" + Seconds(system_s) + ",\"why\":" + JsonString(why) + "}");
}

void Recorder::Write(const std::string& line) {
  const std::string whole = line + "\n";
  size_t done = 0;
  while (done < whole.size()) {
    const ssize_t put = write(file_, whole.data() + done, whole.size() - done);
    if (put < 0 && errno == EINTR) continue;
    // A full disk: the reader sees that the record has no end.
    if (put < 0) return;
    done += static_cast<size_t>(put);
  }
}

}  // namespace observe
}  // namespace autotune
