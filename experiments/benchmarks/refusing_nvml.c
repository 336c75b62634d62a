// An NVML that lets look and stops all that sets; see refusing_nvml.py, which names what to stop in stopped.h:
// STOP(name) each. What is not stopped is the driver's own, which this library needs, and which is found behind it.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, NO_PERMISSION = 4 }; // nvmlReturn_t

// A call that is not made: written down, and refused, or said to have been made.
static int stopped(const char *name, unsigned first, unsigned second) {
  const char *mode = getenv("REFUSING_NVML_MODE"), *log = getenv("REFUSING_NVML_LOG");
  FILE *file = log ? fopen(log, "a") : NULL;
  if (file) {
    fprintf(file, "%d %s %u %u\n", (int)getpid(), name, first, second);
    fclose(file);
  }
  return mode && !strcmp(mode, "pretend") ? SUCCESS : NO_PERMISSION;
}

// Arguments beyond these are the caller's own, and are not looked at.
#define STOP(name) \
  int name(void *device, unsigned first, unsigned second) { return (void)device, stopped(#name, first, second); }
#include "stopped.h"
