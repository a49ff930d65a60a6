// SPDX-License-Identifier: Apache-2.0
//
// The threads of parallel loops.
#ifndef AUTOTUNE_CPU_RUNTIME_THREAD_TEAM_H_
#define AUTOTUNE_CPU_RUNTIME_THREAD_TEAM_H_

#include <tvm/runtime/c_backend_api.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace autotune {
namespace cpu_runtime {

/// A fixed number of threads, of which the caller is one. They stay between launches: starting
/// threads for each launch would cost more than many a kernel takes.
class ThreadTeam {
 public:
  /// Throws std::system_error where the system gives no more threads.
  explicit ThreadTeam(int size);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int size() const { return size_; }

  /// Runs tasks 0 to num_task-1 at the same time and waits for all. Returns 0, or the code of a
  /// task that failed. num_task may not exceed size(): tasks may wait for each other at a barrier.
  /// Called from inside a task, it runs the inner loop as one task, since the whole team is busy.
  int Run(FTVMParallelLambda lambda, void* closure, int num_task);

  /// For the tasks of the running launch only.
  void Barrier();

  /// The team that this thread's parallel loops run on: the one it works for, or the last it was told to use.
  static ThreadTeam* Current();
  static void Use(ThreadTeam* team);

  /// Keeps what a kernel raised, on whichever of its threads.
  void Raise(const std::string& message);
  /// The message of the last error that was raised, which is forgotten; empty without one.
  std::string TakeRaised();

 private:
  void Stop();
  void Work(int id);
  void RunTask(int id);

  const int size_;
  std::vector<std::thread> threads_;

  FTVMParallelLambda lambda_ = nullptr;
  void* closure_ = nullptr;
  TVMParallelGroupEnv env_{};
  std::atomic<int> failure_{0};

  // A launch is announced by a new generation; waiting threads look at it for a while before they
  // sleep, since the next launch of a measurement comes within microseconds.
  std::atomic<unsigned> generation_{0};
  std::atomic<int> running_{0};
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  std::condition_variable wake_;

  std::mutex raised_mutex_;
  std::string raised_;

  std::atomic<int> arrived_{0};
  std::atomic<unsigned> barrier_round_{0};
};

}  // namespace cpu_runtime
}  // namespace autotune

#endif  // AUTOTUNE_CPU_RUNTIME_THREAD_TEAM_H_
