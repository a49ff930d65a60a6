// SPDX-License-Identifier: Apache-2.0
#include "crash_report.h"

#include <signal.h>
#include <unistd.h>

#include <cstring>
#include <initializer_list>

namespace autotune {
namespace cpu_runtime {
namespace {

const char* Report(int signal) {
  switch (signal) {
    case SIGSEGV:
      return "{\"status\": \"run_error\", \"message\": \"the kernel died of SIGSEGV\"}\n";
    case SIGBUS:
      return "{\"status\": \"run_error\", \"message\": \"the kernel died of SIGBUS\"}\n";
    case SIGFPE:
      return "{\"status\": \"run_error\", \"message\": \"the kernel died of SIGFPE\"}\n";
    case SIGILL:
      return "{\"status\": \"run_error\", \"message\": \"the kernel died of SIGILL: it uses "
             "instructions that this CPU does not have\"}\n";
    default:
      return "{\"status\": \"run_error\", \"message\": \"the kernel died of SIGABRT\"}\n";
  }
}

// Only functions that are safe in a signal handler may be called here.
void OnSignal(int signal) {
  const char* text = Report(signal);
  const ssize_t written = write(STDOUT_FILENO, text, std::strlen(text));
  _exit(written > 0 ? 0 : 1);
}

}  // namespace

void ReportCrashes() {
  // A stack of its own for the handler: a kernel may die by using up the main thread's.
  static char stack[64 * 1024];
  stack_t alternative{};
  alternative.ss_sp = stack;
  alternative.ss_size = sizeof(stack);
  sigaltstack(&alternative, nullptr);
  struct sigaction action {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_ONSTACK;
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) {
    sigaction(signal, &action, nullptr);
  }
}

}  // namespace cpu_runtime
}  // namespace autotune
