// SPDX-License-Identifier: Apache-2.0
#ifndef AUTOTUNE_CPU_RUNTIME_CRASH_REPORT_H_
#define AUTOTUNE_CPU_RUNTIME_CRASH_REPORT_H_

namespace autotune {
namespace cpu_runtime {

/// A tuned kernel may well be wrong. Makes a fatal signal end the program with the usual JSON on
/// standard output, so that the caller can tell a bad kernel from a bad machine.
void ReportCrashes();

}  // namespace cpu_runtime
}  // namespace autotune

#endif  // AUTOTUNE_CPU_RUNTIME_CRASH_REPORT_H_
