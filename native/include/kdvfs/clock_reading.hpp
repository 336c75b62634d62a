// What the clock probe reads on the device, and the clock that follows from it; knows neither runtime nor driver API.
#pragma once

#include <cstddef>
#include <limits>
#include <map>
#include <utility>
#include <vector>

namespace kdvfs {

struct ClockReading {
  long long cycles;
  unsigned long long time_ns, sm;
};

// Clock of the multiprocessors between each two marks, MHz: the mean over those read at both; NaN where there are none.
// readings: [mark][block], in order.
inline std::vector<double> sm_mhz_of(const std::vector<ClockReading> &readings, std::size_t marks, std::size_t blocks) {
  std::vector<double> clocks;
  std::map<unsigned long long, ClockReading> before;
  for (std::size_t mark = 0; mark < marks; mark++) {
    std::map<unsigned long long, ClockReading> now;
    for (std::size_t block = 0; block < blocks; block++) {
      const ClockReading &reading = readings[mark * blocks + block];
      now.emplace(reading.sm, reading);
    }
    double sum = 0;
    int count = 0;
    for (const auto &[sm, reading] : now) {
      if (const auto last = before.find(sm); last != before.end() && reading.time_ns > last->second.time_ns) {
        sum += 1e3 * static_cast<double>(reading.cycles - last->second.cycles) /
               static_cast<double>(reading.time_ns - last->second.time_ns);
        count++;
      }
    }
    if (mark > 0) {
      clocks.push_back(count ? sum / count : std::numeric_limits<double>::quiet_NaN());
    }
    before = std::move(now);
  }
  return clocks;
}

}  // namespace kdvfs
