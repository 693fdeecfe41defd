// SPDX-License-Identifier: Apache-2.0
#include "kernels/keep_ops.h"

#include "base/check.h"
#include "kernels/front/op_scope.h"

namespace reprise {

void ScoreKeys(const OpContext& context, const StepLayout& step, const KvPlace& place,
               const KvShape& shape, const AttentionParams& params, const ConstRows& q,
               const ScoredRows& rows) {
  CHECK(context.backend->keeps() && params.window == 0);
  CHECK(shape.kv_heads > 0 && params.q_heads % shape.kv_heads == 0 && q.rows == step.rows());
  CHECK(q.cols == int64_t{params.q_heads} * shape.head_dim);
  CHECK(rows.sequence >= 0 && size_t(rows.sequence) < step.host.sequences.size());
  const StepSequence& sequence = step.host.sequences[size_t(rows.sequence)];
  const int32_t end = rows.row_begin + rows.row_count;
  CHECK(rows.row_count > 0 && rows.row_begin >= sequence.row_begin);
  CHECK(end <= sequence.row_begin + sequence.row_count);
  CHECK(rows.stride >= sequence.position + end - sequence.row_begin);
  if (context.observer != nullptr) context.observer->Scores(shape, params, q, rows);
  const OpScope scope(context, "score keys");
  if (!scope.runs()) return;
  context.backend->ScoreKeys(*context.scratch, step, place, shape, params, q, rows);
}

void KeepRows(const OpContext& context, const KvPlace& place, const KvShape& shape,
              const KeptRows& kept) {
  CHECK(context.backend->keeps() && shape.kv_heads > 0 && kept.count > 0);
  const OpScope scope(context, "keep rows");
  if (scope.runs()) context.backend->KeepRows(place, shape, kept);
}

}  // namespace reprise
