/* A disk that is slow where a test says so: before a server's process by LD_PRELOAD. The file CONTROL holds a part of a path and
 * milliseconds; whoever syncs a file of such a path waits so long first. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int fsync(int descriptor) {
  char part[256] = "";
  int delay_ms = 0;
  FILE* control = fopen(CONTROL, "r");
  if (control != NULL) {
    if (fscanf(control, "%255s %d", part, &delay_ms) != 2) delay_ms = 0;
    fclose(control);
  }
  if (delay_ms > 0) {
    char link[64];
    char path[4096] = "";
    snprintf(link, sizeof(link), "/proc/self/fd/%d", descriptor);
    if (readlink(link, path, sizeof(path) - 1) > 0 && strstr(path, part) != NULL) poll(NULL, 0, delay_ms);
  }
  int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
  return next(descriptor);
}
