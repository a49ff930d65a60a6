// SPDX-License-Identifier: Apache-2.0
#include "settings.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "../common/cpu_list.h"
#include "../cpu_runtime/tvm_symbols.h"

namespace autotune {
namespace step_runner {
namespace {

constexpr int kMostThreads = 1024;

void MoveThisThread(const std::vector<int>& cpus) {
  if (cpus.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(cpu, &set);
  if (sched_setaffinity(0, sizeof(set), &set) != 0) {
    throw std::runtime_error("cores " + CpuListText(cpus) + ": " + std::strerror(errno));
  }
}

void WriteNumber(const std::string& path, long value) {
  const std::string text = std::to_string(value);
  const int file = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  const bool written =
      file >= 0 && write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int why = errno;
  if (file >= 0) close(file);
  if (!written) throw std::runtime_error(path + ": " + std::strerror(why));
}

long ReadNumber(const std::string& path) {
  std::ifstream file(path);
  long value = 0;
  if (!(file >> value)) throw std::runtime_error("cannot read " + path);
  return value;
}

Setting ReadSetting(std::istringstream* words) {
  Setting setting;
  std::string cpus, clock;
  if (!(*words >> cpus >> setting.threads) || setting.threads < 1 ||
      setting.threads > kMostThreads) {
    throw std::invalid_argument("a setting is: setting CPUS THREADS [POLICY=KHZ]...");
  }
  if (cpus != "-") setting.cpus = ParseCpuList(cpus);
  while (*words >> clock) {
    const size_t mark = clock.rfind('=');
    if (mark == std::string::npos) throw std::invalid_argument("'" + clock + "' is no clock");
    setting.khz.emplace_back(clock.substr(0, mark), std::stol(clock.substr(mark + 1)));
  }
  return setting;
}

}  // namespace

Settings Settings::Read(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path);
  Settings found;
  size_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    std::istringstream words(line);
    std::string kind;
    if (!(words >> kind)) continue;
    try {
      size_t call = 0, setting = 0;
      std::string word;
      if (kind == "setting") {
        found.settings.push_back(ReadSetting(&words));
      } else if (kind == "at" && words >> call >> setting && setting < found.settings.size()) {
        found.at[call] = setting;
      } else if (kind == "use" && words >> call >> setting) {
        found.used[call] = setting;
      } else if (kind == "gpu" && words >> call) {
        found.on_gpu.push_back(call);
      } else if (kind == "memory" && words >> word && (word == "copy" || word == "map")) {
        found.memory = word == "map" ? Memory::kMap : Memory::kCopy;
      } else {
        throw std::invalid_argument(
            "neither a setting, nor a known place of one, nor a variant, nor anything of a GPU");
      }
    } catch (const std::exception& error) {
      throw std::runtime_error(path + ":" + std::to_string(number) + ": " + error.what());
    }
  }
  if (found.settings.empty()) throw std::runtime_error(path + " has no setting");
  return found;
}

Switch::Switch(const std::vector<Setting>& settings)
    : settings_(settings), now_(settings.size()) {
  for (const Setting& setting : settings_) {
    // Threads are born on the cores of the one that makes them.
    MoveThisThread(setting.cpus);
    teams_.push_back(std::make_unique<cpu_runtime::ThreadTeam>(setting.threads));
    for (const auto& clock : setting.khz) {
      if (khz_.count(clock.first) == 0) {
        khz_[clock.first] = ReadNumber(clock.first + "/scaling_max_freq");
      }
    }
  }
  To(0);
}

void Switch::To(size_t setting) {
  if (setting == now_) return;
  for (const auto& [policy, khz] : settings_[setting].khz) SetClock(policy, khz);
  MoveThisThread(settings_[setting].cpus);
  cpu_runtime::UseTeam(teams_[setting].get());
  now_ = setting;
}

void Switch::SetClock(const std::string& policy, long khz) {
  long& now = khz_.at(policy);
  if (now == khz) return;
  // A kernel refuses limits that cross.
  const std::string high = policy + "/scaling_max_freq", low = policy + "/scaling_min_freq";
  WriteNumber(khz > now ? high : low, khz);
  WriteNumber(khz > now ? low : high, khz);
  now = khz;
}

}  // namespace step_runner
}  // namespace autotune
