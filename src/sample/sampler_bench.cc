// SPDX-License-Identifier: Apache-2.0
// sampler_bench: what the choice of a token costs, by vocabulary and filters, beside the sorting of
// all logits. A laboratory, not a test: numbers depend on the neighbours.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"
#include "sample/sampler.h"

namespace reprise {
namespace {

// Milliseconds of this thread's processor time, the quickest of several runs.
double Quickest(const std::function<void()>& function) {
  double best = 1e9;
  for (int i = 0; i < 30; ++i) {
    const double begin = ThreadSeconds();
    function();
    best = std::min(best, (ThreadSeconds() - begin) * 1e3);
  }
  return best;
}

// Twelve uniform numbers make a normal one: spread like the logits of a model.
std::vector<float> MakeLogits(size_t vocab) {
  std::vector<float> logits(vocab);
  for (size_t i = 0; i < vocab; ++i) {
    double sum = -6;
    for (uint64_t k = 0; k < 12; ++k) sum += double(RandomAt(1, 12 * i + k) >> 11) * 0x1p-53;
    logits[i] = static_cast<float>(3 * sum);
  }
  return logits;
}

void Measure(size_t vocab) {
  const std::vector<float> logits = MakeLogits(vocab);
  const auto print = [vocab](const char* what, const std::function<void()>& function) {
    std::printf("%8zu tokens  %-28s %8.3f ms\n", vocab, what, Quickest(function));
  };
  Sampler sampler;
  const auto sample = [&](const char* what, const SamplingParams& params, int logprobs = -1) {
    uint64_t position = 0;
    print(what, [&] {
      const auto sampled =
          sampler.Sample(params, {.logits = logits, .position = position++, .logprobs = logprobs});
      if (!sampled.ok()) std::abort();
    });
  };
  sample("greedy", {.temperature = 0});
  sample("temperature 1", {});
  sample("0.6, top-p 0.95", {.temperature = 0.6f, .top_p = 0.95f});
  sample("0.6, top-k 20, top-p 0.95", {.temperature = 0.6f, .top_k = 20, .top_p = 0.95f});
  sample("0.6, min-p 0.05", {.temperature = 0.6f, .min_p = 0.05f});
  sample("greedy, 5 logprobs", {.temperature = 0}, 5);
  std::vector<float> sorted;
  print("(all logits sorted)", [&] {
    sorted = logits;
    std::sort(sorted.begin(), sorted.end());
  });
}

}  // namespace
}  // namespace reprise

int main() {
  for (const size_t vocab : {32'000, 151'936, 262'144}) reprise::Measure(vocab);
}
