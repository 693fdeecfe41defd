// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/choice/choices.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "device/cuda/must.h"
#include "device/raw.h"

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

// Calls function(span, room in bytes) for each of the operands, one behind another.
template <typename Function>
void ForEachOperand(const ChoiceBatch& batch, const Function& function) {
  if (NeedsOf(batch).none()) return;
  const auto padded = [](size_t bytes) { return (bytes + 15) / 16 * 16; };
  // Said tokens are one more with almost every step.
  const auto grown = [&](size_t bytes) { return bytes == 0 ? 0 : std::bit_ceil(padded(bytes)); };
  function(batch.rows, padded(batch.rows.size_bytes()));
  function(batch.biases, grown(batch.biases.size_bytes()));
  function(batch.said, grown(batch.said.size_bytes()));
  function(batch.masks, padded(batch.masks.size_bytes()));
}

}  // namespace

ChoiceNeeds NeedsOf(const ChoiceBatch& batch) {
  ChoiceNeeds needs;
  for (const ChoiceRow& row : batch.rows) {
    needs.adjusted |= row.bias_count > 0 || row.said_count > 0 || row.mask >= 0;
    needs.drawn |= row.temperature > 0;
    needs.logprobs |= row.logprobs >= 0;
  }
  return needs;
}

size_t OperandBytes(const ChoiceBatch& batch) {
  size_t bytes = 0;
  ForEachOperand(batch, [&](const auto&, size_t room) { bytes += room; });
  return bytes;
}

ChoiceView PutOperands(const ChoiceBatch& batch, std::byte* host, std::byte* device) {
  ChoiceView view;
  view.logprobs_max = batch.logprobs_max;
  size_t offset = 0;
  const auto place = [&]<typename T>(const T*& to) {
    to = reinterpret_cast<const T*>(device + offset);
  };
  ForEachOperand(batch, [&]<typename T>(std::span<const T> operand, size_t room) {
    if (!operand.empty()) std::memcpy(host + offset, operand.data(), operand.size_bytes());
    if constexpr (std::is_same_v<T, ChoiceRow>) place(view.rows);
    if constexpr (std::is_same_v<T, TokenBias>) place(view.biases);
    if constexpr (std::is_same_v<T, TokenSaid>) place(view.said);
    if constexpr (std::is_same_v<T, uint64_t>) place(view.masks);
    offset += room;
  });
  return view;
}

Status Choices::Prepare(const ChoiceBatch& batch, const ChoiceView& operands, int64_t vocab,
                        int64_t flags) {
  Asked asked;
  asked.rows = int64_t(batch.rows.size());
  asked.needs = NeedsOf(batch);
  asked.operands = operands;
  if (asked.needs.logprobs) {
    asked.told.words = ToldView::kWordsBeforeListed + 2 * batch.logprobs_max;
  }
  const size_t workspace = ChooseWorkspace(asked.rows, vocab, asked.needs);
  if (workspace_.size() < workspace) {
    REPRISE_ASSIGN(DeviceBuffer grown, memory_.Allocate(workspace));
    workspace_ = std::move(grown);
  }
  const auto words = size_t(asked.rows * asked.told.words + flags);
  REPRISE_TRY(told_.Prepare((1 + words) * sizeof(uint64_t)));
  auto* all = reinterpret_cast<uint64_t*>(told_.data());
  asked.told.chosen = all + 1;
  asked.told.flags = asked.told.chosen + asked.rows * asked.told.words;
  asked.told.flag_count = flags;
  std::fill_n(asked.told.chosen, words, uint64_t{sign_} << 32);
  auto* sign = reinterpret_cast<uint32_t*>(all);
  *sign = ++sign_;
  asked.told.sign = sign;
  asked.workspace = Raw(workspace_.data());
  asked_ = asked;
  return OkStatus();
}

void Choices::Ask(Stream stream, const View& logits, const FlaggedRows& flagged,
                  const uint8_t* flags) {
  CHECK(logits.rows == asked_.rows);
  ToldView told = asked_.told;
  if (flags == nullptr) told.flag_count = 0;
  ChooseTokens(stream, logits, asked_.operands, asked_.needs, flagged, flags, told,
               asked_.workspace);
}

void Choices::Take(Stream stream, const ChoiceResults& results) {
  const ToldView& told = asked_.told;
  CHECK(int64_t(results.chosen.size()) == asked_.rows &&
        int64_t(results.flags.size()) <= told.flag_count);
  const auto wait = [&](const uint64_t* word) { return Wait(stream, word, sign_); };
  const size_t listed_most = results.listed.size() / results.chosen.size();
  for (size_t row = 0; row < results.chosen.size(); ++row) {
    const uint64_t* words = told.chosen + int64_t(row) * told.words;
    ChosenToken& chosen = results.chosen[row] = {};
    chosen.token = static_cast<int32_t>(wait(words));
    chosen.logit = std::bit_cast<float>(wait(words + 1));
    if (!asked_.needs.logprobs) continue;
    chosen.largest = std::bit_cast<float>(wait(words + 2));
    chosen.listed = wait(words + 3);
    chosen.mass = wait(words + 4) | uint64_t{wait(words + 5)} << 32;
    for (size_t i = 0; i < chosen.listed; ++i) {
      const uint64_t* one = words + ToldView::kWordsBeforeListed + 2 * i;
      results.listed[row * listed_most + i] = {static_cast<int32_t>(wait(one)),
                                               std::bit_cast<float>(wait(one + 1))};
    }
  }
  for (size_t i = 0; i < results.flags.size(); ++i) {
    results.flags[i] = static_cast<uint8_t>(wait(told.flags + i));
  }
}

}  // namespace reprise::cuda
