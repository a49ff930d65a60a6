// SPDX-License-Identifier: Apache-2.0
#include "thread_team.h"

namespace autotune {
namespace cpu_runtime {
namespace {

// How often a waiting thread looks before it sleeps; yielding in between keeps this fair where
// there are more threads than cores.
constexpr int kLooksBeforeSleep = 2000;

thread_local bool inside_task = false;
thread_local ThreadTeam* current_team = nullptr;

}  // namespace

ThreadTeam::ThreadTeam(int size) : size_(size) {
  try {
    for (int id = 1; id < size; ++id) threads_.emplace_back([this, id] { Work(id); });
  } catch (...) {
    Stop();  // A thread that still runs may not be forgotten.
    throw;
  }
}

ThreadTeam::~ThreadTeam() { Stop(); }

ThreadTeam* ThreadTeam::Current() { return current_team; }

void ThreadTeam::Use(ThreadTeam* team) { current_team = team; }

void ThreadTeam::Raise(const std::string& message) {
  std::lock_guard<std::mutex> lock(raised_mutex_);
  raised_ = message;
}

std::string ThreadTeam::TakeRaised() {
  std::lock_guard<std::mutex> lock(raised_mutex_);
  std::string message = std::move(raised_);
  raised_.clear();
  return message;
}

void ThreadTeam::Stop() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    ++generation_;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

int ThreadTeam::Run(FTVMParallelLambda lambda, void* closure, int num_task) {
  if (inside_task) {
    TVMParallelGroupEnv alone{nullptr, 1};
    return lambda(0, &alone, closure);
  }
  lambda_ = lambda;
  closure_ = closure;
  env_.num_task = num_task;
  env_.sync_handle = this;
  failure_ = 0;
  arrived_ = 0;
  running_ = size_ - 1;
  {
    // Under the lock, so that no thread goes to sleep between its last look and this change.
    std::lock_guard<std::mutex> lock(mutex_);
    ++generation_;
  }
  wake_.notify_all();
  RunTask(0);
  while (running_.load(std::memory_order_acquire) > 0) std::this_thread::yield();
  return failure_;
}

void ThreadTeam::RunTask(int id) {
  if (id >= env_.num_task) return;
  inside_task = true;
  const int code = lambda_(id, &env_, closure_);
  inside_task = false;
  if (code != 0) failure_ = code;
}

void ThreadTeam::Work(int id) {
  current_team = this;
  unsigned seen = 0;
  while (true) {
    for (int look = 0; look < kLooksBeforeSleep && generation_.load() == seen; ++look) {
      std::this_thread::yield();
    }
    if (generation_.load() == seen) {
      std::unique_lock<std::mutex> lock(mutex_);
      wake_.wait(lock, [&] { return generation_.load() != seen; });
    }
    ++seen;  // A launch ends only after every thread took part, so none is ever missed.
    if (stopping_) return;
    RunTask(id);
    running_.fetch_sub(1, std::memory_order_release);
  }
}

void ThreadTeam::Barrier() {
  const unsigned round = barrier_round_.load();
  if (arrived_.fetch_add(1) + 1 == env_.num_task) {
    arrived_ = 0;
    ++barrier_round_;
    return;
  }
  while (barrier_round_.load() == round) std::this_thread::yield();
}

}  // namespace cpu_runtime
}  // namespace autotune
