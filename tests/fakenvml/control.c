// Beside NVML: knobs and readings for tests, and what a simulated kernel needs (time, cycles, its power). A program
// that must know whether its NVML is real looks for these symbols.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "state.h"

static const int64_t kMs = 1000000;

int fakenvml_create(const char *path, const char *profiles) {
  State *state = enter(path);
  if (!state) {
    return 1;
  }
  make_devices(state, profiles);
  leave();
  return 0;
}

static int add_fault(Device *device, const char *text) {
  if (!*text) {
    memset(device->faults, 0, sizeof device->faults);
    return 0;
  }
  for (Fault *fault = device->faults; fault < device->faults + MAX_FAULTS; ++fault) {
    if (!fault->symbol[0]) {
      fault->times = -1;
      return sscanf(text, "%63[^:]:%d:%d:%d", fault->symbol, &fault->code, &fault->after, &fault->times) < 2;
    }
  }
  return 1;
}

// `freeze@2.5`: 2.5 s from now; `jump@1:-5000`: 1 s from now it loses 5000 mJ; `ok`: no fault.
static void counter(Device *device, const char *text) {
  const char *at = strchr(text, '@');
  const int64_t when = now_ns(device) + (int64_t)((at ? atof(at + 1) : 0) * 1e9);
  device->freeze_at_ns = strncmp(text, "freeze", 6) ? 0 : when;
  device->reset_at_ns = strncmp(text, "reset", 5) ? 0 : when;
  device->jump_at_ns = strncmp(text, "jump", 4) ? 0 : when;
  const char *by = strchr(text, ':');
  device->jump_mj = by ? atof(by + 1) : 0;
}

// From now on it shows so much of each mJ; what it shows now stays.
static void scale_counter(Device *device, double factor) {
  device->offset_mj = device->energy_mj - (double)device->shown_mj / factor;
  device->counter_factor = factor;
}

// This board is a slice of another one: by its name only.
static void slice(Device *device, uint32_t is_slice) {
  device->slice = is_slice;
  memcpy(device->profile.uuid, is_slice ? "MIG-" : "GPU-", 4);
}

static int turn_delay(Delay *delay, const char *key, double number) {
  if (!strcmp(key, "lag_ms"))
    delay->lag_ns = (int64_t)(number * kMs);
  else if (!strcmp(key, "lag_spread"))
    delay->spread = number;
  else if (!strcmp(key, "lag_tail"))
    delay->tail = number;
  else if (!strcmp(key, "stall_ms"))
    delay->stall_ns = (int64_t)(number * kMs);
  else if (!strcmp(key, "ramp_ms"))
    delay->ramp_ns = (int64_t)(number * kMs);
  else
    return 1;
  return 0;
}

static int turn(Device *d, const char *key, const char *text) {
  const double number = atof(text);
  if (!strcmp(key, "time")) {
    set_virtual(d, !strcmp(text, "virtual"));
  } else if (!strcmp(key, "limit_mw"))
    d->limit_mw = (uint32_t)number;
  else if (!strcmp(key, "mig"))
    d->mig = (uint32_t)number;
  else if (!strcmp(key, "ecc"))
    d->ecc = (uint32_t)number;
  else if (!strcmp(key, "persistence"))
    d->persistence = (uint32_t)number;
  else if (!strcmp(key, "foreign_compute"))
    d->foreign_compute = (uint32_t)number;
  else if (!strcmp(key, "foreign_graphics"))
    d->foreign_graphics = (uint32_t)number;
  else if (!strcmp(key, "deny"))
    d->deny = (uint32_t)number;
  else if (!strcmp(key, "ignore")) {
    d->ignore_core = !!strstr(text, "core");
    d->ignore_mem = !!strstr(text, "mem");
    d->ignore_power = !!strstr(text, "power");
  } else if (!strcmp(key, "core_lock_limit_mw"))
    d->core_lock_limit_mw = (uint32_t)number;
  else if (!strcmp(key, "mem_lock_limit_mw"))
    d->mem_lock_limit_mw = (uint32_t)number;
  else if (!strncmp(key, "core_", 5))
    return turn_delay(&d->core_delay, key + 5, number);
  else if (!strncmp(key, "mem_", 4))
    return turn_delay(&d->mem_delay, key + 4, number);
  else if (!strcmp(key, "set_ms"))
    d->set_ns = (int64_t)(number * kMs);
  else if (!strcmp(key, "call_ms"))
    d->call_ns = (int64_t)(number * kMs);
  else if (!strcmp(key, "read_ms"))
    d->read_ns = (int64_t)(number * kMs);
  else if (!strcmp(key, "period_ms"))
    d->period_ns = (int64_t)(number * kMs);
  else if (!strcmp(key, "jitter_ms"))
    d->jitter_ns = (int64_t)(number * kMs);
  else if (!strcmp(key, "utilisation"))
    d->utilisation = number;
  else if (!strcmp(key, "forced_c"))
    d->forced_c = atof(*text ? text : "nan");
  else if (!strcmp(key, "temperature_c"))
    d->temperature_c = number;
  else if (!strcmp(key, "new_field_ids"))
    d->new_field_ids = (uint32_t)number;
  else if (!strcmp(key, "architecture"))
    d->profile.architecture = (uint32_t)number;
  else if (!strcmp(key, "capability")) {
    d->profile.capability_major = (uint32_t)number;
    d->profile.capability_minor = (uint32_t)lround(10 * number) % 10;
  } else if (!strcmp(key, "step_mhz"))
    d->profile.core_step = (uint32_t)number;
  else if (!strcmp(key, "unordered"))
    d->unordered = (uint32_t)number;
  else if (!strcmp(key, "no_core_at"))
    d->no_core_at = (uint32_t)number;
  else if (!strcmp(key, "lost"))
    d->lost = (uint32_t)number;
  else if (!strcmp(key, "slice"))
    slice(d, (uint32_t)number);
  else if (!strcmp(key, "power_mean_ms")) {
    d->power_mean_ns = (int64_t)(number * kMs);
    d->mean_w = power_w(d, d->core_mhz);
  } else if (!strcmp(key, "counter_factor"))
    scale_counter(d, number);
  else if (!strcmp(key, "unload"))
    unload_driver(d);
  else if (!strcmp(key, "counter"))
    counter(d, text);
  else if (!strcmp(key, "fail"))
    return add_fault(d, text);
  else
    return 1;
  return 0;
}

int fakenvml_set(const char *path, unsigned index, const char *key, const char *text) {
  State *state = enter(path);
  if (!state) {
    return 1;
  }
  int failed = 1;
  if (!strcmp(key, "driver")) {
    failed = snprintf(state->driver, sizeof state->driver, "%s", text) < 0;
  } else if (!strcmp(key, "init")) {
    state->init_code = atoi(text);
    failed = 0;
  } else if (index < state->count) {
    if (strcmp(key, "time")) {
      advance(&state->devices[index]);
    }
    failed = turn(&state->devices[index], key, text);
  }
  leave();
  return failed;
}

static void show_lock(const Domain *domain, char *text, size_t size) {
  if (domain->next.max_mhz) {
    snprintf(text, size, "%u-%u", domain->next.min_mhz, domain->next.max_mhz);
  } else {
    snprintf(text, size, "none");
  }
}

int fakenvml_get(const char *path, unsigned index, const char *key, char *text, size_t size) {
  State *state = enter(path);
  if (!state) {
    return 1;
  }
  int failed = index >= state->count;
  if (!failed) {
    Device *d = &state->devices[index];
    advance(d);
    if (!strcmp(key, "core_lock"))
      show_lock(&d->core, text, size);
    else if (!strcmp(key, "mem_lock"))
      show_lock(&d->mem, text, size);
    else if (!strcmp(key, "core_mhz"))
      snprintf(text, size, "%u", d->core_mhz);
    else if (!strcmp(key, "mem_mhz"))
      snprintf(text, size, "%u", memory_mhz(d));
    else if (!strcmp(key, "energy_mj"))
      snprintf(text, size, "%.6f", d->energy_mj);
    else if (!strcmp(key, "now_s"))
      snprintf(text, size, "%.9f", now_ns(d) / 1e9);
    else if (!strcmp(key, "temperature_c"))
      snprintf(text, size, "%.3f", d->temperature_c);
    else if (!strncmp(key, "change:", 7)) {
      // counted from 0, the last MAX_CHANGES: domain, and in ns when it was asked for, lag, stall, ramp
      const uint64_t number = strtoull(key + 7, NULL, 10);
      const Change *c = &d->changes[number % MAX_CHANGES];
      failed = number >= d->change_count || number + MAX_CHANGES < d->change_count;
      snprintf(text, size, "%s %lld %lld %lld %lld", c->is_mem ? "mem" : "core", (long long)c->asked_ns,
               (long long)(c->at_ns - c->asked_ns), (long long)c->stall_ns, (long long)c->ramp_ns);
    } else if (!strcmp(key, "changes"))
      snprintf(text, size, "%llu", (unsigned long long)d->change_count);
    else if (!strcmp(key, "limit_mw"))
      snprintf(text, size, "%u", d->limit_mw);
    else if (!strcmp(key, "sets"))
      snprintf(text, size, "%llu", (unsigned long long)d->sets);
    else if (!strcmp(key, "calls"))
      snprintf(text, size, "%llu", (unsigned long long)d->calls);
    else if (!strcmp(key, "uuid"))
      snprintf(text, size, "%s", d->profile.uuid);
    else
      failed = 1;
  }
  leave();
  return failed;
}

// --- for a simulated kernel in this process -------------------------------------------------------------------------

static Device *own(const char *uuid) {
  State *state = enter(NULL);
  for (unsigned i = 0; state && i < state->count; ++i) {
    if (!strcmp(state->devices[i].profile.uuid, uuid)) {
      advance(&state->devices[i]);
      return &state->devices[i];
    }
  }
  if (state) {
    leave();
  }
  return NULL;
}

// This process computes on the device, as one with a CUDA context does.
int fakenvml_open(const char *uuid) {
  Device *device = own(uuid);
  if (!device) {
    return 1;
  }
  int at = 0;
  while (at + 1 < MAX_PIDS && device->contexts[at] != getpid() && alive(device->contexts[at])) {
    ++at;
  }
  device->contexts[at] = getpid();
  leave();
  return 0;
}

// Run a kernel whose board power (W) is power[memory clock, descending][core clock, ascending]; NULL: stop.
int fakenvml_load(const char *uuid, const double *power, unsigned mem_count, unsigned core_count) {
  Device *device = own(uuid);
  if (!device) {
    return 1;
  }
  const int fits = !power || (mem_count == device->profile.mem_count && core_count <= MAX_CORE);
  device->load_pid = power && fits ? getpid() : 0;
  for (unsigned i = 0; device->load_pid && i < mem_count; ++i) {
    for (unsigned j = 0; j < MAX_CORE; ++j) {
      device->load_w[i][j] = power[i * core_count + (j < core_count ? j : core_count - 1)];
    }
  }
  advance(device);
  leave();
  return !fits;
}

// Time (s), core cycles so far (millions), clocks now (MHz): what a kernel on the device can know.
int fakenvml_now(const char *uuid, double *values) {
  Device *device = own(uuid);
  if (!device) {
    return 1;
  }
  values[0] = (double)device->last_ns / 1e9;
  values[1] = device->cycles / 1e6;
  values[2] = device->core_mhz;
  values[3] = memory_mhz(device);
  leave();
  return 0;
}

int fakenvml_sleep(const char *uuid, double seconds) {
  Device *device = own(uuid);
  if (!device) {
    return 1;
  }
  const int virtually = (int)device->virtual_time;
  if (virtually) {
    device->now_ns += seconds > 1e-6 ? (int64_t)(seconds * 1e9) : 1000;  // never nothing, as any sleep
    advance(device);
  }
  leave();
  if (!virtually && seconds > 0) {
    const struct timespec wait = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&wait, NULL);
  }
  return 0;
}

// Note every change of the clocks from now on.
int fakenvml_note(const char *uuid) {
  Device *device = own(uuid);
  if (!device) {
    return 1;
  }
  note_stretches(device);
  leave();
  return 0;
}

// What was noted until now: up to `room` times four values (when, s; core cycles until then, millions; core MHz, 0
// while the board stands still; memory MHz), the last of them being now. Returns how many; 0 where none were noted.
unsigned fakenvml_stretches(const char *uuid, double *values, unsigned room) {
  Device *device = own(uuid);
  if (!device) {
    return 0;
  }
  unsigned count = 0;
  for (; count < device->stretch_count && count + 1 < room; ++count) {
    const Stretch *each = &device->stretches[count];
    const double four[] = {(double)each->at_ns / 1e9, each->cycles, each->core_mhz, each->mem_mhz};
    memcpy(values + 4 * count, four, sizeof four);
  }
  if (count) {
    const double four[] = {(double)device->last_ns / 1e9, device->cycles / 1e6, device->core_mhz, memory_mhz(device)};
    memcpy(values + 4 * count++, four, sizeof four);
  }
  leave();
  return count;
}
