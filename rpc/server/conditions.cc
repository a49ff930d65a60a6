// SPDX-License-Identifier: Apache-2.0
#include "conditions.h"

#include <sched.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <system_error>

#include "../common/cpu_list.h"
#include "../common/json_writer.h"

namespace autotune {
namespace server {
namespace {

constexpr const char* kOnline = "/sys/devices/system/cpu/online";
constexpr const char* kPolicies = "/sys/devices/system/cpu/cpufreq";
constexpr const char* kAdreno = "/sys/class/kgsl/kgsl-3d0/";
constexpr const char* kDevfreq = "/sys/class/devfreq";
constexpr uint64_t kHertz = 1000;

std::string Line(const std::string& path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return line;
}

/// Zero where the file is not there or holds no number.
uint64_t Whole(const std::string& path) {
  uint64_t value = 0;
  std::ifstream(path) >> value;
  return value;
}

std::set<std::string> FoldersIn(const char* path, const std::string& part) {
  std::set<std::string> found;
  std::error_code error;
  for (std::filesystem::directory_iterator at(path, error), end; !error && at != end;
       at.increment(error)) {
    if (at->path().filename().string().find(part) != std::string::npos) {
      found.insert(at->path().string());
    }
  }
  return found;
}

std::vector<int> Numbers(const std::string& path) {
  std::vector<int> found;
  std::ifstream file(path);
  for (int number = 0; file >> number;) found.push_back(number);
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<int> Common(const std::vector<int>& first, const std::vector<int>& second) {
  std::vector<int> found;
  std::set_intersection(first.begin(), first.end(), second.begin(), second.end(),
                        std::back_inserter(found));
  return found;
}

std::vector<int> AllowedCpus(pid_t process) {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(process, sizeof(set), &set);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

}  // namespace

std::string Celsius(const std::string& zone) {
  double value = 0;
  if (zone.empty() || !(std::ifstream(zone) >> value)) return "null";
  return JsonReal(value >= 1000 || value <= -1000 ? value / 1000 : value);
}

Conditions::Conditions(const Options& options, pid_t server)
    : zone_(options.thermal_zone), wanted_(ParseCpuList(options.cpus)), server_(server) {
  std::sort(wanted_.begin(), wanted_.end());
  if (!zone_.empty()) zone_name_ = Line(zone_.substr(0, zone_.rfind('/') + 1) + "type");
  for (const std::string& folder : FoldersIn(kPolicies, "policy")) {
    const std::vector<int> cpus = Numbers(folder + "/related_cpus");
    if (!wanted_.empty() && Common(wanted_, cpus).empty()) continue;
    clocks_.push_back({std::filesystem::path(folder).filename().string(), CpuListText(cpus),
                       folder + "/scaling_cur_freq", folder + "/scaling_max_freq", 1,
                       Whole(folder + "/cpuinfo_max_freq")});
  }
  const std::string adreno = kAdreno;
  if (Whole(adreno + "max_gpuclk") > 0) {
    clocks_.push_back({"gpu", "", adreno + "gpuclk", adreno + "max_gpuclk", kHertz, 0});
  }
  for (const std::string& folder : FoldersIn(kDevfreq, "mali")) {
    clocks_.push_back({"gpu", "", folder + "/cur_freq", folder + "/max_freq", kHertz, 0});
  }
}

std::string Conditions::Json() const {
  std::vector<std::string> clocks;
  for (const Clock& clock : clocks_) {
    clocks.push_back(JsonObject()
                         .Text("name", clock.name)
                         .Text("cpus", clock.cpus)
                         .Number("khz", Whole(clock.now) / clock.per_khz)
                         .Number("cap_khz", Whole(clock.cap) / clock.per_khz)
                         .Number("highest_khz", clock.highest_khz)
                         .str());
  }
  const std::vector<int> allowed = AllowedCpus(server_);
  return JsonObject()
      .Raw("celsius", Celsius(zone_))
      .Text("zone", zone_name_)
      .Text("online", Line(kOnline))
      .Text("cpus", CpuListText(wanted_.empty() ? allowed : Common(wanted_, allowed)))
      .Raw("clocks", JsonList(clocks))
      .str();
}

}  // namespace server
}  // namespace autotune
