// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/choice/told_choices.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "device/cuda/must.h"

namespace reprise::cuda {
namespace {

// Between two questions whether the device is well.
constexpr int kLooks = 1 << 14;

// What a word tells, when it has the sign.
uint32_t Wait(Stream stream, const uint64_t* place, uint32_t sign) {
  const auto& word = *static_cast<const volatile uint64_t*>(place);
  for (int looks = 1;; ++looks) {
    const uint64_t seen = word;
    if (seen >> 32 == sign) return static_cast<uint32_t>(seen);
    if (looks % kLooks != 0) continue;
    const cudaError_t state = cudaStreamQuery(stream);
    if (state == cudaErrorNotReady) continue;
    Must(state, "choosing tokens");
    CHECK(word >> 32 == sign);
  }
}

}  // namespace

Status ToldChoices::Prepare(int64_t rows, int64_t flags) {
  const auto words = size_t(2 * rows + flags);
  REPRISE_TRY(memory_.Prepare((1 + words) * sizeof(uint64_t)));
  auto* all = reinterpret_cast<uint64_t*>(memory_.data());
  view_.chosen = all + 1;
  view_.flags_to = view_.chosen + 2 * rows;
  view_.flag_count = flags;
  std::fill_n(view_.chosen, words, uint64_t{sign_} << 32);
  auto* sign = reinterpret_cast<uint32_t*>(all);
  *sign = ++sign_;
  view_.sign = sign;
  rows_ = rows;
  return OkStatus();
}

void ToldChoices::Ask(Stream stream, const View& logits, const FlaggedRows& flagged,
                      const uint8_t* flags, std::byte* workspace) {
  CHECK(logits.rows == rows_);
  LargestView view = view_;
  view.flagged = flagged;
  view.flags = flags;
  if (flags == nullptr) view.flag_count = 0;
  ChooseLargest(stream, logits, view, workspace);
}

void ToldChoices::Take(Stream stream, const ChoiceResults& results) {
  CHECK(int64_t(results.chosen.size()) == rows_ &&
        int64_t(results.flags.size()) <= view_.flag_count);
  for (int64_t row = 0; row < rows_; ++row) {
    ChosenToken chosen;
    const uint32_t token = Wait(stream, view_.chosen + 2 * row, sign_);
    const uint32_t logit = Wait(stream, view_.chosen + 2 * row + 1, sign_);
    if (token != ~0u) {
      chosen.token = static_cast<int32_t>(token);
      chosen.logit = std::bit_cast<float>(logit);
      chosen.largest = chosen.logit + 0.0f;  // of two zeros the positive one, as where it is drawn
    }
    results.chosen[size_t(row)] = chosen;
  }
  for (size_t i = 0; i < results.flags.size(); ++i) {
    results.flags[i] = static_cast<uint8_t>(Wait(stream, view_.flags_to + i, sign_));
  }
}

}  // namespace reprise::cuda
