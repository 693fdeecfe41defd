// SPDX-License-Identifier: Apache-2.0
#include "kernels/choice_ops.h"

#include "base/check.h"
#include "kernels/front/op_scope.h"

namespace reprise {

Status ChooseTokens(const OpContext& context, const ConstRows& logits, const ChoiceBatch& batch,
                    const ChoiceResults& results, const std::function<void()>& meanwhile) {
  const size_t rows = batch.rows.size();
  const int64_t words = (logits.cols + 63) / 64;
  CHECK(context.backend->chooses() && logits.cols > 0 && logits.rows == int64_t(rows));
  CHECK(batch.logprobs_max >= 0 && batch.logprobs_max <= kChoiceLogprobsMax);
  CHECK(results.chosen.size() == rows);
  CHECK(results.listed.size() == rows * size_t(batch.logprobs_max));
  for (const ChoiceRow& row : batch.rows) {
    CHECK(size_t(row.bias_begin) + size_t(row.bias_count) <= batch.biases.size());
    CHECK(size_t(row.said_begin) + size_t(row.said_count) <= batch.said.size());
    CHECK(row.mask < 0 || size_t((row.mask + 1) * words) <= batch.masks.size());
    CHECK(row.logprobs <= batch.logprobs_max && row.nearness >= 0 && row.temperature >= 0);
  }
  if (rows == 0) {
    if (meanwhile) meanwhile();
    return OkStatus();
  }
  const OpScope scope(context, "choose tokens");
  return context.backend->ChooseTokens(*context.scratch, logits, batch, results, meanwhile);
}

}  // namespace reprise
