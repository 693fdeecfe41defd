// SPDX-License-Identifier: Apache-2.0
// Ops with state: each device computes the heads, or channels, whose state lies there.
#include <algorithm>
#include <vector>

#include "base/check.h"
#include "kernels/split/split_backend.h"
#include "tensor/kv_row.h"

namespace reprise {
namespace {

using Machine = SplitMachine;

// Items, each of which reads one of `shared` things that `each` of them have in common, item / each
// of it or, tiled, item % shared: divided so that a run reads whole ones or a part of one, and
// which they are.
struct SharingRun {
  Machine::Run run;
  int64_t shared_begin = 0;
  int64_t shared_end = 0;
};
std::vector<SharingRun> DivideShared(const Machine::Runs& runs, int64_t shared, int64_t each,
                                     bool tiled, size_t bytes) {
  std::vector<SharingRun> divided;
  const int64_t period = tiled ? shared : each;
  for (const Machine::Run& run : runs) {
    for (int64_t begin = run.begin; begin < run.end;) {
      int64_t end = std::min(run.end, (begin / period + 1) * period);
      // As many whole ones as there are; one of each tile.
      if (!tiled && begin % each == 0) end = std::max(end, run.end / each * each);
      if (end > run.end) end = run.end;
      SharingRun one = {run, begin / each, (end + each - 1) / each};
      if (tiled) one.shared_begin = begin % shared, one.shared_end = (end - 1) % shared + 1;
      one.run.begin = begin;
      one.run.end = end;
      one.run.place = run.place + size_t(begin - run.begin) * bytes;
      divided.push_back(one);
      begin = end;
    }
  }
  return divided;
}

constexpr size_t kBlockTokens = 64;  // kernels/ops.h, KvPlace

size_t KvHeadBytes(DType dtype, int64_t width) {
  return kBlockTokens * KvRowBytes(dtype, width);
}

// K/V heads and the places of their K and V.
struct KvRuns {
  Machine::Runs runs;
  std::vector<size_t> v_places;  // of each run
};
KvRuns WhereKvIs(const Machine& machine, DevicePtr<std::byte> blocks, const KvPlace& place,
                 const KvShape& shape) {
  KvRuns kv;
  kv.runs = machine.WhereStateIs(blocks, place.k_offset, shape.kv_heads,
                                 KvHeadBytes(shape.dtype, shape.head_dim));
  if (shape.value_in_key) {
    kv.v_places.resize(kv.runs.size());
    return kv;
  }
  const Machine::Runs values =
      machine.WhereStateIs(blocks, place.v_offset, shape.kv_heads,
                           KvHeadBytes(shape.dtype, shape.value_dim));
  CHECK(values.size() == kv.runs.size());
  for (size_t i = 0; i < values.size(); ++i) {
    CHECK(values[i].where == kv.runs[i].where && values[i].begin == kv.runs[i].begin);
    kv.v_places.push_back(values[i].place);
  }
  return kv;
}

KvPlace PlaceOf(const KvRuns& kv, const Machine::Here& here) {
  for (size_t i = 0; i < kv.runs.size(); ++i) {
    if (kv.runs[i].begin == here.run.begin) return {kv.runs[i].place, kv.v_places[i]};
  }
  CHECK(false);
}

KvShape ShapeOf(const KvShape& shape, const Machine::Here& here) {
  KvShape mine = shape;
  mine.kv_heads = here.count();
  return mine;
}

// Of the query heads of its K/V heads.
AttentionParams ParamsOf(const AttentionParams& params, const KvShape& shape,
                         const Machine::Here& here) {
  const int group = params.q_heads / shape.kv_heads;
  AttentionParams mine = params;
  mine.q_heads = group * here.count();
  mine.sinks = here.At(params.sinks, here.run.begin * group);
  return mine;
}

}  // namespace

void SplitBackend::StoreKv(const StepLayout& step, const KvPlace& place, const KvShape& shape,
                           const ConstRows& k, const ConstRows& v) {
  const KvRuns kv = WhereKvIs(machine_, step.block_memory, place, shape);
  const auto store = [&](const Here& here) {
    const ConstRows values = shape.value_in_key ? v : here.Of(v, shape.value_dim);
    here.backend().StoreKv(here.step(), PlaceOf(kv, here), ShapeOf(shape, here),
                           here.Of(k, shape.head_dim), values);
  };
  const Machine::Operand keys = Machine::Heads(k, shape.kv_heads);
  if (shape.value_in_key) return machine_.Compute("store kv", kv.runs, {keys}, {}, store);
  machine_.Compute("store kv", kv.runs, {keys, Machine::Heads(v, shape.kv_heads)}, {}, store);
}

bool SplitBackend::StoreHeads(const StepLayout& step, const KvPlace& place, const KvShape& shape,
                              const HeadInputs& inputs, const Rows& q, const ConstRows& k,
                              const ConstRows& v) {
  const KvRuns kv = WhereKvIs(machine_, step.block_memory, place, shape);
  const int group = inputs.q_heads / shape.kv_heads;
  const int heads = shape.kv_heads;
  bool stored = true;
  machine_.Compute("store heads", kv.runs,
                   {Machine::Heads(q, heads), Machine::Heads(k, heads), Machine::Heads(v, heads)},
                   {Machine::Heads(q, heads)}, [&](const Here& here) {
                     if (!stored) return;
                     HeadInputs mine = inputs;
                     mine.q_heads = group * here.count();
                     mine.q_norm = here.At(inputs.q_norm);
                     mine.k_norm = here.At(inputs.k_norm);
                     mine.rope = {here.At(inputs.rope.cos), here.At(inputs.rope.sin),
                                  inputs.rope.half};
                     stored = here.backend().StoreHeads(
                         here.step(), PlaceOf(kv, here), ShapeOf(shape, here), mine,
                         here.Of(q, int64_t{group} * shape.head_dim), here.Of(k, shape.head_dim),
                         here.Of(v, shape.value_dim));
                   });
  return stored;
}

void SplitBackend::Attend(ScratchArena&, const StepLayout& step, const KvPlace& place,
                          const KvShape& shape, const AttentionParams& params, const ConstRows& q,
                          const Rows& out) {
  const KvRuns kv = WhereKvIs(machine_, step.block_memory, place, shape);
  const int64_t heads = shape.kv_heads;
  machine_.Compute("attend", kv.runs, {Machine::Heads(q, heads)}, {Machine::Heads(out, heads)},
                   [&](const Here& here) {
                     here.backend().Attend(here.scratch(), here.step(), PlaceOf(kv, here),
                                           ShapeOf(shape, here), ParamsOf(params, shape, here),
                                           here.Of(q, q.cols / heads),
                                           here.Of(out, out.cols / heads));
                   });
}

bool SplitBackend::AttendGated(ScratchArena&, const StepLayout& step, const KvPlace& place,
                               const KvShape& shape, const AttentionParams& params,
                               const ConstRows& gate, const ConstRows& q, const Rows& out) {
  const KvRuns kv = WhereKvIs(machine_, step.block_memory, place, shape);
  const int64_t heads = shape.kv_heads;
  bool attended = true;
  machine_.Compute(
      "attend, gated", kv.runs, {Machine::Heads(q, heads), Machine::Heads(gate, heads)},
      {Machine::Heads(out, heads)}, [&](const Here& here) {
        attended = attended &&
                   here.backend().AttendGated(
                       here.scratch(), here.step(), PlaceOf(kv, here), ShapeOf(shape, here),
                       ParamsOf(params, shape, here), here.Of(gate, gate.cols / heads),
                       here.Of(q, q.cols / heads), here.Of(out, out.cols / heads));
      });
  return attended;
}

void SplitBackend::ScoreKeys(ScratchArena&, const StepLayout& step, const KvPlace& place,
                             const KvShape& shape, const AttentionParams& params,
                             const ConstRows& q, const ScoredRows& rows) {
  const KvRuns kv = WhereKvIs(machine_, step.block_memory, place, shape);
  for (const Machine::Run& run : kv.runs) {
    const Rows weights = {rows.weights + run.begin * rows.stride, run.end - run.begin, rows.stride,
                          rows.stride};
    Gather(weights, run.where);
    machine_.Compute("score keys", {run}, {Machine::Heads(q, shape.kv_heads)}, {},
                     [&](const Here& here) {
                       ScoredRows mine = rows;
                       mine.weights = here.At(weights.data);
                       here.backend().ScoreKeys(here.scratch(), here.step(), PlaceOf(kv, here),
                                                ShapeOf(shape, here),
                                                ParamsOf(params, shape, here),
                                                here.Of(q, q.cols / shape.kv_heads), mine);
                     });
    machine_.Wrote(weights, run.where);
  }
}

void SplitBackend::KeepRows(const KvPlace& place, const KvShape& shape, const KeptRows& kept) {
  const KvRuns kv = WhereKvIs(machine_, kept.block_memory, place, shape);
  machine_.Compute("keep rows", kv.runs, {}, {}, [&](const Here& here) {
    const Machine::Units units = machine_.UnitsOn(here.device, kept.block_memory, kept.block_bytes);
    KeptRows mine = kept;
    mine.block_memory = units.place;
    mine.block_bytes = units.bytes;
    mine.from = here.At(kept.from);
    mine.to = here.At(kept.to);
    mine.rows = here.At(kept.rows, here.run.begin * kept.count);
    here.backend().KeepRows(PlaceOf(kv, here), ShapeOf(shape, here), mine);
  });
}

void SplitBackend::ShortConv(const StepLayout& step, size_t state_offset, ConstFloats weight,
                             ConstFloats bias, int reach, bool silu, const ConstRows& x,
                             const Rows& y) {
  const Machine::Runs runs =
      machine_.WhereStateIs(step.state_memory, state_offset, x.cols, sizeof(float));
  machine_.MakeSlices(weight, reach, x.cols, runs);
  machine_.Compute("short conv", runs, {Machine::Columns(x)}, {Machine::Columns(y)},
                   [&](const Here& here) {
                     here.backend().ShortConv(here.step(), here.run.place,
                                              here.Slice(weight, reach, x.cols),
                                              here.At(bias, here.run.begin), reach, silu,
                                              here.Of(x), here.Of(y));
                   });
}

void SplitBackend::GatedDelta(const StepLayout& step, size_t state_offset,
                              const GatedDeltaShape& shape, const ConstRows& q, const ConstRows& k,
                              const ConstRows& v, const ConstRows& decay, const ConstRows& beta,
                              const Rows& y) {
  const size_t bytes = size_t(shape.key_dim) * size_t(shape.value_dim) * sizeof(float);
  const int64_t each = shape.value_heads / shape.key_heads;
  const Machine::Runs runs =
      machine_.WhereStateIs(step.state_memory, state_offset, shape.value_heads, bytes);
  for (const SharingRun& one :
       DivideShared(runs, shape.key_heads, each, shape.tiled_heads, bytes)) {
    const int64_t keys = one.shared_end - one.shared_begin;
    const ConstRows queries = Columns(q, one.shared_begin * shape.key_dim, keys * shape.key_dim);
    const ConstRows all_keys = Columns(k, one.shared_begin * shape.key_dim, keys * shape.key_dim);
    machine_.Compute(
        "gated delta", {one.run},
        {Machine::Heads(v, shape.value_heads), Machine::Columns(decay), Machine::Columns(beta),
         Machine::Whole(queries), Machine::Whole(all_keys)},
        {Machine::Heads(y, shape.value_heads)}, [&](const Here& here) {
          GatedDeltaShape mine = shape;
          mine.key_heads = int(keys);
          mine.value_heads = here.count();
          mine.tiled_heads = false;
          here.backend().GatedDelta(here.step(), here.run.place, mine, here.All(queries),
                                    here.All(all_keys), here.Of(v, shape.value_dim),
                                    here.Of(decay), here.Of(beta), here.Of(y, shape.value_dim));
        });
  }
}

void SplitBackend::KeyDecayDelta(const StepLayout& step, size_t state_offset, int heads,
                                 const ConstRows& q, const ConstRows& k, const ConstRows& v,
                                 const ConstRows& decay, const ConstRows& beta, const Rows& y) {
  const int64_t keys = q.cols / heads, values = v.cols / heads;
  const Machine::Runs runs = machine_.WhereStateIs(step.state_memory, state_offset, heads,
                                                   size_t(keys * values) * sizeof(float));
  machine_.Compute("key decay delta", runs,
                   {Machine::Heads(q, heads), Machine::Heads(k, heads), Machine::Heads(v, heads),
                    Machine::Heads(decay, heads), Machine::Columns(beta)},
                   {Machine::Heads(y, heads)}, [&](const Here& here) {
                     here.backend().KeyDecayDelta(here.step(), here.run.place, here.count(),
                                                  here.Of(q, keys), here.Of(k, keys),
                                                  here.Of(v, values), here.Of(decay, keys),
                                                  here.Of(beta), here.Of(y, values));
                   });
}

void SplitBackend::Ssd(const StepLayout& step, size_t state_offset, const SsdShape& shape,
                       const ConstRows& x, const ConstRows& b, const ConstRows& c,
                       const ConstRows& dt, const ConstRows& decay, ConstFloats skip,
                       const Rows& y) {
  const size_t bytes = size_t(shape.state_dim) * size_t(shape.head_dim) * sizeof(float);
  const Machine::Runs runs =
      machine_.WhereStateIs(step.state_memory, state_offset, shape.heads, bytes);
  for (const SharingRun& one :
       DivideShared(runs, shape.groups, shape.heads / shape.groups, false, bytes)) {
    const int64_t groups = one.shared_end - one.shared_begin;
    const int64_t first = one.shared_begin * shape.state_dim, width = groups * shape.state_dim;
    machine_.Compute(
        "ssd", {one.run},
        {Machine::Heads(x, shape.heads), Machine::Columns(dt), Machine::Columns(decay),
         Machine::Whole(Columns(b, first, width)), Machine::Whole(Columns(c, first, width))},
        {Machine::Heads(y, shape.heads)}, [&](const Here& here) {
          SsdShape mine = shape;
          mine.heads = here.count();
          mine.groups = int(groups);
          here.backend().Ssd(here.step(), here.run.place, mine, here.Of(x, shape.head_dim),
                             here.All(Columns(b, first, width)),
                             here.All(Columns(c, first, width)), here.Of(dt), here.Of(decay),
                             here.At(skip, here.run.begin), here.Of(y, shape.head_dim));
        });
  }
}

void SplitBackend::SelectiveScan(const StepLayout& step, size_t state_offset, ConstFloats a,
                                 ConstFloats skip, const ConstRows& x, const ConstRows& dt,
                                 const ConstRows& b, const ConstRows& c, const Rows& y) {
  const Machine::Runs runs =
      machine_.WhereStateIs(step.state_memory, state_offset, x.cols, sizeof(float));
  machine_.MakeSlices(a, b.cols, x.cols, runs);
  machine_.Compute("selective scan", runs,
                   {Machine::Columns(x), Machine::Columns(dt), Machine::Whole(b),
                    Machine::Whole(c)},
                   {Machine::Columns(y)}, [&](const Here& here) {
                     here.backend().SelectiveScan(
                         here.step(), here.run.place, here.Slice(a, b.cols, x.cols),
                         here.At(skip, here.run.begin), here.Of(x), here.Of(dt), here.All(b),
                         here.All(c), here.Of(y));
                   });
}

void SplitBackend::Wkv7(const StepLayout& step, size_t state_offset, int heads,
                        const Wkv7Operands& operands, const Rows& y) {
  const int64_t size = y.cols / heads;
  const auto of = [&](const ConstRows& x) { return Machine::Heads(x, heads); };
  const Machine::Runs runs = machine_.WhereStateIs(step.state_memory, state_offset, heads,
                                                   size_t(size * size) * sizeof(float));
  machine_.Compute("wkv7", runs,
                   {of(operands.r), of(operands.w), of(operands.k), of(operands.v), of(operands.a),
                    of(operands.b)},
                   {of(y)}, [&](const Here& here) {
                     const Wkv7Operands mine = {
                         here.Of(operands.r, size), here.Of(operands.w, size),
                         here.Of(operands.k, size), here.Of(operands.v, size),
                         here.Of(operands.a, size), here.Of(operands.b, size)};
                     here.backend().Wkv7(here.step(), here.run.place, here.count(), mine,
                                         here.Of(y, size));
                   });
}

void SplitBackend::TokenShift(const StepLayout& step, size_t state_offset, const ConstRows& x,
                              std::span<const ConstFloats> mix, std::span<const Rows> outs) {
  const Machine::Runs runs =
      machine_.WhereStateIs(step.state_memory, state_offset, x.cols, sizeof(float));
  machine_.Compute("token shift", runs, {Machine::Columns(x)}, {}, [&](const Here& here) {
    std::vector<ConstFloats> my_mix;
    std::vector<Rows> my_outs;
    for (const ConstFloats one : mix) my_mix.push_back(here.At(one, here.run.begin));
    for (const Rows& out : outs) my_outs.push_back(here.Of(out));
    here.backend().TokenShift(here.step(), here.run.place, here.Of(x), my_mix, my_outs);
  });
  for (const Machine::Run& run : runs) {
    for (const Rows& out : outs) {
      machine_.Wrote(Columns(out, run.begin, run.end - run.begin), run.where);
    }
  }
}

void SplitBackend::RgLru(const StepLayout& step, size_t state_offset, ConstFloats rate,
                         const ConstRows& x, const ConstRows& r, const ConstRows& i,
                         const Rows& y) {
  const Machine::Runs runs =
      machine_.WhereStateIs(step.state_memory, state_offset, x.cols, sizeof(float));
  machine_.Compute("rg lru", runs,
                   {Machine::Columns(x), Machine::Columns(r), Machine::Columns(i)},
                   {Machine::Columns(y)}, [&](const Here& here) {
                     here.backend().RgLru(here.step(), here.run.place,
                                          here.At(rate, here.run.begin), here.Of(x), here.Of(r),
                                          here.Of(i), here.Of(y));
                   });
}

}  // namespace reprise
