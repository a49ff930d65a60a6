/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints the variant that an exported C library chooses: dispatch SOC CLUSTER, where "-" leaves one out.
 */
#include <stdio.h>
#include <string.h>

#include "kernels.h"

int main(int argc, char** argv) {
  kernels_options options;
  memset(&options, 0, sizeof(options));
  options.size = sizeof(options);
  if (argc > 1 && strcmp(argv[1], "-") != 0) options.soc = argv[1];
  if (argc > 2 && strcmp(argv[2], "-") != 0) options.cluster = argv[2];
  kernels_context* context = NULL;
  const kernels_status status = kernels_context_create(&options, &context);
  printf("%s\n", status == KERNELS_OK ? kernels_variant_name(kernels_context_variant(context))
                                      : kernels_status_text(status));
  kernels_context_destroy(context);
  return 0;
}
