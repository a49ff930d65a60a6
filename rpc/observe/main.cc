// SPDX-License-Identifier: Apache-2.0
//
// Runs a command on given cores and records meanwhile, on the device itself: files of sysfs and
// /proc at an interval, the lines that the command prints with their times, the cores that its
// threads may use, and how it ended. Without a command it only samples. A program that reads a meter
// can run beside it. A record is JSON lines; see docs/measurement.md.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "child.h"
#include "options.h"
#include "recorder.h"

namespace autotune {
namespace observe {
namespace {

constexpr double kAffinityEvery_s = 1.0;
constexpr double kLookEvery_s = 0.5;
constexpr double kGrace_s = 2.0;
constexpr double kMeterStarts_s = 10.0;
constexpr int kFailed = 125;
/// What a pipe may add to the record: so much at once, and a second; a line counts as so much more.
constexpr double kMostBytes = 4 << 20, kBytesASecond = 256 << 10;
constexpr size_t kLineBytes = 32;
/// Times that a pipe of a command that has ended is read: twice what the largest one holds.
constexpr int kLastTurns = 32;

volatile sig_atomic_t asked_to_end = 0;

void Ask(int) { asked_to_end = 1; }

/// Goes on in the background; the one that was called prints the process and ends.
void Detach() {
  const pid_t pid = fork();
  if (pid < 0) {
    std::perror("autotune_observe: fork");
    _exit(kFailed);
  }
  if (pid > 0) {
    std::printf("%d\n", pid);
    std::fflush(stdout);
    _exit(0);
  }
  setsid();
  const int none = open("/dev/null", O_RDWR);
  for (int end = 0; end < 3; ++end) dup2(none, end);
}

/// Lines of one pipe on their way into the record, as many as it can hold.
class Channel {
 public:
  /// What is left out of `kind` is told as a line of `told`. `steps`: once something was left out
  /// nothing comes any more, since who reads the times of steps would take two for one.
  Channel(Lines* lines, const char* kind, const char* told, bool steps, Recorder* recorder)
      : lines_(lines), kind_(kind), told_(told), steps_(steps), recorder_(recorder) {}

  /// Records what was printed; returns whether there may be more.
  bool Forward() {
    if (!lines_->open()) return false;
    const double at = Now();
    left_ = std::min(kMostBytes, left_ + (at - last_) * kBytesASecond);
    last_ = at;
    const std::vector<std::string> lines = lines_->Read();
    if (!steps_ && left_ >= kBytesASecond) Resume(at);
    for (const std::string& line : lines) {
      const double bytes = static_cast<double>(line.size() + kLineBytes);
      if (dropped_ == 0 && bytes <= left_) {
        left_ -= bytes;
        recorder_->Line(kind_, at, line);
      } else if (dropped_++ == 0) {
        recorder_->Line(told_, at, "it prints more than can be recorded: lines are left out");
      }
    }
    return !lines.empty() && lines_->open();
  }

  /// Records what is still in the pipe, at most: what the command left behind may print on.
  void Drain() {
    for (int turn = 0; turn < kLastTurns && Forward(); ++turn) continue;
    Resume(Now());
  }

 private:
  void Resume(double at) {
    if (dropped_ == 0) return;
    recorder_->Line(told_, at, std::to_string(dropped_) + " lines were left out");
    dropped_ = 0;
  }

  Lines* lines_;
  const char* kind_;
  const char* told_;
  bool steps_;
  Recorder* recorder_;
  double left_ = kMostBytes, last_ = Now();
  size_t dropped_ = 0;
};

/// A program that reads a meter; the command's end is its end.
class MeterProgram {
 public:
  MeterProgram(const std::vector<std::string>& command, Recorder* recorder) : recorder_(recorder) {
    if (command.empty()) return;
    child_ = std::make_unique<Child>(Start(command, ""));
    out_ = std::make_unique<Channel>(&child_->out, "meter", "meter_error", false, recorder);
    err_ = std::make_unique<Channel>(&child_->err, "meter_error", "meter_error", false, recorder);
  }
  ~MeterProgram() {
    if (!child_) return;
    Kill(*child_, SIGKILL);
    waitpid(child_->pid, nullptr, 0);
  }
  MeterProgram(const MeterProgram&) = delete;
  MeterProgram& operator=(const MeterProgram&) = delete;

  const Child* child() const { return child_.get(); }

  /// Waits until it prints, or has ended: some take seconds to start, in which work would go unseen.
  void WaitForFirst() const {
    if (!child_) return;
    pollfd pipe{child_->out.pipe(), POLLIN, 0};
    poll(&pipe, 1, static_cast<int>(kMeterStarts_s * 1000));
  }

  /// Records what it printed, and that it ended where it did.
  void Forward() {
    if (!child_) return;
    out_->Forward();
    err_->Forward();
    Ended ended;
    if (!Over(*child_, &ended)) return;
    Finish();
    recorder_->Line("meter_error", Now(),
                    "it ended with exit code " + std::to_string(ended.exit_code));
    Kill(*child_, SIGKILL);  // What it left behind.
    child_.reset();
  }

  /// Records what it has printed until now.
  void Finish() {
    if (!child_) return;
    out_->Drain();
    err_->Drain();
  }

 private:
  Recorder* recorder_;
  std::unique_ptr<Child> child_;
  std::unique_ptr<Channel> out_, err_;
};

/// Waits until something is printed, or until the time.
void WaitFor(const std::array<const Child*, 2>& children, double until) {
  pollfd pipes[4];
  nfds_t count = 0;
  for (const Child* child : children) {
    if (child == nullptr) continue;
    for (const Lines* lines : {&child->out, &child->err}) {
      if (lines->open()) pipes[count++] = {lines->pipe(), POLLIN, 0};
    }
  }
  const double left = std::max(0.0, until - Now());
  poll(pipes, count, static_cast<int>(std::min(left, 60.0) * 1000 + 0.5));
}

int Observe(const Options& options) {
  Recorder recorder(options.out);
  MeterProgram meter(options.meter_command, &recorder);
  meter.WaitForFirst();
  std::unique_ptr<Child> child;
  std::unique_ptr<Channel> out, err;
  if (!options.command.empty()) {
    child = std::make_unique<Child>(Start(options.command, options.cpus));
    out = std::make_unique<Channel>(&child->out, "line", "error", true, &recorder);
    err = std::make_unique<Channel>(&child->err, "error", "error", false, &recorder);
  }
  const double began = Now();
  recorder.Begin(options.watch, options.interval_s, child ? child->pid : getpid());
  double next_sample = began, next_cpus = began + 0.05, next_look = began, kill_at = 0;
  std::string why;
  Ended ended{0, 0, 0.0, 0.0};
  while (true) {
    const double now = Now();
    if (now >= next_sample) {
      recorder.Sample();
      // A sample that came late is not made up for.
      next_sample = std::max(next_sample + options.interval_s, now);
    }
    meter.Forward();
    if (child && now >= next_cpus) {
      const std::string cpus = AllowedCpus(child->pid);
      if (!cpus.empty()) recorder.Cpus(cpus);
      next_cpus = now + kAffinityEvery_s;
    }
    if (child) {
      out->Forward();
      err->Forward();
      if (Over(*child, &ended)) break;
    }
    if (kill_at > 0 && now >= kill_at) {
      Kill(*child, SIGKILL);
      kill_at = now + kGrace_s;
    }
    if (now >= next_look) {
      if (recorder.Unwanted()) asked_to_end = 1;
      next_look = now + kLookEvery_s;
    }
    if (why.empty() && (asked_to_end || now >= began + options.limit_s)) {
      why = asked_to_end ? "asked" : "limit";
      if (!child) break;
      Kill(*child, SIGTERM);
      kill_at = now + kGrace_s;
    }
    double until = std::min({next_sample, next_look, began + options.limit_s});
    if (child) until = std::min({until, next_cpus, now + 0.25});
    WaitFor({child.get(), meter.child()}, std::max(until, now + 0.0005));
  }
  if (child) {
    out->Drain();
    err->Drain();
    Kill(*child, SIGKILL);  // What it left behind.
  }
  meter.Forward();
  meter.Finish();
  recorder.Sample();
  recorder.End(ended.exit_code, ended.max_rss_kb, ended.user_s, ended.system_s, why);
  return ended.exit_code;
}

}  // namespace
}  // namespace observe
}  // namespace autotune

int main(int argc, char** argv) {
  using namespace autotune::observe;
  const Options options = ParseOptions(argc, argv);
  if (options.clock) {
    std::printf("%.9f\n", autotune::Now());
    return 0;
  }
  if (options.detach) Detach();
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) signal(number, Ask);
  signal(SIGPIPE, SIG_IGN);
  try {
    return Observe(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "autotune_observe: %s\n", error.what());
    return kFailed;
  }
}
