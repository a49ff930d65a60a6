// SPDX-License-Identifier: Apache-2.0
#include "tracker_link.h"

#include <algorithm>
#include <vector>

#include "../common/json_writer.h"
#include "log.h"

namespace autotune {
namespace server {
namespace {

constexpr int32_t kTrackerMagic = 0x2f271;
constexpr int32_t kMostBytes = 1 << 20;
constexpr double kTimeoutS = 5;
constexpr double kShortestRetryS = 0.5;
constexpr double kLongestRetryS = 10;

// Numbers of the messages, as TVM has them.
constexpr int kPut = 3;
constexpr int kUpdateInfo = 5;
constexpr int kGetPendingMatchKeys = 7;

std::string Message(int code, const std::vector<std::string>& parts) {
  std::vector<std::string> all{std::to_string(code)};
  all.insert(all.end(), parts.begin(), parts.end());
  return JsonList(all);
}

}  // namespace

bool TrackerLink::Connected() {
  if (socket_.valid()) return true;
  if (Now() < retry_at_) return false;
  std::string why;
  Descriptor connected = Connect(host_, port_, kTimeoutS, &why);
  int32_t magic = 0;
  if (connected.valid() && SendInt(connected.get(), kTrackerMagic, kTimeoutS) &&
      ReceiveInt(connected.get(), &magic, kTimeoutS) && magic == kTrackerMagic) {
    socket_ = std::move(connected);
    retry_after_s_ = 0;
    Log("tracker: connected to " + host_ + ":" + std::to_string(port_));
    return true;
  }
  if (retry_after_s_ == 0) {
    Log("tracker: no connection to " + host_ + ":" + std::to_string(port_) + ": " +
        (why.empty() ? "it is no TVM tracker, or the way to it is cut" : why) + "; trying again");
  }
  retry_after_s_ = std::clamp(2 * retry_after_s_, kShortestRetryS, kLongestRetryS);
  retry_at_ = Now() + retry_after_s_;
  return false;
}

void TrackerLink::Drop() {
  if (socket_.valid()) Log("tracker: the connection was lost");
  socket_.Close();
}

bool TrackerLink::Ask(const std::string& message, std::string* answer) {
  int32_t size = 0;
  const bool asked =
      socket_.valid() && SendInt(socket_.get(), static_cast<int32_t>(message.size()), kTimeoutS) &&
      SendAll(socket_.get(), message.data(), message.size(), kTimeoutS) &&
      ReceiveInt(socket_.get(), &size, kTimeoutS) && size > 0 && size <= kMostBytes;
  if (asked) {
    answer->resize(static_cast<size_t>(size));
    if (ReceiveAll(socket_.get(), answer->data(), answer->size(), kTimeoutS)) return true;
  }
  Drop();
  return false;
}

bool TrackerLink::Offer(const std::string& key, const std::string& public_host, int public_port,
                        const std::string& match_key) {
  std::string answer;
  const std::string where = JsonList({std::to_string(public_port), JsonString(match_key)});
  const std::string host = public_host.empty() ? "null" : JsonString(public_host);
  return Ask(Message(kPut, {JsonString(key), where, host}), &answer) && answer == "0";
}

bool TrackerLink::Inform(const std::string& info) {
  std::string answer;
  return Ask(Message(kUpdateInfo, {info}), &answer) && answer == "0";
}

bool TrackerLink::StillOffered(const std::string& match_key, bool* offered) {
  std::string answer;
  if (!Ask(Message(kGetPendingMatchKeys, {}), &answer)) return false;
  *offered = answer.find(JsonString(match_key)) != std::string::npos;
  return true;
}

}  // namespace server
}  // namespace autotune
