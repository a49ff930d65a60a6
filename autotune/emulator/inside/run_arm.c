// SPDX-License-Identifier: Apache-2.0
//
// Loaded into every program of an emulated phone: programs for 64-bit ARM run by name, under QEMU,
// and the kernel says that it is one for ARM. Built with -DQEMU="..." and -DPREFIX="..."
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

extern char** environ;

static int is_for_arm(const char* path) {
  Elf64_Ehdr head;
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  const ssize_t got = read(fd, &head, sizeof(head));
  close(fd);
  return got == (ssize_t)sizeof(head) && memcmp(head.e_ident, ELFMAG, SELFMAG) == 0 &&
         head.e_ident[EI_CLASS] == ELFCLASS64 && head.e_machine == EM_AARCH64;
}

static int start(const char* path, char* const argv[], char* const envp[]) {
  return (int)syscall(SYS_execve, path, argv, envp);
}

int execve(const char* path, char* const argv[], char* const envp[]) {
  if (!is_for_arm(path)) return start(path, argv, envp);
  if (access(path, X_OK) != 0) return -1;
  size_t count = 0;
  while (argv[count] != NULL) ++count;
  char whole[PATH_MAX];
  if (realpath(path, whole) == NULL) return -1;
  char** more = calloc(count + 8, sizeof(char*));
  if (more == NULL) {
    errno = ENOMEM;
    return -1;
  }
  size_t n = 0;
  more[n++] = (char*)"qemu-aarch64";
  more[n++] = (char*)"-L";
  more[n++] = (char*)PREFIX;
  more[n++] = (char*)"-0";
  more[n++] = count > 0 ? argv[0] : whole;
  more[n++] = whole;
  for (size_t i = 1; i < count; ++i) more[n++] = argv[i];
  const int result = start(QEMU, more, envp);
  const int error = errno;
  free(more);
  errno = error;
  return result;
}

int execv(const char* path, char* const argv[]) { return execve(path, argv, environ); }

int execvpe(const char* file, char* const argv[], char* const envp[]) {
  if (strchr(file, '/') != NULL) return execve(file, argv, envp);
  const char* from = getenv("PATH");
  if (from == NULL) from = "/system/bin";
  int refused = 0;
  while (*from != '\0') {
    const size_t length = strcspn(from, ":");
    char path[PATH_MAX];
    if (snprintf(path, sizeof(path), "%.*s/%s", (int)length, from, file) < (int)sizeof(path)) {
      execve(path, argv, envp);
      if (errno == EACCES) refused = 1;
      else if (errno != ENOENT && errno != ENOTDIR) return -1;
    }
    from += length;
    if (*from == ':') ++from;
  }
  errno = refused ? EACCES : ENOENT;
  return -1;
}

int execvp(const char* file, char* const argv[]) { return execvpe(file, argv, environ); }

int uname(struct utsname* name) {
  const int result = (int)syscall(SYS_uname, name);
  if (result == 0) strcpy(name->machine, "aarch64");
  return result;
}
