// The board: clocks that follow requests after a while, power under a limit, temperature, an energy counter that
// shows the energy at its last edge. Figures of the profiles are those of the simulated GPUs, rounded.
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "state.h"

static const int64_t kMs = 1000000;

static const Profile kProfiles[] = {
    {.name = "Simulated H200 on a fake NVML",
     .mem_mhz = {3201, 2201},
     .mem_count = 2,
     .core_low = 345,
     .core_high = 1980,
     .core_step = 15,
     .auto_core = 1980,
     .auto_mem = 3201,
     .idle_core = 345,
     .capability_major = 9,
     .capability_minor = 0,
     .architecture = 9,
     .cores = 132 * 128,
     .default_limit_mw = 700000,
     .standing_w = 75,
     .mem_w_per_ghz = 20,
     .core_w_per_ghz = 250,
     .ambient_c = 25,
     .c_per_w = 0.045,
     .tau_s = 20},
    {.name = "Simulated RTX 3080 Ti on a fake NVML",
     .mem_mhz = {9501, 9251, 5001, 810, 405},
     .mem_count = 5,
     .core_low = 210,
     .core_high = 2100,
     .core_step = 15,
     .auto_core = 1930,
     .auto_mem = 9501,
     .idle_core = 210,
     .fold_mem = 405,
     .fold_above_core = 420,
     .fold_to = 810,
     .capability_major = 8,
     .capability_minor = 6,
     .architecture = 7,
     .cores = 80 * 128,
     .default_limit_mw = 350000,
     .standing_w = 30,
     .mem_w_per_ghz = 6,
     .core_w_per_ghz = 110,
     .ambient_c = 30,
     .c_per_w = 0.14,
     .tau_s = 20},
};
static const char *const kNames[] = {"h200", "rtx_3080_ti"};

void make_devices(State *state, const char *profiles) {
  memset(state->devices, 0, sizeof state->devices);
  state->count = 0;
  strcpy(state->driver, "580.00 (fake NVML)");
  for (const char *at = profiles; *at && state->count < MAX_DEVICES; at += strcspn(at, ","), at += *at == ',') {
    Device *device = &state->devices[state->count];
    for (unsigned i = 0; i < sizeof kNames / sizeof *kNames; ++i) {
      if (strlen(kNames[i]) == strcspn(at, ",") && !strncmp(at, kNames[i], strlen(kNames[i]))) {
        device->profile = kProfiles[i];
      }
    }
    snprintf(device->profile.uuid, sizeof device->profile.uuid, "GPU-fa4e%04x-0000-4000-8000-00000000fa4e",
             state->count);
    snprintf(device->profile.bus_id, sizeof device->profile.bus_id, "00000000:%02X:00.0", 1 + state->count);
    device->limit_mw = device->profile.default_limit_mw;
    device->persistence = 1;
    device->ecc = device->profile.capability_minor == 0;
    device->period_ns = 100 * kMs;
    device->jitter_ns = 3 * kMs / 2;
    device->read_ns = 41 * kMs / 10;
    device->call_ns = 3400;
    device->core_delay.lag_ns = 30 * kMs;
    device->mem_delay.lag_ns = 60 * kMs;
    device->forced_c = NAN;
    device->slowdown_c = 90;
    device->counter_factor = 1;
    device->temperature_c = device->profile.ambient_c;
    device->core_mhz = device->profile.idle_core;
    device->offset_mj = -123456;  // the driver has been loaded for a while
    device->shown_mj = 123456;
    device->last_ns = now_ns(device);  // not before: what it idled through until now would have warmed it up
    device->next_edge_ns = device->last_ns + device->period_ns;
    ++state->count;
  }
}

int64_t now_ns(const Device *device) {
  if (device->virtual_time) {
    return device->now_ns;
  }
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);  // that of Python's time.monotonic
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

void set_virtual(Device *device, int virtually) {
  if (virtually == (int)device->virtual_time) {
    return;
  }
  device->virtual_time = (uint32_t)virtually;
  device->now_ns = 1000 * kMs;  // whatever the machine's clock says, so that a test reads the same every time
  const int64_t moved_ns = now_ns(device) - device->last_ns;
  int64_t *const moments[] = {&device->last_ns,         &device->next_edge_ns,  &device->core.next_at_ns,
                              &device->mem.next_at_ns, &device->freeze_at_ns, &device->reset_at_ns,
                              &device->jump_at_ns};
  for (unsigned i = 0; i < sizeof moments / sizeof *moments; ++i) {
    *moments[i] += *moments[i] ? moved_ns : 0;  // 0: never
  }
}

int loaded(const Device *device) { return device->load_pid && alive(device->load_pid); }

static Lock in_force(const Domain *domain, int64_t at_ns) {
  return at_ns >= domain->next_at_ns ? domain->next : domain->now;
}

static uint32_t ceiling_of(const Profile *p, Lock lock) {
  const uint32_t top = lock.max_mhz ? lock.max_mhz : p->auto_core;
  return top < p->auto_core ? top : p->auto_core;  // the highest requests land at auto's ceiling
}

static int64_t settled_at(const Domain *domain) { return domain->next_at_ns + domain->stall_ns + domain->ramp_ns; }

static uint32_t core_ceiling(const Device *device, int64_t at_ns) {
  const Domain *core = &device->core;
  const uint32_t now = ceiling_of(&device->profile, core->now), next = ceiling_of(&device->profile, core->next);
  const int64_t ramp_at_ns = core->next_at_ns + core->stall_ns;
  if (at_ns < core->next_at_ns || at_ns >= settled_at(core)) {
    return at_ns < core->next_at_ns ? now : next;
  }
  const int64_t step = core->ramp_ns ? RAMP_STEPS * (at_ns - ramp_at_ns) / core->ramp_ns : 0;
  return (uint32_t)((int64_t)now + ((int64_t)next - now) * (step + 1) / (RAMP_STEPS + 1));
}

static uint32_t memory_at(const Device *device, int64_t at_ns) {
  const Profile *p = &device->profile;
  const Lock lock = in_force(&device->mem, at_ns);
  uint32_t best = p->auto_mem;
  if (lock.max_mhz) {
    for (uint32_t i = 0; i < p->mem_count; ++i) {
      if (fabs((double)p->mem_mhz[i] - lock.max_mhz) < fabs((double)best - lock.max_mhz)) {
        best = p->mem_mhz[i];
      }
    }
  }
  return best == p->fold_mem && core_ceiling(device, at_ns) > p->fold_above_core ? p->fold_to : best;
}

uint32_t memory_mhz(const Device *device) { return memory_at(device, device->last_ns); }

static int stands_still(const Device *device, int64_t at_ns) {
  const Domain *const domains[] = {&device->core, &device->mem};
  for (int i = 0; i < 2; ++i) {
    if (at_ns >= domains[i]->next_at_ns && at_ns < domains[i]->next_at_ns + domains[i]->stall_ns) {
      return 1;
    }
  }
  return 0;
}

// The next moment after `at_ns` at which a request changes something.
static int64_t next_moment(const Domain *domain, int64_t at_ns) {
  const int64_t ramp_at_ns = domain->next_at_ns + domain->stall_ns;
  if (at_ns < domain->next_at_ns || at_ns < ramp_at_ns) {
    return at_ns < domain->next_at_ns ? domain->next_at_ns : ramp_at_ns;
  }
  for (int step = 1; domain->ramp_ns && step <= RAMP_STEPS; ++step) {
    const int64_t moment = ramp_at_ns + (domain->ramp_ns * step + RAMP_STEPS - 1) / RAMP_STEPS;
    if (at_ns < moment) {
      return moment;
    }
  }
  return INT64_MAX;
}

static double table_w(const Device *device, uint32_t mem_mhz, uint32_t core_mhz) {
  const Profile *p = &device->profile;
  uint32_t row = 0;
  while (row + 1 < p->mem_count && p->mem_mhz[row] != mem_mhz) {
    ++row;
  }
  const uint32_t column = core_mhz <= p->core_low ? 0 : (core_mhz - p->core_low) / p->core_step;
  return device->load_w[row][column < MAX_CORE ? column : MAX_CORE - 1];
}

static double power_at(const Device *device, uint32_t mem_mhz, uint32_t core_mhz, int busy) {
  const Profile *p = &device->profile;
  if (busy) {
    return table_w(device, mem_mhz, core_mhz);
  }
  const double ghz = core_mhz / 1000.0, volt = ghz < 1.05 ? 1 : 1 + 0.35 * (ghz - 1.05);
  return p->standing_w + p->mem_w_per_ghz * mem_mhz / 1000 +
         device->utilisation * p->core_w_per_ghz * volt * volt * ghz;
}

double power_w(const Device *device, uint32_t core_mhz) {
  return power_at(device, memory_mhz(device), core_mhz, loaded(device));
}

// On some boards any lock of a clock changes how power is controlled.
static uint32_t limit_in_force(const Device *device) {
  const Domain *const domains[] = {&device->core, &device->mem};
  const uint32_t limits_mw[] = {device->core_lock_limit_mw, device->mem_lock_limit_mw};
  uint32_t limit_mw = device->limit_mw;
  for (int i = 0; i < 2; ++i) {
    if (limits_mw[i] && in_force(domains[i], device->last_ns).max_mhz && limits_mw[i] < limit_mw) {
      limit_mw = limits_mw[i];
    }
  }
  return limit_mw;
}

// Clocks and power of the coming stretch: the highest core clock that the request and the limits allow.
static double settle(Device *device, int busy) {
  const Profile *p = &device->profile;
  const uint32_t mem = memory_at(device, device->last_ns);
  device->capped = device->hot = 0;
  if (!busy && device->utilisation == 0) {
    const Lock lock = in_force(&device->core, device->last_ns);
    device->core_mhz = lock.min_mhz > p->idle_core ? lock.min_mhz : p->idle_core;
    return p->standing_w + p->mem_w_per_ghz * mem / 1000;
  }
  uint32_t core = core_ceiling(device, device->last_ns);
  const uint32_t limit_mw = limit_in_force(device);
  if (device->temperature_c >= device->slowdown_c) {
    const uint32_t slow = p->core_low + (p->core_high - p->core_low) / 2 / p->core_step * p->core_step;
    device->hot = core > slow;
    core = core > slow ? slow : core;
  }
  while (core > p->core_low && power_at(device, mem, core, busy) * 1000 > limit_mw) {
    const uint32_t above = (core - p->core_low) % p->core_step;
    core -= above ? above : p->core_step;
    device->capped = 1;
  }
  device->core_mhz = core;
  return power_at(device, mem, core, busy);
}

static void edge(Device *device) {
  const int frozen = device->freeze_at_ns && device->last_ns >= device->freeze_at_ns;
  if (device->reset_at_ns && device->last_ns >= device->reset_at_ns) {
    device->offset_mj = device->energy_mj;  // as after a reload of the driver
    device->reset_at_ns = 0;
  }
  if (device->jump_at_ns && device->last_ns >= device->jump_at_ns) {
    device->offset_mj -= device->jump_mj / device->counter_factor;
    device->jump_at_ns = 0;
  }
  if (!frozen) {
    device->shown_mj = (uint64_t)((device->energy_mj - device->offset_mj) * device->counter_factor);
  }
  // an even grid with a small error each: hashed, so that it is the same every time
  const uint64_t hash = (++device->edges * 0x9E3779B97F4A7C15u) >> 40;
  const double error = (double)hash / (1 << 24) * 2 - 1;
  const int64_t grid = device->last_ns - device->last_ns % device->period_ns;
  const int64_t nearest = device->last_ns - grid > device->period_ns / 2 ? grid + device->period_ns : grid;
  device->next_edge_ns = nearest + device->period_ns + (int64_t)(error * (double)device->jitter_ns);
}

static void note_stretch(Device *device) {
  if (!device->stretch_count || device->stretch_count == MAX_STRETCHES) {
    return;
  }
  const uint32_t core_mhz = stands_still(device, device->last_ns) ? 0 : device->core_mhz;
  const uint32_t mem_mhz = memory_mhz(device);
  const Stretch *last = &device->stretches[device->stretch_count - 1];
  if (last->core_mhz != core_mhz || last->mem_mhz != mem_mhz) {
    device->stretches[device->stretch_count++] = (Stretch){device->last_ns, device->cycles / 1e6, core_mhz, mem_mhz};
  }
}

void note_stretches(Device *device) {
  device->stretches[0] = (Stretch){device->last_ns, device->cycles / 1e6, device->core_mhz, memory_mhz(device)};
  device->stretch_count = 1;
}

void advance(Device *device) {
  const int64_t end = now_ns(device);
  const int busy = loaded(device);
  if (device->next_edge_ns < device->last_ns || device->next_edge_ns > device->last_ns + 2 * device->period_ns) {
    device->next_edge_ns = device->last_ns + device->period_ns;  // another period than before
  }
  while (device->last_ns < end) {
    int64_t until = device->last_ns + 10 * kMs;
    until = until < device->next_edge_ns ? until : device->next_edge_ns;
    const int64_t core_ns = next_moment(&device->core, device->last_ns);
    const int64_t mem_ns = next_moment(&device->mem, device->last_ns);
    until = core_ns < until ? core_ns : until;
    until = mem_ns < until ? mem_ns : until;
    until = until < end ? until : end;
    if (!isnan(device->forced_c)) {
      device->temperature_c = device->forced_c;
    }
    const double watt = settle(device, busy), ns = (double)(until - device->last_ns);
    device->energy_mj += watt * ns / 1e6;
    device->mean_w = device->power_mean_ns ? watt + (device->mean_w - watt) * exp(-ns / (double)device->power_mean_ns)
                                           : watt;
    note_stretch(device);
    device->cycles += stands_still(device, device->last_ns) ? 0 : device->core_mhz * ns / 1e3;
    device->cap_ns += device->capped * ns;
    device->thermal_ns += device->hot * ns;
    const Profile *p = &device->profile;
    const double target = p->ambient_c + p->c_per_w * watt;
    device->temperature_c = target + (device->temperature_c - target) * exp(-ns / 1e9 / p->tau_s);
    device->last_ns = until;
    if (until == device->next_edge_ns) {
      edge(device);
    }
  }
  settle(device, busy);
}

// Evenly spread over 0..1, by the number of the request: the same in every run.
static double drawn(uint64_t number, uint64_t salt) {
  uint64_t hash = (number + 1) * 0x9E3779B97F4A7C15u + salt * 0xD1B54A32D192ED03u;
  hash = (hash ^ (hash >> 30)) * 0xBF58476D1CE4E5B9u;
  return (double)((hash ^ (hash >> 27)) >> 11) / (double)(1ull << 53);
}

void request(Device *device, Domain *domain, Lock lock, const Delay *delay) {
  const int is_mem = domain == &device->mem;
  const int64_t asked_ns = device->last_ns;
  const double longer = drawn(device->sets, 1) < delay->tail ? 5 : 1;
  const double lag_ns = (double)delay->lag_ns * longer * (1 + delay->spread * (2 * drawn(device->sets, 2) - 1));
  domain->now = in_force(domain, asked_ns);
  domain->next = lock;
  domain->next_at_ns = asked_ns + (int64_t)lag_ns;
  domain->stall_ns = domain->ramp_ns = 0;
  const int64_t at_ns = domain->next_at_ns;
  const int changes = is_mem ? memory_at(device, at_ns - 1) != memory_at(device, at_ns)
                             : ceiling_of(&device->profile, domain->now) != ceiling_of(&device->profile, lock);
  domain->stall_ns = changes ? delay->stall_ns : 0;
  domain->ramp_ns = changes && !is_mem ? delay->ramp_ns : 0;
  device->changes[device->change_count++ % MAX_CHANGES] =
      (Change){is_mem, asked_ns, at_ns, domain->stall_ns, domain->ramp_ns};
  ++device->sets;
}

void unload_driver(Device *device) {
  const Domain none = {{0, 0}, {0, 0}, 0, 0, 0};
  device->core = device->mem = none;
  device->limit_mw = device->profile.default_limit_mw;
  device->offset_mj = device->energy_mj;
  device->shown_mj = 0;
}
