// State of the fake GPUs: one file, mapped by every process that loads the library, under a file lock. So a lock on
// clocks outlives the process that set it, as in a driver, and knobs can be turned in the middle of a run.
#ifndef FAKENVML_STATE_H
#define FAKENVML_STATE_H

#include <stdint.h>

enum { MAX_DEVICES = 8, MAX_MEM = 8, MAX_CORE = 512, MAX_FAULTS = 16, MAX_PIDS = 16, MAX_CHANGES = 512 };
enum { MAX_STRETCHES = 1024, RAMP_STEPS = 8 };

typedef struct {
  uint32_t min_mhz, max_mhz;  // 0, 0: not locked
} Lock;

// A request and when the board obeys it: until then the old one rules. Then the board stands still for a while, if the
// clock is another one, and the core clock comes to the new one in steps.
typedef struct {
  Lock now, next;
  int64_t next_at_ns, stall_ns, ramp_ns;
} Domain;

// How long a domain takes to obey.
typedef struct {
  int64_t lag_ns;        // from the request to its first effect
  double spread, tail;   // the lag is drawn evenly from lag * (1 -+ spread); a share `tail` of them is five times as long
  int64_t stall_ns;      // the board stands still
  int64_t ramp_ns;       // then the clock comes to the new one
} Delay;

// What was asked of the board, and what became of it: the truth that a measurement has to find.
typedef struct {
  int32_t is_mem;
  int64_t asked_ns, at_ns, stall_ns, ramp_ns;
} Change;

// From `at_ns` on the clocks are these, after so many cycles (millions); core 0: the board stands still.
typedef struct {
  int64_t at_ns;
  double cycles;
  uint32_t core_mhz, mem_mhz;
} Stretch;

typedef struct {
  char symbol[64];             // exact name, or * for every call on a device
  int32_t code, after, times;  // fails `times` calls (< 0: all) after `after` good ones
} Fault;

typedef struct {
  char name[64], uuid[48], bus_id[24];
  uint32_t mem_mhz[MAX_MEM], mem_count;  // descending, as NVML lists them
  uint32_t core_low, core_high, core_step;
  uint32_t auto_core, auto_mem, idle_core;
  uint32_t fold_mem, fold_above_core, fold_to;  // 0: the board folds nothing
  uint32_t capability_major, capability_minor, architecture, cores;
  uint32_t default_limit_mw;
  // power while no table is given: standing + memory + V(f)^2 f at full use
  double standing_w, mem_w_per_ghz, core_w_per_ghz;
  double ambient_c, c_per_w, tau_s;
} Profile;

typedef struct {
  Profile profile;
  // knobs
  uint32_t limit_mw, mig, ecc, persistence, foreign_compute, foreign_graphics;
  uint32_t ignore_core, ignore_mem, ignore_power, deny;
  uint32_t core_lock_limit_mw, mem_lock_limit_mw;  // the power limit while that clock is locked; 0: the usual one
  uint32_t virtual_time;
  Delay core_delay, mem_delay;
  int64_t set_ns, read_ns, call_ns, period_ns, jitter_ns;
  double utilisation, forced_c, slowdown_c;
  int64_t freeze_at_ns, reset_at_ns, jump_at_ns;  // 0: never
  double jump_mj, counter_factor;                 // what the counter then gains; what it shows of each mJ
  int64_t power_mean_ns;                          // the power reading is a mean over about so long; 0: the present
  uint32_t lost;                                  // fallen off the bus: no handle, and no call on one, works
  uint32_t slice;                                 // shown as a MIG slice of a board
  uint32_t unordered, no_core_at;                 // lists of clocks; the memory clock beside which no core clock is listed
  uint32_t new_field_ids;             // where the moved throttle fields are: 251..253, or 269..271
  Fault faults[MAX_FAULTS];
  // what the board does
  Domain core, mem;
  int64_t now_ns;   // virtual time
  int64_t last_ns;  // integrated up to here
  int64_t next_edge_ns;
  uint64_t edges;
  double energy_mj, offset_mj;  // true energy; what a reload of the driver took away
  uint64_t shown_mj;            // the counter
  double temperature_c, cycles, mean_w;
  double cap_ns, thermal_ns, hw_thermal_ns;
  uint32_t core_mhz, capped, hot;
  uint64_t sets, calls;
  // a load: power (W) by memory clock and core clock, of a process that is alive
  int32_t load_pid;
  uint32_t load_mem, load_core;
  double load_w[MAX_MEM][MAX_CORE];
  int32_t contexts[MAX_PIDS];
  Change changes[MAX_CHANGES];  // the last ones
  uint64_t change_count;
  Stretch stretches[MAX_STRETCHES];  // since they were last asked to be noted
  uint32_t stretch_count;
} Device;

typedef struct {
  char magic[16], driver[48];
  uint32_t count;
  int32_t init_code;  // what opening NVML returns
  int32_t clients[MAX_PIDS];
  Device devices[MAX_DEVICES];
} State;

// Map the file, filling it under the lock if it is new; NULL without one. The state stays locked until `leave`.
State *enter(const char *path);
void leave(void);
int alive(int pid);

void make_devices(State *state, const char *profiles);  // "h200,rtx_3080_ti"
int64_t now_ns(const Device *device);
void set_virtual(Device *device, int virtually);  // time goes on from the last look at the board, on the other clock
void advance(Device *device);  // integrate up to now
void unload_driver(Device *device);
void request(Device *device, Domain *domain, Lock lock, const Delay *delay);
void note_stretches(Device *device);  // from now on, forgetting those before
uint32_t memory_mhz(const Device *device);
double power_w(const Device *device, uint32_t core_mhz);
int loaded(const Device *device);

#endif
