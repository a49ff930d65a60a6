/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures the cost of a call through an exported C function over the bare kernel: both in turns, in blocks of
 * CALLS. CALL is the function with its operands p[]; RAW is the kernel's own symbol, compiled from the same program.
 * Prints the nanoseconds of one call for each block: whole, raw.
 */
#include <dlpack/dlpack.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <tvm/ffi/c_api.h>

#include "kernels.h"

enum { BLOCKS = 201, CALLS = 2000, MOST = 64 };

int RAW(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result);

/* The raw kernel gets valid arguments, so it reports no errors. */
void TVMFFIErrorSetRaisedFromCStrParts(const char* kind, const char** parts, int32_t count) {
  (void)kind;
  (void)parts;
  (void)count;
  abort();
}

static double now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return 1e9 * (double)time.tv_sec + (double)time.tv_nsec;
}

int main(void) {
  const kernels_kernel* kernel = NULL;
  for (size_t i = 0; i < kernels_kernel_count(); ++i) {
    if (strcmp(kernels_kernel_at(i)->name, NAME) == 0) kernel = kernels_kernel_at(i);
  }
  kernels_options options = {0};
  options.size = sizeof(options);
  options.threads = THREADS;
  options.variant = VARIANT;
  kernels_context* context = NULL;
  if (kernel == NULL || kernels_context_create(&options, &context) != KERNELS_OK) return 1;
  void* p[MOST];
  DLTensor tensors[MOST];
  TVMFFIAny arguments[MOST];
  memset(tensors, 0, sizeof(tensors));
  memset(arguments, 0, sizeof(arguments));
  for (size_t i = 0; i < kernel->operand_count; ++i) {
    const kernels_operand* operand = &kernel->operands[i];
    if (posix_memalign(&p[i], KERNELS_ALIGNMENT, operand->bytes) != 0) return 1;
    memset(p[i], 0, operand->bytes);
    tensors[i].data = p[i];
    tensors[i].device.device_type = kDLCPU;
    tensors[i].ndim = operand->dimensions;
    tensors[i].dtype.code = strcmp(operand->type, "int32") == 0 ? kDLInt : kDLFloat;
    tensors[i].dtype.bits = 32;
    tensors[i].dtype.lanes = 1;
    tensors[i].shape = (int64_t*)operand->shape;
    arguments[i].type_index = kTVMFFIDLTensorPtr;
    arguments[i].v_ptr = &tensors[i];
  }
  for (int block = 0; block < BLOCKS; ++block) {
    double whole = 0, raw = 0;
    for (int side = 0; side < 2; ++side) {
      const double begin = now_ns();
      if ((side + block) % 2 == 0) {
        for (int i = 0; i < CALLS; ++i) {
          if (CALL != KERNELS_OK) return 1;
        }
        whole = (now_ns() - begin) / CALLS;
      } else {
        for (int i = 0; i < CALLS; ++i) {
          TVMFFIAny result;
          memset(&result, 0, sizeof(result));
          if (RAW(NULL, arguments, (int32_t)kernel->operand_count, &result) != 0) return 1;
        }
        raw = (now_ns() - begin) / CALLS;
      }
    }
    printf("%.2f %.2f\n", whole, raw);
  }
  kernels_context_destroy(context);
  return 0;
}
