// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace reprise {

// LoadOrCompute: whether state is had sooner from a lower tier or by computing it again, from what
// either has taken so far. Before both were seen, loading is tried.
//
//   load iff  bytes / (bytes a second)  <  cost / (cost a second)
//
// Rates are those of the latest transfers and steps, old ones weigh less: sums of bytes and of time
// that lose a sixteenth with each one seen, so that small ones, which are mostly latency, count as
// little as they are.
class LoadOrCompute {
 public:
  static constexpr size_t kLevels = 3;  // of lower tiers, each with a rate of its own

  void NoteLoad(size_t level, size_t bytes, int64_t ns) {
    load_[level].Note(static_cast<double>(bytes), ns);
  }
  void NoteCompute(double cost, int64_t ns) { compute_.Note(cost, ns); }

  // What loading takes, in units of what computing costs; 0 before both were seen.
  double CostOfLoad(size_t level, size_t bytes) const {
    const double unit_ns = compute_.Ns(1);
    return unit_ns > 0 ? LoadNs(level, bytes) / unit_ns : 0;
  }
  double LoadNs(size_t level, size_t bytes) const {
    return load_[level].Ns(static_cast<double>(bytes));
  }
  double ComputeNs(double cost) const { return compute_.Ns(cost); }
  bool LoadWins(size_t level, size_t bytes, double cost) const {
    return !load_[level].known() || !compute_.known() || LoadNs(level, bytes) < ComputeNs(cost);
  }

 private:
  struct Rate {
    double amount = 0;
    double ns = 0;
    bool known() const { return amount > 0; }
    double Ns(double of) const { return known() ? of * ns / amount : 0; }
    void Note(double more, int64_t took_ns) {
      if (more <= 0 || took_ns <= 0) return;
      amount += more - amount / 16;
      ns += static_cast<double>(took_ns) - ns / 16;
    }
  };
  std::array<Rate, kLevels> load_;
  Rate compute_;
};

}  // namespace reprise
