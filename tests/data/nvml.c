// SPDX-License-Identifier: Apache-2.0
// Stands in for NVML where there is none: a board of 16 GiB, of which every other look finds GROWS MiB more taken.
#include <stdlib.h>

typedef struct {
  unsigned long long total, free, used;
} Memory;

int nvmlInit_v2(void) { return 0; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) { return index; }

int nvmlDeviceGetMemoryInfo(void* device, Memory* memory) {
  static unsigned long long looks;
  const unsigned long long mib = 1 << 20;
  memory->total = 16 * 1024 * mib;
  memory->used = ++looks / 2 * atoi(getenv("GROWS")) * mib;
  memory->free = memory->total - memory->used;
  return 0;
}
