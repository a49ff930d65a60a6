/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls an exported C library of a matmul in every way that is right or wrong. KERNEL is its function, M, N and K its
 * sizes. Prints what was not as it should be; exit code 0 where nothing was.
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "kernels.h"

enum { a_count = M * K, b_count = N * K, c_count = M * N };

static int failures = 0;

#define EXPECT(condition)                                        \
  if (!(condition)) {                                            \
    printf("line %d: not so: %s\n", __LINE__, #condition);       \
    __atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED);          \
  }

static float* tensor(size_t count) {
  void* data = NULL;
  if (posix_memalign(&data, KERNELS_ALIGNMENT, count * sizeof(float)) != 0) abort();
  return data;
}

struct work {
  kernels_context* context;
  const float *a, *b, *expected;
  int calls;
};

static void* call_often(void* argument) {
  const struct work* work = argument;
  float* c = tensor(c_count);
  for (int i = 0; i < work->calls; ++i) {
    memset(c, 0xff, c_count * sizeof(float));
    EXPECT(KERNEL(work->context, work->a, work->b, c) == KERNELS_OK);
    EXPECT(memcmp(c, work->expected, c_count * sizeof(float)) == 0);
  }
  free(c);
  return NULL;
}

static int threads_listed(void) {
  FILE* file = fopen("/proc/self/status", "r");
  char line[256];
  int threads = -1;
  while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
    if (sscanf(line, "Threads: %d", &threads) == 1) break;
  }
  if (file != NULL) fclose(file);
  return threads;
}

/* The process's threads, as soon as they are as many as expected: a joined one leaves the list a little later. */
static int threads_now(int expected) {
  const struct timespec pause = {0, 1000000};
  for (int tries = 0; tries < 5000 && threads_listed() != expected; ++tries) nanosleep(&pause, NULL);
  return threads_listed();
}

static kernels_context* context_of(int threads) {
  kernels_options options = {0};
  options.size = sizeof(options);
  options.threads = threads;
  kernels_context* context = NULL;
  EXPECT(kernels_context_create(&options, &context) == KERNELS_OK);
  EXPECT(context != NULL && kernels_context_threads(context) == threads);
  return context;
}

static void refuse(const float* a, const float* b, float* c) {
  kernels_context* context = context_of(2);
  EXPECT(strcmp(kernels_error(context), "") == 0);
  EXPECT(KERNEL(NULL, a, b, c) == KERNELS_NULL_POINTER);
  EXPECT(KERNEL(context, NULL, b, c) == KERNELS_NULL_POINTER);
  EXPECT(strstr(kernels_error(context), "operand 0") != NULL);
  EXPECT(KERNEL(context, a, b, NULL) == KERNELS_NULL_POINTER);
  EXPECT(KERNEL(context, a + 1, b, c) == KERNELS_UNALIGNED_POINTER);
  EXPECT(KERNEL(context, a, b, c + 8) == KERNELS_UNALIGNED_POINTER);
  EXPECT(strstr(kernels_error(context), "operand 2") != NULL);
  EXPECT(kernels_run(context, kernels_kernel_count(), NULL) == KERNELS_UNKNOWN_KERNEL);
  EXPECT(kernels_run(context, 0, NULL) == KERNELS_NULL_POINTER);
  EXPECT(KERNEL(context, a, b, c) == KERNELS_OK);
  kernels_context_destroy(context);
  kernels_context_destroy(NULL);

  kernels_options options = {0};
  options.size = sizeof(options);
  context = (kernels_context*)&options;
  options.threads = -1;
  EXPECT(kernels_context_create(&options, &context) == KERNELS_BAD_THREADS);
  EXPECT(context == NULL);
  options.threads = KERNELS_MAX_THREADS + 1;
  EXPECT(kernels_context_create(&options, &context) == KERNELS_BAD_THREADS);
  options.threads = 0;
  options.variant = "nobody";
  EXPECT(kernels_context_create(&options, &context) == KERNELS_UNKNOWN_VARIANT);
  options.variant = NULL;
  options.size = 4;
  EXPECT(kernels_context_create(&options, &context) == KERNELS_BAD_OPTIONS);
  EXPECT(kernels_context_create(NULL, NULL) == KERNELS_NULL_POINTER);
  EXPECT(kernels_context_create(NULL, &context) == KERNELS_OK);
  EXPECT(kernels_context_threads(context) >= 1);
  kernels_context_destroy(context);

  for (int status = 0; status <= KERNELS_BAD_OPTIONS; ++status) {
    EXPECT(strlen(kernels_status_text((kernels_status)status)) > 5);
  }
  EXPECT(kernels_status_text((kernels_status)99) != NULL);
  EXPECT(kernels_kernel_at(kernels_kernel_count()) == NULL);
  EXPECT(kernels_variant_name(kernels_variant_count()) == NULL);
}

int main(void) {
  float *a = tensor(a_count), *b = tensor(b_count), *c = tensor(c_count);
  for (int i = 0; i < a_count; ++i) a[i] = (float)((i * 37) % 101) / 50 - 1;
  for (int i = 0; i < b_count; ++i) b[i] = (float)((i * 53) % 97) / 48 - 1;
  refuse(a, b, c);
  EXPECT(threads_now(1) == 1);

  for (int m = 0; m < M; ++m) {
    for (int n = 0; n < N; ++n) {
      double sum = 0;
      for (int k = 0; k < K; ++k) sum += (double)a[m * K + k] * b[n * K + k];
      EXPECT(fabs(sum - c[m * N + n]) < 1e-4);
    }
  }

  /* Contexts at the same time, and one context from several threads. */
  struct work work[4];
  pthread_t callers[4];
  kernels_context* contexts[3] = {context_of(1), context_of(2), context_of(3)};
  EXPECT(threads_now(1 + 0 + 1 + 2) == 1 + 0 + 1 + 2);
  for (int i = 0; i < 4; ++i) {
    work[i] = (struct work){contexts[i < 3 ? i : 2], a, b, c, 300};
    if (pthread_create(&callers[i], NULL, call_often, &work[i]) != 0) abort();
  }
  for (int i = 0; i < 4; ++i) pthread_join(callers[i], NULL);
  for (int i = 0; i < 3; ++i) kernels_context_destroy(contexts[i]);
  EXPECT(threads_now(1) == 1);

  /* A library that is used again and again leaves nothing behind. */
  for (int i = 0; i < 200; ++i) {
    kernels_context* context = context_of(1 + i % 4);
    EXPECT(KERNEL(context, a, b, c) == KERNELS_OK);
    kernels_context_destroy(context);
  }
  EXPECT(threads_now(1) == 1);
  free(a);
  free(b);
  free(c);
  return failures != 0;
}
