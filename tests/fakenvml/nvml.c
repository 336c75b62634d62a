// The calls of NVML that the project and its peers make, on the fake boards. Numbers of errors, fields and reasons are
// NVML's own (nvml.h, API version 13).
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "state.h"

enum {
  OK = 0,
  UNINITIALISED = 1,
  INVALID = 2,
  NOT_SUPPORTED = 3,
  NO_PERMISSION = 4,
  NOT_FOUND = 6,
  TOO_SMALL = 7,
  NO_DRIVER = 9,
  LOST = 15,
};
enum { HANGS = -1 };  // a fault's code: the call never comes back
enum { LOWEST_LIMIT_MW = 100000 };
enum { GRAPHICS = 0, SM = 1, MEM = 2, VIDEO = 3 };

static int initialised;

// --- entering a call ------------------------------------------------------------------------------------------------

// `*` is every call on a handle, not what finds one.
static int fault_of(Device *device, const char *symbol) {
  const int finds = strstr(symbol, "GetHandleBy") != NULL;
  if (device->lost) {
    return LOST;
  }
  for (Fault *fault = device->faults; fault < device->faults + MAX_FAULTS; ++fault) {
    if (!fault->symbol[0] || (strcmp(fault->symbol, symbol) && (finds || strcmp(fault->symbol, "*")))) {
      continue;
    }
    if (fault->after > 0) {
      --fault->after;
    } else if (fault->times != 0) {
      fault->times -= fault->times > 0;
      return fault->code;
    }
  }
  return OK;
}

static void spend(Device *device, int64_t ns) {
  if (device->virtual_time) {
    device->now_ns += ns;
  }
}

// The device behind a handle, brought up to now, with the state locked; or the code to return, with nothing locked.
static int begin(void *handle, const char *symbol, Device **device) {
  if (!initialised) {
    return UNINITIALISED;
  }
  State *state = enter(NULL);
  if (!state) {
    return NO_DRIVER;
  }
  const size_t index = (size_t)handle - 1;
  if (!handle || index >= state->count) {
    leave();
    return INVALID;
  }
  *device = &state->devices[index];
  ++(*device)->calls;
  spend(*device, (*device)->call_ns);
  advance(*device);
  const int code = fault_of(*device, symbol);
  if (code) {
    leave();
  }
  if (code == HANGS) {
    for (;;) {
      pause();
    }
  }
  return code;
}

#define BEGIN(handle)                                  \
  Device *device;                                      \
  const int failed = begin(handle, __func__, &device); \
  if (failed) return failed;
#define RETURN(code)    \
  do {                  \
    const int r = code; \
    leave();            \
    return r;           \
  } while (0)

static int copy(char *to, unsigned size, const char *text) {
  if (strlen(text) + 1 > size) {
    return TOO_SMALL;
  }
  strcpy(to, text);
  return OK;
}

// --- the library ----------------------------------------------------------------------------------------------------

// Processes that hold NVML open: with persistence off, the driver goes when the last of them does, and with it all
// locks and the counter.
static void prune_clients(State *state, int leaving) {
  int left = 0, had = 0;
  for (int i = 0; i < MAX_PIDS; ++i) {
    had += state->clients[i] != 0;
    if (state->clients[i] == leaving || !alive(state->clients[i])) {
      state->clients[i] = 0;
    }
    left += state->clients[i] != 0;
  }
  for (unsigned i = 0; had && !left && i < state->count; ++i) {
    if (!state->devices[i].persistence) {
      advance(&state->devices[i]);
      unload_driver(&state->devices[i]);
    }
  }
}

int nvmlInitWithFlags(unsigned flags) {
  (void)flags;
  State *state = enter(NULL);
  if (!state) {
    return NO_DRIVER;
  }
  if (state->init_code) {
    RETURN(state->init_code);
  }
  prune_clients(state, 0);
  int known = 0;
  for (int i = 0; i < MAX_PIDS; ++i) {
    known |= state->clients[i] == getpid();
  }
  for (int i = 0; i < MAX_PIDS && !known; ++i) {
    if (!state->clients[i]) {
      state->clients[i] = getpid();
      known = 1;
    }
  }
  ++initialised;
  RETURN(OK);
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

int nvmlShutdown(void) {
  if (!initialised) {
    return UNINITIALISED;
  }
  State *state = enter(NULL);
  if (--initialised == 0 && state) {
    prune_clients(state, getpid());
  }
  if (state) {
    leave();
  }
  return OK;
}

const char *nvmlErrorString(int code) {
  switch (code) {
    case OK:
      return "Success";
    case UNINITIALISED:
      return "Uninitialized";
    case INVALID:
      return "Invalid Argument";
    case NOT_SUPPORTED:
      return "Not Supported";
    case NO_PERMISSION:
      return "Insufficient Permissions";
    case NOT_FOUND:
      return "Not Found";
    case TOO_SMALL:
      return "Insufficient Size";
    case NO_DRIVER:
      return "Driver Not Loaded";
    case LOST:
      return "GPU is lost";
    default:
      return "Unknown Error";
  }
}

int nvmlSystemGetDriverVersion(char *text, unsigned size) {
  State *state = initialised ? enter(NULL) : NULL;
  if (!state) {
    return initialised ? NO_DRIVER : UNINITIALISED;
  }
  RETURN(copy(text, size, state->driver));
}

int nvmlSystemGetNVMLVersion(char *text, unsigned size) {
  return initialised ? copy(text, size, "13.580.00 (fake NVML)") : UNINITIALISED;
}

int nvmlSystemGetCudaDriverVersion_v2(int *version) {
  *version = 13000;
  return initialised ? OK : UNINITIALISED;
}

// --- finding a device -----------------------------------------------------------------------------------------------

static int find(void **handle, const char *wanted, size_t offset, const char *symbol) {
  if (!initialised) {
    return UNINITIALISED;
  }
  State *state = enter(NULL);
  if (!state) {
    return NO_DRIVER;
  }
  for (size_t i = 0; i < state->count; ++i) {
    if (!strcmp((const char *)&state->devices[i].profile + offset, wanted)) {
      *handle = (void *)(i + 1);
      RETURN(fault_of(&state->devices[i], symbol));
    }
  }
  RETURN(NOT_FOUND);
}

int nvmlDeviceGetCount_v2(unsigned *count) {
  State *state = initialised ? enter(NULL) : NULL;
  if (!state) {
    return initialised ? NO_DRIVER : UNINITIALISED;
  }
  *count = state->count;
  RETURN(OK);
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
  State *state = initialised ? enter(NULL) : NULL;
  if (!state) {
    return initialised ? NO_DRIVER : UNINITIALISED;
  }
  *handle = (void *)((size_t)index + 1);
  RETURN(index < state->count ? fault_of(&state->devices[index], __func__) : INVALID);
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) { return find(handle, uuid, offsetof(Profile, uuid), __func__); }

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **handle) {
  return find(handle, bus_id, offsetof(Profile, bus_id), __func__);
}

// --- what it is -----------------------------------------------------------------------------------------------------

int nvmlDeviceGetIndex(void *handle, unsigned *index) {
  BEGIN(handle)
  *index = (unsigned)((size_t)handle - 1);
  RETURN(OK);
}

// as in machines whose device nodes were made in another order than NVML's: never the index
int nvmlDeviceGetMinorNumber(void *handle, unsigned *minor) {
  BEGIN(handle)
  *minor = MAX_DEVICES - (unsigned)(size_t)handle;
  RETURN(OK);
}

int nvmlDeviceGetName(void *handle, char *text, unsigned size) {
  BEGIN(handle)
  RETURN(copy(text, size, device->profile.name));
}

int nvmlDeviceGetUUID(void *handle, char *text, unsigned size) {
  BEGIN(handle)
  RETURN(copy(text, size, device->profile.uuid));
}

int nvmlDeviceGetVbiosVersion(void *handle, char *text, unsigned size) {
  BEGIN(handle)
  RETURN(copy(text, size, "fa.4e.00.00.01"));
}

typedef struct {
  char legacy[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
} PciInfo;

int nvmlDeviceGetPciInfo_v3(void *handle, PciInfo *info) {
  BEGIN(handle)
  memset(info, 0, sizeof *info);
  info->bus = (unsigned)(size_t)handle;
  snprintf(info->bus_id, sizeof info->bus_id, "%s", device->profile.bus_id);
  snprintf(info->legacy, sizeof info->legacy, "%.12s", device->profile.bus_id + 4);
  RETURN(OK);
}

int nvmlDeviceGetArchitecture(void *handle, unsigned *architecture) {
  BEGIN(handle)
  *architecture = device->profile.architecture;
  RETURN(OK);
}

int nvmlDeviceGetCudaComputeCapability(void *handle, int *major, int *minor) {
  BEGIN(handle)
  *major = (int)device->profile.capability_major;
  *minor = (int)device->profile.capability_minor;
  RETURN(OK);
}

int nvmlDeviceGetNumGpuCores(void *handle, unsigned *count) {
  BEGIN(handle)
  *count = device->profile.cores;
  RETURN(OK);
}

int nvmlDeviceGetMigMode(void *handle, unsigned *current, unsigned *pending) {
  BEGIN(handle)
  *current = *pending = device->mig;
  RETURN(device->profile.capability_minor || device->slice ? NOT_SUPPORTED : OK);  // A100 and H100 have it, gaming boards have not
}

int nvmlDeviceGetEccMode(void *handle, unsigned *current, unsigned *pending) {
  BEGIN(handle)
  *current = *pending = device->ecc;
  RETURN(OK);
}

int nvmlDeviceGetPersistenceMode(void *handle, unsigned *mode) {
  BEGIN(handle)
  *mode = device->persistence;
  RETURN(OK);
}

int nvmlDeviceSetPersistenceMode(void *handle, unsigned mode) {
  BEGIN(handle)
  if (!device->deny) {
    device->persistence = mode != 0;
  }
  RETURN(device->deny ? NO_PERMISSION : OK);
}

int nvmlDeviceGetAutoBoostedClocksEnabled(void *handle, unsigned *now, unsigned *normally) {
  BEGIN(handle)
  (void)now, (void)normally;
  RETURN(NOT_SUPPORTED);
}

int nvmlDeviceGetDefaultApplicationsClock(void *handle, unsigned type, unsigned *mhz) {
  BEGIN(handle)
  (void)type, (void)mhz;
  RETURN(NOT_SUPPORTED);
}

// --- clocks ---------------------------------------------------------------------------------------------------------

static int list(const Device *device, unsigned *count, unsigned *values, const unsigned *from, unsigned size) {
  const unsigned room = *count;
  *count = size;
  if (!values || room < size) {
    return TOO_SMALL;
  }
  for (unsigned i = 0; i < size; ++i) {
    values[i] = from[device->unordered ? (i * 7 + 3) % size : i];  // 7 divides no board's number of clocks
  }
  return OK;
}

int nvmlDeviceGetSupportedMemoryClocks(void *handle, unsigned *count, unsigned *mhz) {
  BEGIN(handle)
  RETURN(list(device, count, mhz, device->profile.mem_mhz, device->profile.mem_count));
}

int nvmlDeviceGetSupportedGraphicsClocks(void *handle, unsigned mem_mhz, unsigned *count, unsigned *mhz) {
  BEGIN(handle)
  const Profile *p = &device->profile;
  unsigned clocks[MAX_CORE], size = 0, known = 0;
  for (unsigned i = 0; i < p->mem_count; ++i) {
    known |= p->mem_mhz[i] == mem_mhz;
  }
  for (unsigned core = p->core_high; known && mem_mhz != device->no_core_at && core >= p->core_low; core -= p->core_step) {
    clocks[size++] = core;
  }
  RETURN(known ? list(device, count, mhz, clocks, size) : NOT_FOUND);
}

// `deny` is for everybody who lacks the right, which a process has that says so
static int denied(const Device *device) { return device->deny && !getenv("FAKENVML_ROOT"); }

static int set(Device *device, Domain *domain, unsigned min, unsigned max, int ignored, const Delay *delay) {
  if (denied(device)) {
    return NO_PERMISSION;
  }
  if (device->slice) {
    return NOT_SUPPORTED;
  }
  if (min > max || (max && !min)) {
    return INVALID;
  }
  if (ignored) {
    ++device->sets;
    return OK;  // the request is installed, and not obeyed
  }
  request(device, domain, (Lock){min, max}, delay);
  spend(device, device->set_ns);
  return OK;
}

int nvmlDeviceSetGpuLockedClocks(void *handle, unsigned min, unsigned max) {
  BEGIN(handle)
  RETURN(set(device, &device->core, min, max, (int)device->ignore_core, &device->core_delay));
}

int nvmlDeviceResetGpuLockedClocks(void *handle) {
  BEGIN(handle)
  RETURN(set(device, &device->core, 0, 0, 0, &device->core_delay));
}

int nvmlDeviceSetMemoryLockedClocks(void *handle, unsigned min, unsigned max) {
  BEGIN(handle)
  RETURN(set(device, &device->mem, min, max, (int)device->ignore_mem, &device->mem_delay));
}

int nvmlDeviceResetMemoryLockedClocks(void *handle) {
  BEGIN(handle)
  RETURN(set(device, &device->mem, 0, 0, 0, &device->mem_delay));
}

int nvmlDeviceGetClockInfo(void *handle, unsigned type, unsigned *mhz) {
  BEGIN(handle)
  *mhz = type == MEM ? memory_mhz(device) : device->core_mhz;
  RETURN(type <= VIDEO ? OK : INVALID);
}

int nvmlDeviceGetMaxClockInfo(void *handle, unsigned type, unsigned *mhz) {
  BEGIN(handle)
  *mhz = type == MEM ? device->profile.mem_mhz[0] : device->profile.core_high;
  RETURN(type <= VIDEO ? OK : INVALID);
}

// --- power, energy, temperature -------------------------------------------------------------------------------------

int nvmlDeviceGetTotalEnergyConsumption(void *handle, unsigned long long *mj) {
  int64_t read_ns;
  {
    BEGIN(handle)
    if (device->slice) {
      RETURN(NOT_SUPPORTED);
    }
    // between nine and eleven tenths of the usual time, hashed
    const uint64_t hash = (device->calls * 0xD1B54A32D192ED03u) >> 40;
    read_ns = (int64_t)((double)device->read_ns * (0.93 + 0.14 * (double)hash / (1 << 24)));
    spend(device, read_ns);
    if (device->virtual_time) {
      advance(device);
      *mj = device->shown_mj;
      RETURN(OK);
    }
    leave();
  }
  const struct timespec wait = {0, read_ns};
  nanosleep(&wait, NULL);
  Device *device;
  const int code = begin(handle, "", &device);
  if (code) {
    return code;
  }
  *mj = device->shown_mj;
  RETURN(OK);
}

int nvmlDeviceGetPowerUsage(void *handle, unsigned *mw) {
  BEGIN(handle)
  *mw = (unsigned)(1000 * (device->power_mean_ns ? device->mean_w : power_w(device, device->core_mhz)));
  RETURN(device->slice ? NOT_SUPPORTED : OK);
}

int nvmlDeviceGetEnforcedPowerLimit(void *handle, unsigned *mw) {
  BEGIN(handle)
  *mw = device->limit_mw;
  RETURN(OK);
}

int nvmlDeviceGetPowerManagementLimit(void *handle, unsigned *mw) {
  BEGIN(handle)
  *mw = device->limit_mw;
  RETURN(OK);
}

// a real driver forgets it when it is unloaded, and takes nothing beyond its constraints
int nvmlDeviceSetPowerManagementLimit(void *handle, unsigned mw) {
  BEGIN(handle)
  if (denied(device)) {
    RETURN(NO_PERMISSION);
  }
  if (mw < LOWEST_LIMIT_MW || mw > device->profile.default_limit_mw) {
    RETURN(INVALID);
  }
  if (!device->ignore_power) {
    device->limit_mw = mw;
  }
  spend(device, device->set_ns);
  RETURN(OK);
}

int nvmlDeviceGetPowerManagementDefaultLimit(void *handle, unsigned *mw) {
  BEGIN(handle)
  *mw = device->profile.default_limit_mw;
  RETURN(OK);
}

int nvmlDeviceGetPowerManagementLimitConstraints(void *handle, unsigned *low_mw, unsigned *high_mw) {
  BEGIN(handle)
  *low_mw = LOWEST_LIMIT_MW;
  *high_mw = device->profile.default_limit_mw;
  RETURN(OK);
}

int nvmlDeviceGetTemperature(void *handle, unsigned sensor, unsigned *celsius) {
  BEGIN(handle)
  *celsius = (unsigned)lround(device->temperature_c);
  RETURN(sensor ? INVALID : OK);
}

typedef struct {
  unsigned version, sensor;
  int celsius;
} TemperatureV1;

int nvmlDeviceGetTemperatureV(void *handle, TemperatureV1 *reading) {
  BEGIN(handle)
  reading->celsius = (int)lround(device->temperature_c);
  RETURN(reading->sensor ? INVALID : OK);
}

static int reasons(Device *device, unsigned long long *bits) {
  const int busy = loaded(device) || device->utilisation > 0;
  *bits = (busy ? 0 : 0x1) | (device->capped ? 0x4 : 0) | (device->hot ? 0x20 : 0);
  return OK;
}

int nvmlDeviceGetCurrentClocksEventReasons(void *handle, unsigned long long *bits) {
  BEGIN(handle)
  RETURN(reasons(device, bits));
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void *handle, unsigned long long *bits) {
  BEGIN(handle)
  RETURN(reasons(device, bits));
}

typedef struct {
  unsigned field, scope;
  long long timestamp_us, latency_us;
  unsigned type;
  int code;
  unsigned long long value;
} FieldValue;

int nvmlDeviceGetFieldValues(void *handle, int count, FieldValue *fields) {
  BEGIN(handle)
  const unsigned moved = device->new_field_ids ? 269 : 251;
  for (FieldValue *field = fields; field < fields + count; ++field) {
    field->timestamp_us = device->last_ns / 1000;
    field->type = 3;  // unsigned long long
    field->code = OK;
    if (field->field == 74) {
      field->value = (unsigned long long)device->cap_ns;
    } else if (field->field == 75 || field->field == moved) {
      field->value = (unsigned long long)device->thermal_ns;
    } else if (field->field == 76 || field->field == moved + 1 || field->field == moved + 2) {
      field->value = 0;  // no sync boost, no hardware slowdown, no power brake on these boards
    } else if (field->field == 186) {
      field->value = (unsigned long long)(1000 * power_w(device, device->core_mhz));
    } else {
      field->code = NOT_SUPPORTED;
    }
  }
  RETURN(OK);
}

// --- processes ------------------------------------------------------------------------------------------------------

typedef struct {
  unsigned pid;
  unsigned long long memory;
  unsigned instance, compute_instance;
} ProcessInfo;

static int processes(unsigned *count, ProcessInfo *infos, const unsigned *pids, unsigned size) {
  const unsigned room = *count;
  *count = size;
  if (!size) {
    return OK;
  }
  if (!infos || room < size) {
    return TOO_SMALL;
  }
  for (unsigned i = 0; i < size; ++i) {
    infos[i] = (ProcessInfo){pids[i], 1 << 20, ~0u, ~0u};
  }
  return OK;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, ProcessInfo *infos) {
  BEGIN(handle)
  unsigned pids[2 * MAX_PIDS], size = 0;
  for (unsigned i = 0; i < device->foreign_compute && i < MAX_PIDS; ++i) {
    pids[size++] = 1 + i;
  }
  for (int i = 0; i < MAX_PIDS; ++i) {
    if (device->contexts[i] && alive(device->contexts[i])) {
      pids[size++] = (unsigned)device->contexts[i];
    }
  }
  RETURN(processes(count, infos, pids, size));
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(void *handle, unsigned *count, ProcessInfo *infos) {
  BEGIN(handle)
  unsigned pids[MAX_PIDS], size = 0;
  while (size < device->foreign_graphics && size < MAX_PIDS) {
    pids[size] = 101 + size;
    ++size;
  }
  RETURN(processes(count, infos, pids, size));
}
