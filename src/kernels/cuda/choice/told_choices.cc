// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/choice/told_choices.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>

#include "base/check.h"
#include "device/cuda/must.h"

namespace reprise::cuda {
namespace {

// Between two questions whether the device is well.
constexpr int kLooks = 1 << 14;

void WaitFor(Stream stream, const volatile uint32_t* place, uint32_t sign) {
  for (int looks = 1; *place != sign; ++looks) {
    if (looks % kLooks != 0) continue;
    const cudaError_t state = cudaStreamQuery(stream);
    if (state == cudaErrorNotReady) continue;
    Must(state, "choosing tokens");
    CHECK(*place == sign);
  }
}

}  // namespace

Status ToldChoices::Prepare(int64_t rows, int64_t flags) {
  // The sign, those of the rows, the choices, the flags.
  constexpr size_t kAlignment = 64;
  const auto padded = [](size_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  };
  const size_t sign_bytes = padded(size_t(1 + rows) * sizeof(uint32_t));
  const size_t chosen_bytes = padded(size_t(rows) * sizeof(ChosenToken));
  REPRISE_TRY(memory_.Prepare(sign_bytes + chosen_bytes + size_t(flags)));
  auto* signs = reinterpret_cast<uint32_t*>(memory_.data());
  std::fill_n(signs + 1, rows, sign_);
  signs[0] = ++sign_;
  rows_ = rows;
  view_.sign = signs;
  view_.signs = signs + 1;
  view_.chosen = reinterpret_cast<ChosenToken*>(memory_.data() + sign_bytes);
  view_.flags_to = reinterpret_cast<uint8_t*>(memory_.data() + sign_bytes + chosen_bytes);
  view_.flag_count = flags;
  return OkStatus();
}

void ToldChoices::Ask(Stream stream, const View& logits, const uint8_t* flags,
                      std::byte* workspace) {
  CHECK(logits.rows == rows_);
  LargestView view = view_;
  view.flags = flags;
  if (flags == nullptr) view.flag_count = 0;
  ChooseLargest(stream, logits, view, workspace);
}

void ToldChoices::Take(Stream stream, const ChoiceResults& results) {
  CHECK(int64_t(results.chosen.size()) == rows_ &&
        int64_t(results.flags.size()) <= view_.flag_count);
  for (int64_t row = 0; row < rows_; ++row) WaitFor(stream, view_.signs + row, sign_);
  std::atomic_thread_fence(std::memory_order_acquire);
  std::copy_n(view_.chosen, results.chosen.size(), results.chosen.data());
  std::copy_n(view_.flags_to, results.flags.size(), results.flags.data());
}

}  // namespace reprise::cuda
