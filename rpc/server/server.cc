// SPDX-License-Identifier: Apache-2.0
#include "server.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdio>
#include <stdexcept>

#include "../common/json_writer.h"
#include "conditions.h"
#include "session/folders.h"
#include "log.h"
#include "protocol.h"
#include "version.h"

namespace autotune {
namespace server {
namespace {

constexpr double kAnswerTimeoutS = 1;
constexpr size_t kMostClients = 16;
constexpr double kNoticeEveryS = 2;
// A client that took the key and did not come within this time will not come.
constexpr double kComeWithinS = 10;
constexpr size_t kRecentCrashes = 8;
constexpr const char* kWentDown = "server or device went down";
constexpr int kTickMs = 200;
constexpr int kBusyTickMs = 20;

volatile sig_atomic_t stop_requested = 0;
void OnStop(int) { stop_requested = 1; }

std::string Machine() {
  utsname about{};
  return uname(&about) == 0 ? about.machine : "";
}

}  // namespace

Server::Server(Options options)
    : options_(std::move(options)),
      listener_(Listen(options_.bind, &options_.port)),
      tracker_(options_.tracker_host, options_.tracker_port),
      crashes_(options_.folder + "/crashes.jsonl"),
      page_(MapSharedPage(options_.folder + "/running")),
      random_(std::random_device{}()) {
  RemoveFolder(options_.folder + "/sessions");  // Of a server that was killed.
  if (page_->candidate[0] != '\0') {
    Log(std::string("the server before this one, or the device, went down while it ran ") +
        page_->candidate);
    crashes_.Add(page_->session, kWentDown, page_->candidate);
    SetCandidate(page_, "");
  }
  page_->candidates = 0;
  if (options_.public_port == 0) options_.public_port = options_.port;
  NewMatchKey();
}

void Server::NewMatchKey() {
  offered_ = false;
  taken_since_ = 0;
  // TVM reads the tracker's key back from the part before the colon.
  match_key_ = options_.tracker_port == 0
                   ? options_.key
                   : options_.key + ":" + std::to_string(random_() >> 11);
}

void Server::Run() {
  struct sigaction action {};
  action.sa_handler = OnStop;
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  struct sigaction hangup {};
  sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);  // Not under nohup.
  signal(SIGPIPE, SIG_IGN);
  Log("serving key " + options_.key + " on " + options_.bind + ":" + std::to_string(options_.port));
  while (!stop_requested) {
    if (session_.running()) HandleSession();
    if (options_.tracker_port != 0) HandleTracker();
    std::vector<pollfd> watched = {{listener_.get(), POLLIN, 0}, {tracker_.descriptor(), POLLIN, 0}};
    handshakes_.Watch(&watched);
    // A client that has the key waits for the session before it, or for the device.
    const bool busy = session_.running() || !clients_.empty();
    const int ready = poll(watched.data(), watched.size(), busy ? kBusyTickMs : kTickMs);
    if (ready > 0 && watched[1].revents != 0) tracker_.Drop();  // No request is open, so it has closed.
    HandleClients(ready > 0 && watched[0].revents != 0);
  }
  Log("stopping");
  if (session_.running()) {
    session_.Kill("");
    for (double end = Now() + 6; session_.running() && Now() < end; usleep(10000)) {
      HandleSession();
    }
  }
  RemoveFolder(options_.folder + "/sessions");
}

void Server::HandleSession() {
  const uint64_t number = session_.number();
  const SessionEnd end = session_.Check();
  if (!end.ended) return;
  if (end.cause.empty()) {
    Log("session " + std::to_string(number) + ": closed");
  } else {
    const std::string candidate = page_->candidate;
    Log("session " + std::to_string(number) + ": ended by " + end.cause +
        (candidate.empty() ? "" : " while it ran " + candidate));
    crashes_.Add(number, end.cause, candidate);
  }
  SetCandidate(page_, "");
  device_lock_.Close();
  NewMatchKey();
  next_notice_ = 0;  // The host may be waiting for the end of the session.
}

std::string Server::InfoJson() const {
  const std::string host = options_.public_host.empty() ? "null" : JsonString(options_.public_host);
  return JsonObject()
      .Text("key", "server:" + options_.key)
      .Raw("addr", JsonList({host, std::to_string(options_.public_port)}))
      .Text("serial", options_.serial)
      .Text("emulated", options_.emulated)
      .Text("machine", Machine())
      .Text("cpus", options_.cpus)
      .Number("sessions", sessions_)
      .Number("candidates", page_->candidates)
      .Number("crashes", crashes_.size())
      .Raw("recent", crashes_.Json(kRecentCrashes))
      .Flag("busy", session_.running())
      .Raw("celsius", Celsius(options_.thermal_zone))
      .str();
}

void Server::HandleTracker() {
  if (!tracker_.Connected()) {
    offered_ = false;
    last_info_.clear();
    return;
  }
  const double now = Now();
  if (now >= next_notice_ || last_info_.empty()) {
    next_notice_ = now + kNoticeEveryS;
    const std::string info = InfoJson();
    if (info != last_info_ && tracker_.Inform(info)) last_info_ = info;
    bool there = true;
    if (offered_ && !session_.running() && clients_.empty() && tracker_.StillOffered(match_key_, &there)) {
      // Taken, but nobody came: the client died, and the key is offered again under a new number.
      if (there) taken_since_ = 0;
      else if (taken_since_ == 0) taken_since_ = now;
      else if (now > taken_since_ + kComeWithinS) NewMatchKey();
    }
  }
  if (!offered_ && !session_.running()) {
    offered_ =
        tracker_.Offer(options_.key, options_.public_host, options_.public_port, match_key_);
  }
}

bool Server::TakeDevice() {
  const std::string path = options_.folder + "/../device.lock";
  Descriptor lock(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock.valid()) return true;  // No lock, no other server that would respect it.
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) return false;
  device_lock_ = std::move(lock);
  return true;
}

void Server::HandleClients(bool connecting) {
  if (connecting) handshakes_.Accept(listener_.get());
  for (Client& client : handshakes_.Read()) {
    if (clients_.size() < kMostClients) clients_.push_back(std::move(client));
  }
  const double now = Now();
  for (auto client = clients_.begin(); client != clients_.end();) {
    const bool fits = client->key == "client:" + match_key_;
    if (!fits) {
      SendInt(client->connection.get(), kMismatch, kAnswerTimeoutS);
      Log("a client with another key was refused");
    }
    const bool late = !session_.running() && now > client->since + options_.session_timeout_s;
    const bool drop = !fits || late || HasGone(client->connection.get());
    client = drop ? clients_.erase(client) : client + 1;
  }
  if (session_.running() || clients_.empty() || !TakeDevice()) return;
  Client client = std::move(clients_.front());
  clients_.erase(clients_.begin());
  Begin(std::move(client));
}

void Server::Begin(Client client) {
  const int connection = client.connection.get();
  const double timeout_s = client.timeout_s > 0 ? client.timeout_s : options_.session_timeout_s;
  const std::string name = "server:" + options_.key;
  if (!SendInt(connection, kMagic, kAnswerTimeoutS) ||
      !SendInt(connection, static_cast<int32_t>(name.size()), kAnswerTimeoutS) ||
      !SendAll(connection, name.data(), name.size(), kAnswerTimeoutS)) {
    device_lock_.Close();
    NewMatchKey();
    return;
  }
  try {
    session_.Start(options_, ++sessions_, std::move(client.connection), timeout_s, page_,
                   crashes_.Json());
    Log("session " + std::to_string(sessions_) + ": begun");
  } catch (const std::exception& error) {
    // No memory or no disk now: the next client may have better luck.
    Log(std::string("no session: ") + error.what());
    device_lock_.Close();
    NewMatchKey();
  }
}

}  // namespace server
}  // namespace autotune
