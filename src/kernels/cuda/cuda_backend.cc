// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cuda_backend.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/hash.h"
#include "kernels/cuda/architecture.h"
#include "kernels/cuda/cuda_matrix.h"
#include "kernels/cuda/kernel.h"
#include "kernels/cuda/rows/conv.h"
#include "kernels/cuda/rows/elementwise.h"
#include "kernels/cuda/rows/experts.h"
#include "kernels/cuda/rows/heads.h"
#include "kernels/cuda/rows/keep.h"
#include "kernels/cuda/rows/last_rows.h"
#include "kernels/cuda/rows/norm.h"
#include "kernels/cuda/rows/rope.h"
#include "kernels/cuda/scan/delta_token.h"
#include "kernels/cuda/scan/lane_scan.h"
#include "kernels/cuda/start/arrays.h"
#include "kernels/cuda/start/embed.h"
#include "kernels/cuda/streams/streams.h"
#include "kernels/cuda/tensor/attention/attention.h"
#include "kernels/cuda/tensor/this_core.h"
#include "kernels/cuda/views.h"
#include "tensor/kv_row.h"

namespace reprise::cuda {
namespace {

// Types that the CPU packs as codes have kernels here where they have a packed form; and IQ2_XXS.
bool IsComputed(DType dtype, bool stack) {
  if (PackedFormOf(dtype) != PackedForm::kNone && (!stack || ThisGpu().packs_stacks())) return true;
  switch (dtype) {
#define REPRISE_CODED(name, ...) case DType::k##name:
    REPRISE_CODED_TYPES(REPRISE_CODED)
#undef REPRISE_CODED
    return dtype == DType::kIQ2_XXS;
    default:
      return true;
  }
}

// The tables of so many rows; empty: there are no adapters, or there is one without a table.
std::vector<const std::byte*> RowTables(const StepAdapters* adapters, int64_t rows) {
  if (adapters == nullptr) return {};
  std::vector<const std::byte*> tables(static_cast<size_t>(rows));
  for (const AdaptedRows& adapted : adapters->rows) {
    if (!adapted.table) return {};
    std::fill_n(tables.begin() + adapted.row_begin, adapted.row_count, Raw(adapted.table));
  }
  return tables;
}

// What launches with them depend on: which shapes there are, whichever rows have them.
uint64_t ShapeOf(const StepAdapters* adapters) {
  if (adapters == nullptr) return 0;
  std::vector<uint64_t> shapes;
  for (const AdaptedRows& adapted : adapters->rows) shapes.push_back(adapted.shape);
  std::sort(shapes.begin(), shapes.end());
  shapes.erase(std::unique(shapes.begin(), shapes.end()), shapes.end());
  const auto bytes = std::as_bytes(std::span(shapes));
  return HashBytes({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

}  // namespace

Result<std::unique_ptr<Backend>> CudaBackend::Make(int ordinal, int threads, size_t memory_max) {
  REPRISE_ASSIGN(std::unique_ptr<CudaMemory> memory, CudaMemory::Open(ordinal));
  if (memory_max > 0) memory->SetLimit(memory_max);
  const CudaMemory::Device& device = memory->device();
  if (!ThisGpu().known) {
    const std::string major = std::to_string(device.major), minor = std::to_string(device.minor);
    return FailedPrecondition("GPU " + std::to_string(ordinal) + ", " + device.name +
                              ", has compute capability " + major + "." + minor +
                              ", for which this program has no code; build it with: make cuda "
                              "ARCHITECTURES=" +
                              major + minor + (device.major == 9 ? "a" : "") + "-real");
  }
  REPRISE_ASSIGN(const reference::TensorCore core, ThisTensorCore());
  return std::unique_ptr<Backend>(
      new CudaBackend(std::move(memory), std::make_unique<ThreadPool>(threads), core));
}

CudaBackend::CudaBackend(std::unique_ptr<CudaMemory> memory, std::unique_ptr<ThreadPool> threads,
                         reference::TensorCore core)
    : memory_(std::move(memory)),
      threads_(std::move(threads)),
      upload_(*memory_),
      choices_sent_(*memory_),
      choices_(*memory_),
      graphs_(*memory_),
      joined_(memory_->stream()) {
  const CudaMemory::Device& device = memory_->device();
  name_ = "cuda:" + std::to_string(device.ordinal) + " " + device.name;
  // What the bits follow from, whatever the GPU is called: state goes on where it is the same.
  numerics_ = "reprise cuda 7, tensor cores " + std::to_string(core.step) + "/" +
              std::to_string(core.fraction) +
              (ThisGpu().packs_stacks() ? ", packed" : ", packed but stacks");
  if (!ThisGpu().wgmma) return;
  const auto blocks = size_t(ThisGpu().multiprocessors);
  const size_t sums = blocks * HandedSums::kFloats * sizeof(float);
  auto room = memory_->Allocate(sums + blocks * HandedSums::kWarps * sizeof(uint32_t));
  if (!room.ok()) return;
  handed_memory_ = std::move(*room);
  handed_ = {Raw(handed_memory_.data().As<float>()),
             Raw((handed_memory_.data() + int64_t(sums)).As<uint32_t>())};
}

CudaBackend::~CudaBackend() { memory_->Synchronize(); }

bool CudaBackend::failed() const { return Launches::On(memory_->stream()).failed(); }

void CudaBackend::Fail(const Status& error) { Launches::On(memory_->stream()).Fail(error); }

void CudaBackend::FailLaunch(int64_t n) { Launches::On(memory_->stream()).FailAfter(n); }

Status CudaBackend::TakeError() {
  if (!failed()) return OkStatus();
  upload_to_ = nullptr;
  joined_.Drop();
  return Launches::On(memory_->stream()).Take();
}

DevicePtr<std::byte> CudaBackend::Room(ScratchArena& scratch, size_t bytes) {
  const DevicePtr<std::byte> room = scratch.Take<std::byte>(bytes);
  if (scratch.refused()) Fail(scratch.refusal());
  return room;
}

Result<std::unique_ptr<PackedMatrix>> CudaBackend::MakeMatrix(const MatrixShape& shape) {
  CHECK(shape.count > 0 && shape.rows >= 0 && shape.cols > 0);
  CHECK(shape.cols % TraitsOf(shape.dtype).block_elements == 0);
  if (!IsComputed(shape.dtype, shape.count > 1)) {
    return Unimplemented(
        "weights of type " + std::string(NameOf(shape.dtype)) +
        " are not computed on a GPU: --device cpu computes them, reprise convert " +
        "--type q4_k makes a file that a GPU can");
  }
  return CudaMatrix::Make(*memory_, shape);
}

size_t CudaBackend::MatrixBytes(const MatrixShape& shape) const {
  memory_->Use();
  return IsComputed(shape.dtype, shape.count > 1) ? CudaMatrix::BytesOf(shape)
                                                  : Backend::MatrixBytes(shape);
}

Status CudaBackend::PackMatrix(PackedMatrix* matrix, int64_t index, const std::byte* source,
                               size_t stride) {
  CHECK(index >= 0 && index < matrix->shape().count);
  return static_cast<CudaMatrix*>(matrix)->Pack(*memory_, *threads_, index, source, stride);
}

// The arrays as one piece, which goes with the first launch of the step: those whose sizes follow
// from the step's counts first, then the block ids, with room for a power of two of them, so that
// steps of one shape have everything in the same places. Then how tokens will be chosen.
void CudaBackend::BeginStep(ScratchArena& scratch, StepLayout* step) {
  memory_->Use();
  const StepArrays<HostArray>& host = step->host;
  depth_ = DepthOf(host.sequences);
  constexpr size_t kAlignment = 16;
  const auto padded = [](size_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  };
  const size_t spoilt_bytes = padded(host.sequences.size() * sizeof(int32_t));
  const size_t block_room = std::bit_ceil(std::max<size_t>(host.blocks.size_bytes(), 256));
  const std::vector<const std::byte*> tables = RowTables(adapters_, step->rows());
  const std::span<const std::byte* const> row_tables(tables);
  const size_t total = padded(host.tokens.size_bytes()) + padded(host.positions.size_bytes()) +
                       padded(host.row_sequences.size_bytes()) +
                       padded(host.sequences.size_bytes()) + padded(host.logit_rows.size_bytes()) +
                       padded(host.taps.size_bytes()) + spoilt_bytes +
                       padded(row_tables.size_bytes()) + block_room +
                       (step->choices != nullptr ? OperandBytes(*step->choices) : 0);
  const DevicePtr<std::byte> device = Room(scratch, total);
  if (const Status pinned = upload_.Prepare(total); !pinned.ok()) Fail(pinned);
  upload_to_ = nullptr;
  chosen_with_step_ = false;
  row_tables_ = nullptr;
  if (failed()) return;
  size_t offset = 0;
  const auto put = [&]<typename T>(std::span<const T> from, DevicePtr<const T>* to) {
    if (!from.empty()) std::memcpy(upload_.data() + offset, from.data(), from.size_bytes());
    *to = (device + int64_t(offset)).template As<const T>();
    offset += padded(from.size_bytes());
  };
  put(host.tokens, &step->device.tokens);
  put(host.positions, &step->device.positions);
  put(host.row_sequences, &step->device.row_sequences);
  put(host.sequences, &step->device.sequences);
  put(host.logit_rows, &step->device.logit_rows);
  put(host.taps, &step->device.taps);
  std::memset(upload_.data() + offset, 0, spoilt_bytes);
  step->spoilt = (device + int64_t(offset)).As<int32_t>();
  offset += spoilt_bytes;
  if (!tables.empty()) {
    DevicePtr<const std::byte* const> place;
    put(row_tables, &place);
    row_tables_ = reinterpret_cast<const LowRankView* const*>(Raw(place));
  }
  put(host.blocks, &step->device.blocks);
  offset += block_room - padded(host.blocks.size_bytes());
  upload_bytes_ = total;
  upload_to_ = Raw(device);
  if (step->choices == nullptr) return;
  step_operands_ = PutOperands(*step->choices, upload_.data() + offset, Raw(device) + offset);
}

void CudaBackend::SendArrays() {
  BringArrays(memory_->stream(),
              {upload_.data(), upload_bytes_, std::exchange(upload_to_, nullptr)});
  upload_.Mark(memory_->stream());
}

void CudaBackend::RunStep(ScratchArena& scratch, const StepLayout& step, const StepProgram& program,
                          const std::function<void()>& ops) {
  if (failed()) return;
  std::byte* const to = std::exchange(upload_to_, nullptr);
  const View logits = ViewOf(program.logits);
  // If there is no memory for them, they are asked for behind the step, and that is said there.
  chosen_with_step_ = step.choices != nullptr && logits.rows > 0 &&
                      choices_
                          .Prepare(*step.choices, step_operands_, logits.cols,
                                   program.finite ? int64_t(step.host.sequences.size()) : 0)
                          .ok();
  // Arrays that went already are no part of it.
  const StepGraphs::Launched launched = {depth_, to != nullptr ? upload_.data() : nullptr,
                                         upload_bytes_, ShapeOf(adapters_),
                                         chosen_with_step_ ? choices_.asked() : Choices::Asked{}};
  const auto run = [&] {
    joined_.Begin(to != nullptr ? HostArrays{upload_.data(), upload_bytes_, to} : HostArrays{});
    ops();
    const FlaggedRows flagged = chosen_with_step_ ? joined_.TakeFlagged() : FlaggedRows{};
    joined_.End();
    if (chosen_with_step_) choices_.Ask(stream(), logits, flagged, Raw(program.finite));
  };
  // Adapters without tables have launches of their own, which come and go with them.
  const bool known = adapters_ == nullptr || row_tables_ != nullptr;
  known ? graphs_.Run(scratch, step, launched, program, run) : run();
  if (to != nullptr) upload_.Mark(memory_->stream());
}

// They may have been asked for with the step.
Status CudaBackend::ChooseTokens(ScratchArena& scratch, const ConstRows& logits,
                                 const ChoiceBatch& batch, const ChoiceResults& results,
                                 const std::function<void()>& meanwhile) {
  const ScratchScope scope(scratch);
  memory_->Use();
  if (std::exchange(chosen_with_step_, false)) {
    CHECK(choices_.asked().needs == NeedsOf(batch));
  } else {
    const size_t bytes = OperandBytes(batch);
    REPRISE_TRY(scratch.Provide(bytes));
    REPRISE_TRY(choices_sent_.Prepare(bytes));
    std::byte* const to = Raw(scratch.Take<std::byte>(bytes));
    const ChoiceView operands = PutOperands(batch, choices_sent_.data(), to);
    REPRISE_TRY(choices_.Prepare(batch, operands, logits.cols, int64_t(results.flags.size())));
    if (bytes > 0) BringArrays(stream(), {choices_sent_.data(), bytes, to});
    choices_.Ask(stream(), ViewOf(logits), {}, Raw(results.flags_at));
    REPRISE_TRY(TakeError());  // or the host would wait for what nobody tells it
  }
  if (meanwhile) meanwhile();
  choices_.Take(memory_->stream(), results);
  upload_.Settle();  // the step in front has read it
  return OkStatus();
}

void CudaBackend::Embed(const Matrix& table, const StepLayout& step, const Rows& out) {
  const CudaMatrix& matrix = CudaMatrixOf(table);
  EmbeddedRows rows = {{}, Raw(step.device.tokens), ViewOf(out), int32_t(table.rows())};
  switch (matrix.form()) {
    case ActivationForm::kF32:
      rows.table = matrix.f32();
      break;
    case ActivationForm::kF16:
      rows.table = matrix.half();
      break;
    case ActivationForm::kBlock32:
    case ActivationForm::kBlock256:
      rows.table = matrix.quantised();
      break;
  }
  if (!joined_.Embed(rows)) cuda::Embed(stream(), rows);
}

void CudaBackend::GatherRows(const ConstRows& x, DevicePtr<const int32_t> index, const Rows& out) {
  cuda::GatherRows(stream(), ViewOf(x), Raw(index), ViewOf(out));
}

void CudaBackend::Fill(float value, const Rows& y) { cuda::Fill(stream(), value, ViewOf(y)); }

void CudaBackend::FiniteRows(const StepLayout& step, const ConstRows& x,
                             DevicePtr<uint8_t> finite) {
  if (joined_.Flag(ViewOf(step), ViewOf(x), Raw(finite))) return;
  FiniteSequences(stream(), ViewOf(step), ViewOf(x), Raw(finite));
}

void CudaBackend::CopyHeads(int heads, int64_t width, const ConstRows& x, int64_t x_step,
                            const Rows& y, int64_t y_step) {
  cuda::CopyHeads(stream(), heads, width, ViewOf(x), x_step, ViewOf(y), y_step);
}

void CudaBackend::RmsNorm(const ConstRows& x, ConstFloats weight, int groups, float eps,
                          const Rows& y) {
  if (groups == 1) {
    if (joined_.Norm(ViewOf(x), Raw(weight), eps, ViewOf(y))) return;
    if (joined_.Make(NormedRows{ViewOf(x), {}, Raw(weight), eps, ViewOf(y)})) return;
  }
  cuda::RmsNorm(stream(), ViewOf(x), Raw(weight), groups, eps, ViewOf(y));
}

void CudaBackend::AddRmsNorm(const Rows& x, const ConstRows& y, ConstFloats weight, float eps,
                             const Rows& h) {
  if (joined_.Add(ViewOf(x), ViewOf(y))) return RmsNorm(x, weight, 1, eps, h);
  const NormedRows rows = {ViewOf(x), ViewOf(y), Raw(weight), eps, ViewOf(h)};
  if (!joined_.Make(rows)) MakeRows(stream(), rows);
}

void CudaBackend::RmsNormGated(const ConstRows& x, const ConstRows& gate, ConstFloats weight,
                               int groups, float eps, const Rows& y) {
  cuda::RmsNormGated(stream(), ViewOf(x), ViewOf(gate), Raw(weight), groups, eps, ViewOf(y));
}

void CudaBackend::L2Norm(const ConstRows& x, int groups, float eps, float scale, const Rows& y) {
  cuda::L2Norm(stream(), ViewOf(x), groups, eps, scale, ViewOf(y));
}

void CudaBackend::SwiGlu(const ConstRows& gate, const ConstRows& up, const Rows& y) {
  const GatedRows rows = {OutputOp::kSwiGlu, ViewOf(gate), ViewOf(up), ViewOf(y)};
  if (!joined_.Gate(rows)) MakeRows(stream(), rows);
}

void CudaBackend::SigmoidMul(const ConstRows& gate, const ConstRows& x, const Rows& y) {
  cuda::SigmoidMul(stream(), ViewOf(gate), ViewOf(x), ViewOf(y));
}

void CudaBackend::Add(const ConstRows& a, const ConstRows& b, const Rows& y) {
  if (Raw(a.data) == Raw(y.data) && joined_.Add(ViewOf(y), ViewOf(b))) return;
  cuda::Add(stream(), ViewOf(a), ViewOf(b), ViewOf(y));
}

void CudaBackend::MakeRopeTable(const StepLayout& step, ConstFloats inverse_frequencies,
                                float magnitude, const Rows& cos, const Rows& sin) {
  const AngledRows rows = {Raw(step.device.positions),
                           cos.rows,
                           Raw(inverse_frequencies),
                           magnitude,
                           {Raw(cos.data), Raw(sin.data), static_cast<int>(cos.cols)}};
  if (!joined_.Angles(rows)) MakeRopeAngles(stream(), rows);
}

// The positions of all angles go where the cosines will lie.
void CudaBackend::MakePlacedRopeTable(std::span<const RopePlace> places,
                                      std::span<const uint8_t> axes,
                                      ConstFloats inverse_frequencies, float magnitude,
                                      const Rows& cos, const Rows& sin) {
  const Stream on = stream();
  if (failed()) return;
  std::vector<int32_t> positions;
  positions.reserve(places.size() * axes.size());
  for (const RopePlace& place : places) {
    for (const uint8_t axis : axes) positions.push_back(place[axis]);
  }
  memory_->UploadArray<int32_t>(cos.data.As<int32_t>(), std::span<const int32_t>(positions));
  MakePlacedAngles(on, {reinterpret_cast<const int32_t*>(Raw(cos.data)),
                        cos.rows,
                        Raw(inverse_frequencies),
                        magnitude,
                        {Raw(cos.data), Raw(sin.data), static_cast<int>(cos.cols)}});
}

void CudaBackend::Rope(const RopeTable& table, int heads, const Rows& x, int64_t offset) {
  // The kernel only reads the angles.
  const RopeAngles angles{const_cast<float*>(Raw(table.cos)), const_cast<float*>(Raw(table.sin)),
                          table.half};
  cuda::Rope(stream(), angles, heads, static_cast<int>(offset), ViewOf(x));
}

namespace {

KvView KvOf(const KvPlace& place, const KvShape& shape) {
  KvView view;
  view.k_offset = static_cast<int64_t>(place.k_offset);
  view.v_offset = static_cast<int64_t>(place.v_offset);
  view.kv_heads = shape.kv_heads;
  view.head_dim = shape.head_dim;
  view.value_dim = shape.value_dim;
  view.type = shape.dtype == DType::kF32    ? KvType::kF32
              : shape.dtype == DType::kBF16 ? KvType::kBF16
              : shape.dtype == DType::kQ8_0 ? KvType::kQ8
                                            : KvType::kF16;
  view.value_in_key = shape.value_in_key;
  return view;
}

// Heads of a row that lie one behind another.
HeadRows Heads(const ConstRows& x, int64_t width) { return {Raw(x.data), x.stride, width}; }

}  // namespace

bool CudaBackend::holds(DType kv) const { return IsKvType(kv); }

// BF16 holds every value of MXFP4.
DType CudaBackend::HeldAs(DType dtype) const {
  return dtype == DType::kMXFP4 ? DType::kBF16 : dtype;
}

// Pages of attention that are joined behind it, and graphs, beside activations.
size_t CudaBackend::working_bytes() const {
  constexpr size_t kGraphBytes = size_t{2} << 20;
  return Backend::working_bytes() + kAttendWorkspaceMax + StepGraphs::kGraphsMax * kGraphBytes;
}

StateSizes CudaBackend::sizes_max() const {
  memory_->Use();
  StateSizes most;
  most.head_dim = kAttentionHeadMax;
  most.value_dim = kAttentionValueMax;
  most.conv_reach = kMaxConvReach;
  most.matrix_keys = kLaneScanKeysMax;
  most.channel_keys = SelectiveKeysMax(ThisGpu().block_shared);
  return most;
}

void CudaBackend::StoreKv(const StepLayout& step, const KvPlace& place, const KvShape& shape,
                          const ConstRows& k, const ConstRows& v) {
  cuda::StoreKv(stream(), ViewOf(step), KvOf(place, shape), ViewOf(k), ViewOf(v));
}

bool CudaBackend::StoreHeads(const StepLayout& step, const KvPlace& place, const KvShape& shape,
                             const HeadInputs& inputs, const Rows& q, const ConstRows& k,
                             const ConstRows& v) {
  const RopeTable& rope = inputs.rope;
  const HeadsView heads{inputs.q_heads, Raw(inputs.q_norm), Raw(inputs.k_norm), inputs.eps,
                        Raw(rope.cos),  Raw(rope.sin),      rope.half};
  const KvView kv = KvOf(place, shape);
  if (joined_.Heads(ViewOf(step), kv, {heads, ViewOf(q), ViewOf(k), ViewOf(v)})) return true;
  cuda::StoreHeads(stream(), ViewOf(step), kv, heads, ViewOf(q), ViewOf(k), ViewOf(v));
  return true;
}

// gate: null where there is none.
void CudaBackend::RunAttend(ScratchArena& scratch, const StepLayout& step, const KvPlace& place,
                            const KvShape& shape, const AttentionParams& params,
                            const ConstRows& gate, const ConstRows& q, const Rows& out) {
  const KvView kv = KvOf(place, shape);
  AttentionView view{params.q_heads, params.scale, params.window,
                     params.softcap, ViewOf(gate), Raw(params.sinks)};
  const ScratchScope scope(scratch);
  if (!params.ends.empty()) {
    // Such steps are never recorded (model/model.cc).
    const DevicePtr<int32_t> ends = Room(scratch, params.ends.size_bytes()).As<int32_t>();
    if (failed()) return;
    stream();  // what waits comes first
    memory_->UploadArray<int32_t>(ends, params.ends);
    view.ends = Raw(ends);
  }
  const StepView at = ViewOf(step);
  if (const auto heads = joined_.TakeHeads(ViewOf(q))) {
    if (PrefersOneRow(at, depth_, kv, view)) {
      return AttendOneRow(stream(), at, depth_, kv, view, *heads, ViewOf(out));
    }
    cuda::StoreHeads(stream(), at, kv, heads->inputs, heads->q, heads->k, heads->v);
  }
  const size_t bytes = AttendWorkspace(at, depth_, kv, view);
  void* workspace = bytes > 0 ? Raw(Room(scratch, bytes)) : nullptr;
  cuda::Attend(stream(), at, depth_, kv, view, ViewOf(q), ViewOf(out), workspace);
}

void CudaBackend::Attend(ScratchArena& scratch, const StepLayout& step, const KvPlace& place,
                         const KvShape& shape, const AttentionParams& params, const ConstRows& q,
                         const Rows& out) {
  RunAttend(scratch, step, place, shape, params, {}, q, out);
}

bool CudaBackend::AttendGated(ScratchArena& scratch, const StepLayout& step, const KvPlace& place,
                              const KvShape& shape, const AttentionParams& params,
                              const ConstRows& gate, const ConstRows& q, const Rows& out) {
  RunAttend(scratch, step, place, shape, params, gate, q, out);
  return true;
}

void CudaBackend::ScoreKeys(ScratchArena& scratch, const StepLayout& step, const KvPlace& place,
                            const KvShape& shape, const AttentionParams& params, const ConstRows& q,
                            const ScoredRows& rows) {
  const ScratchScope scope(scratch);
  const KvView kv = KvOf(place, shape);
  const StepSequence& sequence = step.host.sequences[size_t(rows.sequence)];
  ScoredView view;
  view.q = ViewOf(q);
  view.row_begin = rows.row_begin;
  view.row_count = rows.row_count;
  view.position = sequence.position + rows.row_begin - sequence.row_begin;
  view.block_begin = sequence.block_begin;
  view.weights = Raw(rows.weights);
  view.stride = rows.stride;
  view.sinks = Raw(params.sinks);
  std::byte* workspace = Raw(Room(scratch, ScoreWorkspace(kv, params.q_heads, view)));
  cuda::ScoreKeys(stream(), ViewOf(step), kv, params.q_heads, params.scale, params.softcap, view,
                  workspace);
}

void CudaBackend::KeepRows(const KvPlace& place, const KvShape& shape, const KeptRows& kept) {
  cuda::KeepRows(stream(), KvOf(place, shape),
                 {Raw(kept.block_memory), static_cast<int64_t>(kept.block_bytes), Raw(kept.from),
                  Raw(kept.to), Raw(kept.rows), kept.count});
}

void CudaBackend::ShortConv(const StepLayout& step, size_t state_offset, ConstFloats weight,
                            ConstFloats bias, int reach, bool silu, const ConstRows& x,
                            const Rows& y) {
  cuda::ShortConv(stream(), ViewOf(step), static_cast<int64_t>(state_offset), Raw(weight),
                  Raw(bias), reach, silu, ViewOf(x), ViewOf(y));
}

void CudaBackend::GatedDeltaGates(const ConstRows& a, const ConstRows& b, ConstFloats exp_a,
                                  ConstFloats dt_bias, const Rows& decay, const Rows& beta) {
  DeltaGates(stream(), ViewOf(a), ViewOf(b), Raw(exp_a), Raw(dt_bias), ViewOf(decay), ViewOf(beta));
}

void CudaBackend::GatedDelta(const StepLayout& step, size_t state_offset,
                             const GatedDeltaShape& shape, const ConstRows& q, const ConstRows& k,
                             const ConstRows& v, const ConstRows& decay, const ConstRows& beta,
                             const Rows& y) {
  const LaneScanShape view{shape.value_heads, shape.key_dim, shape.value_dim, shape.key_heads,
                           shape.tiled_heads};
  cuda::GatedDelta(stream(), ViewOf(step), static_cast<int64_t>(state_offset), view,
                   {Heads(q, shape.key_dim), Heads(k, shape.key_dim), Heads(v, shape.value_dim),
                    Heads(decay, 1), Heads(beta, 1)},
                   ViewOf(y));
}

void CudaBackend::Mul(const ConstRows& a, const ConstRows& b, const Rows& y) {
  cuda::Mul(stream(), ViewOf(a), ViewOf(b), ViewOf(y));
}

void CudaBackend::Scale(const ConstRows& x, float factor, const Rows& y) {
  cuda::Scale(stream(), ViewOf(x), factor, ViewOf(y));
}

void CudaBackend::Silu(const ConstRows& x, const Rows& y) {
  cuda::Silu(stream(), ViewOf(x), ViewOf(y));
}

void CudaBackend::GeluErf(const ConstRows& x, const Rows& y) {
  cuda::GeluErf(stream(), ViewOf(x), ViewOf(y));
}

void CudaBackend::Clamp(const ConstRows& x, float least, float most, const Rows& y) {
  cuda::Clamp(stream(), ViewOf(x), least, most, ViewOf(y));
}

void CudaBackend::Gelu(const ConstRows& x, const Rows& y) {
  cuda::Gelu(stream(), ViewOf(x), ViewOf(y));
}

void CudaBackend::GeGlu(const ConstRows& gate, const ConstRows& up, const Rows& y) {
  const GatedRows rows = {OutputOp::kGeGlu, ViewOf(gate), ViewOf(up), ViewOf(y)};
  if (!joined_.Gate(rows)) MakeRows(stream(), rows);
}

void CudaBackend::GeGluErf(const ConstRows& gate, const ConstRows& up, const Rows& y) {
  cuda::GeGluErf(stream(), ViewOf(gate), ViewOf(up), ViewOf(y));
}

void CudaBackend::ClampedSwiGlu(const ConstRows& gate, const ConstRows& up, float alpha,
                                float limit, const Rows& y) {
  cuda::ClampedSwiGlu(stream(), ViewOf(gate), ViewOf(up), alpha, limit, ViewOf(y));
}

void CudaBackend::ReluSquared(const ConstRows& x, const Rows& y) {
  cuda::ReluSquared(stream(), ViewOf(x), ViewOf(y));
}

void CudaBackend::Softcap(const ConstRows& x, float cap, const Rows& y) {
  cuda::Softcap(stream(), ViewOf(x), cap, ViewOf(y));
}

void CudaBackend::Sigmoid(const ConstRows& x, ConstFloats bias, const Rows& y) {
  cuda::Sigmoid(stream(), ViewOf(x), Raw(bias), ViewOf(y));
}

void CudaBackend::Softplus(const ConstRows& x, ConstFloats bias, const Rows& y) {
  cuda::Softplus(stream(), ViewOf(x), Raw(bias), ViewOf(y));
}

void CudaBackend::Lerp(const ConstRows& a, const ConstRows& b, const ConstRows& t, const Rows& y) {
  cuda::Lerp(stream(), ViewOf(a), ViewOf(b), ViewOf(t), ViewOf(y));
}

void CudaBackend::LayerNorm(const ConstRows& x, ConstFloats weight, ConstFloats bias, int groups,
                            float eps, const Rows& y) {
  cuda::LayerNorm(stream(), ViewOf(x), Raw(weight), Raw(bias), groups, eps, ViewOf(y));
}

void CudaBackend::GroupRmsNorm(const ConstRows& x, ConstFloats weight, int groups, float eps,
                               const Rows& y) {
  cuda::GroupRmsNorm(stream(), ViewOf(x), Raw(weight), groups, eps, ViewOf(y));
}

void CudaBackend::GateRmsNorm(const ConstRows& x, const ConstRows& gate, ConstFloats weight,
                              int groups, float eps, const Rows& y) {
  cuda::GateRmsNorm(stream(), ViewOf(x), ViewOf(gate), Raw(weight), groups, eps, ViewOf(y));
}

void CudaBackend::MatchMagnitude(const ConstRows& x, const ConstRows& like, float least,
                                 const Rows& y) {
  cuda::MatchMagnitude(stream(), ViewOf(x), ViewOf(like), least, ViewOf(y));
}

void CudaBackend::CutBelow(const ConstRows& x, float factor, const Rows& y) {
  cuda::CutBelow(stream(), ViewOf(x), factor, ViewOf(y));
}

void CudaBackend::ScaleByPosition(const StepLayout& step, ConstFloats factors, int period,
                                  const ConstRows& x, const Rows& y) {
  cuda::ScaleByPosition(stream(), Raw(step.device.positions), Raw(factors), period, ViewOf(x),
                        ViewOf(y));
}

void CudaBackend::MixStreams(const ConstRows& x, const ConstRows& factors, int streams,
                             const Rows& y) {
  cuda::MixStreams(stream(), ViewOf(x), ViewOf(factors), streams, ViewOf(y));
}

void CudaBackend::AddToStreams(const ConstRows& x, const ConstRows& factors, const Rows& y) {
  cuda::AddToStreams(stream(), ViewOf(x), ViewOf(factors), ViewOf(y));
}

void CudaBackend::RwkvDecay(const ConstRows& x, ConstFloats bias, const Rows& y) {
  cuda::RwkvDecay(stream(), ViewOf(x), Raw(bias), ViewOf(y));
}

void CudaBackend::RwkvBonus(const ConstRows& r, const ConstRows& k, ConstFloats weight,
                            const ConstRows& v, int heads, const Rows& y) {
  cuda::RwkvBonus(stream(), ViewOf(r), ViewOf(k), Raw(weight), ViewOf(v), heads, ViewOf(y));
}

void CudaBackend::RouteExperts(ScratchArena&, const ConstRows& logits, const RoutingParams& params,
                               const Routing& routing) {
  if (joined_.Route(ViewOf(logits), params, ViewOf(routing))) return;
  cuda::RouteExperts(stream(), ViewOf(logits), params, ViewOf(routing));
}

void CudaBackend::PlanExperts(ScratchArena& scratch, const Routing& routing,
                              const ExpertPlan& plan) {
  if (joined_.Plan(ViewOf(routing), ViewOf(plan))) return;
  const ScratchScope scope(scratch);
  void* room = Raw(Room(scratch, PlanScratchBytes(plan.slots, plan.experts)));
  cuda::PlanExperts(stream(), ViewOf(routing), room, ViewOf(plan));
}

void CudaBackend::AddExpertBias(const ExpertPlan& plan, ConstFloats bias, const Rows& y) {
  cuda::AddExpertBias(stream(), ViewOf(plan), Raw(bias), ViewOf(y));
}

void CudaBackend::CombineExperts(const Routing& routing, const ExpertPlan& plan,
                                 const ConstRows& slots, SumStart start, const Rows& y) {
  if (joined_.Combine(ViewOf(routing), ViewOf(plan), ViewOf(slots), start, ViewOf(y))) return;
  cuda::CombineExperts(stream(), ViewOf(routing), ViewOf(plan), ViewOf(slots), start, ViewOf(y));
}

void CudaBackend::KeyDecayDelta(const StepLayout& step, size_t state_offset, int heads,
                                const ConstRows& q, const ConstRows& k, const ConstRows& v,
                                const ConstRows& decay, const ConstRows& beta, const Rows& y) {
  const int keys = static_cast<int>(q.cols / heads);
  const int columns = static_cast<int>(v.cols / heads);
  cuda::KeyDecayDelta(
      stream(), ViewOf(step), static_cast<int64_t>(state_offset),
      {heads, keys, columns, heads, false},
      {Heads(q, keys), Heads(k, keys), Heads(v, columns), Heads(decay, keys), Heads(beta, 1)},
      ViewOf(y));
}

void CudaBackend::DecayGates(const ConstRows& x, ConstFloats bias, ConstFloats rate,
                             const Rows& decay) {
  cuda::DecayGates(stream(), ViewOf(x), Raw(bias), Raw(rate), ViewOf(decay));
}

void CudaBackend::Ssd(const StepLayout& step, size_t state_offset, const SsdShape& shape,
                      const ConstRows& x, const ConstRows& b, const ConstRows& c,
                      const ConstRows& dt, const ConstRows& decay, ConstFloats skip,
                      const Rows& y) {
  cuda::Ssd(stream(), ViewOf(step), static_cast<int64_t>(state_offset),
            {shape.heads, shape.state_dim, shape.head_dim, shape.groups, false},
            {Heads(x, shape.head_dim), Heads(b, shape.state_dim), Heads(c, shape.state_dim),
             Heads(dt, 1), Heads(decay, 1), Raw(skip)},
            ViewOf(y));
}

void CudaBackend::SsdGates(const ConstRows& x, ConstFloats bias, ConstFloats a, float low,
                           float high, const Rows& dt, const Rows& decay) {
  cuda::SsdGates(stream(), ViewOf(x), Raw(bias), Raw(a), low, high, ViewOf(dt), ViewOf(decay));
}

void CudaBackend::SelectiveScan(const StepLayout& step, size_t state_offset, ConstFloats a,
                                ConstFloats skip, const ConstRows& x, const ConstRows& dt,
                                const ConstRows& b, const ConstRows& c, const Rows& y) {
  cuda::SelectiveScan(stream(), ViewOf(step), static_cast<int64_t>(state_offset), Raw(a), Raw(skip),
                      ViewOf(x), ViewOf(dt), ViewOf(b), ViewOf(c), ViewOf(y));
}

void CudaBackend::Wkv7(const StepLayout& step, size_t state_offset, int heads,
                       const Wkv7Operands& operands, const Rows& y) {
  const int width = static_cast<int>(operands.r.cols / heads);
  cuda::Wkv7(stream(), ViewOf(step), static_cast<int64_t>(state_offset),
             {heads, width, width, heads, false},
             {Heads(operands.r, width), Heads(operands.w, width), Heads(operands.k, width),
              Heads(operands.v, width), Heads(operands.a, width), Heads(operands.b, width)},
             ViewOf(y));
}

void CudaBackend::TokenShift(const StepLayout& step, size_t state_offset, const ConstRows& x,
                             std::span<const ConstFloats> mix, std::span<const Rows> outs) {
  ShiftedOutputs shifted;
  CHECK(outs.size() <= ShiftedOutputs::kMost);
  shifted.count = static_cast<int>(outs.size());
  for (size_t i = 0; i < outs.size(); ++i) {
    shifted.mix[i] = Raw(mix[i]);
    shifted.out[i] = ViewOf(outs[i]);
  }
  cuda::TokenShift(stream(), ViewOf(step), static_cast<int64_t>(state_offset), ViewOf(x), shifted);
}

void CudaBackend::RgLru(const StepLayout& step, size_t state_offset, ConstFloats rate,
                        const ConstRows& x, const ConstRows& r, const ConstRows& i, const Rows& y) {
  cuda::RgLru(stream(), ViewOf(step), static_cast<int64_t>(state_offset), Raw(rate), ViewOf(x),
              ViewOf(r), ViewOf(i), ViewOf(y));
}

// From so many sequences on their states are what a token of each waits for.
constexpr int64_t kManySequences = 8;

bool CudaBackend::GatedDeltaMix(ScratchArena& scratch, const StepLayout& step,
                                const GatedDeltaLayer& layer, const ConstRows& qkv, const Rows& a,
                                const Rows& b, const ConstRows& z, const Rows& y) {
  const GatedDeltaShape& shape = layer.shape;
  DeltaTokenLayer view;
  view.shape = {shape.value_heads, shape.key_dim, shape.value_dim, shape.key_heads,
                shape.tiled_heads};
  view.reach = layer.reach;
  view.conv_offset = static_cast<int64_t>(layer.conv_offset);
  view.delta_offset = static_cast<int64_t>(layer.delta_offset);
  view.conv = Raw(layer.conv);
  view.exp_a = Raw(layer.exp_a);
  view.dt_bias = Raw(layer.dt_bias);
  view.norm = Raw(layer.norm);
  view.l2_eps = layer.l2_eps;
  view.norm_eps = layer.norm_eps;
  view.q_scale = 1 / std::sqrt(float(shape.key_dim));
  const bool one_each = step.rows() == int64_t(step.host.sequences.size());
  const bool aligned = step.state_bytes % 16 == 0 && qkv.stride % 4 == 0 && y.stride % 4 == 0 &&
                       reinterpret_cast<uintptr_t>(Raw(qkv.data)) % 16 == 0 &&
                       reinterpret_cast<uintptr_t>(Raw(y.data)) % 16 == 0;
  if (!one_each || !aligned || !HasDeltaToken(view)) return false;
  if (step.rows() < kManySequences || !HasDeltaTokens(view)) {
    DeltaToken(stream(), ViewOf(step), view, ViewOf(qkv), ViewOf(a), ViewOf(b), ViewOf(z),
               ViewOf(y));
    return true;
  }
  const ScratchScope scope(scratch);
  const Rows mixed = {Room(scratch, size_t(qkv.rows * qkv.cols) * sizeof(float)).As<float>(),
                      qkv.rows, qkv.cols, qkv.cols};
  DeltaTokens(stream(), ViewOf(step), view, ViewOf(qkv), ViewOf(a), ViewOf(b), ViewOf(z),
              ViewOf(mixed), ViewOf(y));
  return true;
}

}  // namespace reprise::cuda
