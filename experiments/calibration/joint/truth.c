/* truth.c: what a simulated board does with many loads at many clock pairs, at once (joint/truth.py).

   The governor, power and warmth of kernel_dvfs.gpu and the protocol of kernel_dvfs.measurement for a point, without
   noise, as they stand there; a test holds the two together. And the strict choice by prices. No globals. */
#include <math.h>
#include <stdlib.h>

typedef struct { double core_s_ghz, memory_s, latency_s, overlap, core_j, dram_j; } kernel;
typedef struct { double asked_mhz, cool_mhz, bandwidth, static_w, dram_scale, is_auto; } pair;
typedef struct {
    double clock_w_per_ghz, mhz_per_w, above_w, lowest_mhz, step_mhz, cap_w, hunting_mhz;
    double light_mhz, light_s, auto_extra_power;
    double leakage_per_c, reference_c, ambient_c, c_per_w, tau_s;
    double condition_step_s, condition_band_c, condition_most, warm_s;
} board;
typedef struct { int points; const double *mhz, *voltage; } curve;
typedef struct { int kernels; const int *index; const double *launches; double core_j, dram_j, count; } load;
typedef struct { double time_s, power_w, core_mhz, capped; } state;
typedef struct { const board *b; const curve *v; const kernel *k; const load *l; } rig;

static double voltage(const curve *v, double mhz)
{
    double low_mhz = v->mhz[0], low = v->voltage[0], slope = 0;
    if (mhz <= low_mhz) return low;
    for (int i = 1; i < v->points; i++) {
        slope = (v->voltage[i] - low) / (v->mhz[i] - low_mhz);
        if (mhz <= v->mhz[i]) break;
        low_mhz = v->mhz[i], low = v->voltage[i];
    }
    return low + slope * (mhz - low_mhz);
}

static double run_s(const rig *r, double core_mhz, double bandwidth)
{
    double sum = 0;
    for (int i = 0; i < r->l->kernels; i++) {
        const kernel *k = r->k + r->l->index[i];
        double core = k->core_s_ghz / (core_mhz / 1000), memory = k->memory_s / bandwidth;
        double longer = core > memory ? core : memory, own = k->latency_s;
        if (longer > 0) {
            double x = core / longer, y = memory / longer, p = k->overlap;
            own += longer * (p == 3 ? cbrt(x * x * x + y * y * y) : pow(pow(x, p) + pow(y, p), 1 / p));
        }
        sum += r->l->launches[i] * own;
    }
    return sum;
}

/* time and power at a core clock with the voltage of the clock that was asked for */
static state at(const rig *r, const pair *p, double asked_mhz, double core_mhz, double temperature_c)
{
    const board *b = r->b;
    double v = voltage(r->v, asked_mhz), time_s = run_s(r, core_mhz, p->bandwidth);
    double standing_w = p->static_w * (1 + b->leakage_per_c * (temperature_c - b->reference_c));
    double tree_w = b->clock_w_per_ghz * v * v * core_mhz / 1000;
    double work_w = (r->l->core_j * v * v + p->dram_scale * r->l->dram_j) / time_s;
    double factor = p->is_auto ? 1 + b->auto_extra_power : 1;
    return (state){time_s, factor * (standing_w + tree_w + work_w), core_mhz, 0};
}

static double reached_mhz(const rig *r, const pair *p, double asked_mhz, double power_w)
{
    double cool = p->cool_mhz - r->b->mhz_per_w * fmax(0, power_w - r->b->above_w);
    return fmin(asked_mhz, fmax(r->b->lowest_mhz, fmin(p->asked_mhz, cool)));
}

static state at_the_cap(const rig *r, const pair *p, double asked, double highest, double temperature_c)
{
    const board *b = r->b;
    int low = 0, high = (int)fmax(1, ceil((asked - b->lowest_mhz) / b->step_mhz));
    while (high - low > 1) {
        int middle = (low + high) / 2;
        double request = fmin(b->lowest_mhz + middle * b->step_mhz, asked);
        if (at(r, p, request, fmin(request, highest), temperature_c).power_w > b->cap_w) high = middle;
        else low = middle;
    }
    double beyond = fmax(0, b->hunting_mhz - b->step_mhz / 2);
    double below = fmax(b->lowest_mhz + low * b->step_mhz - beyond, fmin(b->lowest_mhz, asked));
    double above = fmin(b->lowest_mhz + high * b->step_mhz + beyond, asked);
    state one = at(r, p, below, fmin(below, highest), temperature_c);
    state two = at(r, p, above, fmin(above, highest), temperature_c);
    double share = one.power_w < b->cap_w && b->cap_w < two.power_w
        ? (b->cap_w - one.power_w) / (two.power_w - one.power_w) : 0;
    return (state){1 / (share / two.time_s + (1 - share) / one.time_s),
                   one.power_w + share * (two.power_w - one.power_w),
                   one.core_mhz + share * (two.core_mhz - one.core_mhz), 1};
}

static state settled(const rig *r, const pair *p, double temperature_c)
{
    const board *b = r->b;
    double asked = p->asked_mhz;
    if (p->is_auto && b->light_mhz > 0 && run_s(r, asked, p->bandwidth) / r->l->count < b->light_s)
        asked = fmin(asked, b->light_mhz);
    double core_mhz = reached_mhz(r, p, asked, b->cap_w), highest = core_mhz;
    state found = at(r, p, asked, core_mhz, temperature_c);
    if (found.power_w > b->cap_w) return at_the_cap(r, p, asked, highest, temperature_c);
    for (int i = 0; i < 20; i++) {
        double before = core_mhz;
        core_mhz = reached_mhz(r, p, asked, found.power_w);
        if (fabs(core_mhz - before) < 0.01) break;
        found = at(r, p, asked, core_mhz, temperature_c);
    }
    found.core_mhz = core_mhz;
    return found;
}

static double warmer_c(const board *b, const pair *p, double temperature_c, double power_w, double seconds)
{
    double leakage = p->static_w * b->leakage_per_c, damping = 1 - b->c_per_w * leakage;
    double steady = (b->ambient_c + b->c_per_w * (power_w - leakage * temperature_c)) / damping;
    return steady + (temperature_c - steady) * exp(-seconds * damping / b->tau_s);
}

/* found: loads x pairs; the first pair is auto in both domains, at which each load is conditioned */
void truths(const board *b, int points, const double *mhz, const double *volt, int pairs, const pair *p,
            const kernel *k, int loads, const int *kernels, const int *index, const double *launches, state *found)
{
    curve v = {points, mhz, volt};
    for (int i = 0; i < loads; i++) {
        load l = {kernels[i], index, launches, 0, 0, 0};
        for (int j = 0; j < l.kernels; j++) {
            l.core_j += launches[j] * k[index[j]].core_j;
            l.dram_j += launches[j] * k[index[j]].dram_j;
            l.count += launches[j];
        }
        rig r = {b, &v, k, &l};
        double hot_c = b->ambient_c;
        for (int n = 0; n < (int)b->condition_most; n++) {
            double before = hot_c;
            hot_c = warmer_c(b, p, hot_c, settled(&r, p, hot_c).power_w, b->condition_step_s);
            if (fabs(hot_c - before) <= b->condition_band_c) break;
        }
        for (int j = 0; j < pairs; j++) {
            double own_c = warmer_c(b, p + j, hot_c, settled(&r, p + j, hot_c).power_w, b->warm_s);
            found[i * pairs + j] = settled(&r, p + j, own_c);
        }
        index += l.kernels, launches += l.kernels;
    }
}

/* One problem: each kernel's options that no other beats in both time and energy, those of kernel k from first[k] on. */
typedef struct { int kernels; const int *first; const double *t, *e; } problem;

/* the options of least energy + price x time; returns their time */
static double priced(const problem *p, double price, int *chosen)
{
    double sum = 0;
    for (int k = 0; k < p->kernels; k++) {
        int best = p->first[k];
        for (int j = best + 1; j < p->first[k + 1]; j++)
            if (p->e[j] + price * p->t[j] < p->e[best] + price * p->t[best]) best = j;
        chosen[k] = best, sum += p->t[best];
    }
    return sum;
}

/* the largest saving of energy within the limit by one kernel's other option, or by two kernels' */
static int better(const problem *p, int *c, double *used, double limit, int swaps)
{
    double gain = 1e-15;
    int one = -1, one_to = 0, two = -1, two_to = 0;
    for (int k = 0; k < p->kernels; k++)
        for (int j = p->first[k]; j < p->first[k + 1]; j++) {
            double dt = p->t[j] - p->t[c[k]], de = p->e[j] - p->e[c[k]];
            if (!swaps) {
                if (-de > gain && *used + dt <= limit) gain = -de, one = k, one_to = j;
                continue;
            }
            if (dt >= 0 || de < 0) continue;
            for (int q = 0; q < p->kernels; q++)
                for (int i = p->first[q]; q != k && i < p->first[q + 1]; i++) {
                    double own = p->e[c[q]] - p->e[i] - de;
                    if (own > gain && *used + dt + p->t[i] - p->t[c[q]] <= limit)
                        gain = own, one = k, one_to = j, two = q, two_to = i;
                }
        }
    if (one < 0) return 0;
    *used += p->t[one_to] - p->t[c[one]], c[one] = one_to;
    if (two >= 0) *used += p->t[two_to] - p->t[c[two]], c[two] = two_to;
    return 1;
}

/* Strict choices of `draws` problems (draws x kernels x pairs; the first pair is auto): by a price of time, then
   whatever still fits, then swaps of two kernels. */
void strict(int draws, int kernels, int pairs, const double *times, const double *energies, int *choices)
{
    int *first = malloc(sizeof(int) * (kernels + 1)), *pair_of = malloc(sizeof(int) * kernels * pairs);
    double *own_t = malloc(sizeof(double) * kernels * pairs), *own_e = malloc(sizeof(double) * kernels * pairs);
    for (int d = 0; d < draws; d++) {
        const double *t = times + (long)d * kernels * pairs, *e = energies + (long)d * kernels * pairs;
        int *c = choices + (long)d * kernels, count = 0;
        double t0 = 0, e0 = 0;
        for (int k = 0; k < kernels; k++, t += pairs, e += pairs) {
            first[k] = count, t0 += t[0], e0 += e[0];
            for (int j = 0; j < pairs; j++) {
                int beaten = 0;
                for (int i = 0; i < pairs && !beaten; i++)
                    beaten = t[i] <= t[j] && e[i] <= e[j] && (t[i] < t[j] || e[i] < e[j] || i < j);
                if (!beaten) pair_of[count] = j, own_t[count] = t[j], own_e[count] = e[j], count++;
            }
        }
        first[kernels] = count;
        problem p = {kernels, first, own_t, own_e};
        double limit = t0 * (1 + 1e-12), low = 0, high = e0 / t0, used = priced(&p, 0, c);
        if (used > limit) {
            while (priced(&p, high, c) > limit && high < 1e9 * e0 / t0) low = high, high *= 4;
            for (int i = 0; i < 40; i++) {
                double price = (low + high) / 2;
                if (priced(&p, price, c) <= limit) high = price;
                else low = price;
            }
            used = priced(&p, high, c);
        }
        while (better(&p, c, &used, limit, 0) || better(&p, c, &used, limit, 1)) {}
        for (int k = 0; k < kernels; k++) c[k] = pair_of[c[k]];
    }
    free(first), free(pair_of), free(own_t), free(own_e);
}
