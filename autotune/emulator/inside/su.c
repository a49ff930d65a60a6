// SPDX-License-Identifier: Apache-2.0
//
// The `su` of a rooted phone: `su -c COMMAND`, `su 0 PROGRAM ARGUMENT...`, or a shell.
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <grp.h>
#include <unistd.h>

#define SHELL "/system/bin/sh"

int main(int argc, char** argv) {
  if (setgroups(0, NULL) != 0 || setresgid(0, 0, 0) != 0 || setresuid(0, 0, 0) != 0) {
    perror("su");
    return 1;
  }
  if (argc == 1) {
    execl(SHELL, "sh", (char*)NULL);
  } else if (argc >= 3 && strcmp(argv[1], "-c") == 0) {
    execl(SHELL, "sh", "-c", argv[2], (char*)NULL);
  } else if (argc >= 3 && (strcmp(argv[1], "0") == 0 || strcmp(argv[1], "root") == 0)) {
    // By a shell, which finds programs for ARM too.
    char* words[argc + 3];
    int n = 0;
    words[n++] = (char*)"sh";
    words[n++] = (char*)"-c";
    words[n++] = (char*)"exec \"$@\"";
    words[n++] = (char*)"su";
    for (int i = 2; i < argc; ++i) words[n++] = argv[i];
    words[n] = NULL;
    execv(SHELL, words);
  } else {
    fprintf(stderr, "usage: su [-c COMMAND | 0 PROGRAM ARGUMENT...]\n");
    return 1;
  }
  perror("su");
  return 1;
}
