// SPDX-License-Identifier: Apache-2.0
#include "kernels/split/split_machine.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"
#include "device/raw.h"

namespace reprise {
namespace {

std::vector<SplitMemory::Part> PartsOf(const std::vector<SplitMachine::Device>& devices) {
  std::vector<SplitMemory::Part> parts;
  for (const auto& device : devices) parts.push_back({&device.backend->memory(), device.sharing});
  return parts;
}

DeviceSet Lowest(DeviceSet set) { return set & (~set + 1); }

}  // namespace

SplitMachine::SplitMachine(std::vector<Device> devices)
    : devices_(std::move(devices)), memory_(PartsOf(devices_)), steps_(devices_.size()) {
  for (const Device& device : devices_) {
    scratch_.push_back(std::make_unique<ScratchArena>(device.backend->memory()));
  }
  memory_.set_changed([this](const void* begin, size_t bytes) {
    const auto* const first = static_cast<const float*>(begin);
    const float* const last = first + (bytes + sizeof(float) - 1) / sizeof(float);
    std::erase_if(slices_, [&](const auto& slice) {
      const SliceKey& key = slice.first;
      return key.weights < last && first < key.weights + key.rows * key.cols;
    });
  });
}

SplitMachine::~SplitMachine() { memory_.set_changed(nullptr); }

SplitMachine::Runs SplitMachine::WhereInputsAre(Operands inputs, int64_t items) const {
  for (const Operand& input : inputs) {
    if (input.step == 0) continue;
    const std::vector<Whereabouts::Part> parts = memory_.whereabouts().PartsOf(input.rows);
    if (parts.empty()) continue;
    // Items between two edges are alike.
    std::vector<int64_t> edges = {0, items};
    for (const Whereabouts::Part& part : parts) {
      for (const int64_t col : {part.col_begin, part.col_end}) {
        edges.push_back(std::min(col / input.step, items));
        edges.push_back(std::min((col + input.step - 1) / input.step, items));
      }
    }
    std::sort(edges.begin(), edges.end());
    edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
    Runs runs;
    for (size_t i = 0; i + 1 < edges.size(); ++i) {
      const int64_t begin = edges[i] * input.step;
      const int64_t end = (edges[i + 1] - 1) * input.step + input.width;
      DeviceSet where = everywhere(), any = 0;
      for (const Whereabouts::Part& part : parts) {
        if (part.col_begin >= end || begin >= part.col_end) continue;
        where &= part.where;
        any |= part.where;
      }
      if (where == 0) where = any;  // an item that lies on several
      if (where != everywhere()) where = Lowest(where);
      if (!runs.empty() && runs.back().where == where) {
        runs.back().end = edges[i + 1];
      } else {
        runs.push_back({where, edges[i], edges[i + 1], 0});
      }
    }
    return runs;
  }
  return Everywhere(items);
}

SplitMachine::Runs SplitMachine::WhereStateIs(DevicePtr<std::byte> units, size_t offset,
                                              int64_t items, size_t bytes) const {
  const UnitShape* const shape = state_ == nullptr ? nullptr : state_->ShapeOf(units);
  if (shape == nullptr) return {{everywhere(), 0, items, offset}};
  Runs runs;
  const size_t end = offset + size_t(items) * bytes;
  size_t at = 0;
  for (const UnitShape::Piece& piece : shape->pieces) {
    const size_t first = std::max(at, offset), last = std::min(at + piece.bytes, end);
    const size_t place = piece.place + (first - at);
    at += piece.bytes;
    if (first >= last) continue;
    const auto begin = static_cast<int64_t>((first - offset) / bytes);
    const auto behind = static_cast<int64_t>((last - offset) / bytes);
    CHECK((first - offset) % bytes == 0 && (last - offset) % bytes == 0);
    const DeviceSet where = DeviceSet{1} << piece.memory;
    const bool goes_on = !runs.empty() && runs.back().where == where &&
                         runs.back().place + size_t(begin - runs.back().begin) * bytes == place;
    if (goes_on) {
      runs.back().end = behind;
    } else {
      runs.push_back({where, begin, behind, place});
    }
  }
  return runs;
}

void SplitMachine::On(int device, std::string_view op,
                      const std::function<void(Backend&)>& work) {
  OpObserver* const observer = devices_[size_t(device)].observer;
  memory_.Use(device);
  if (observer != nullptr) observer->Begin(op);
  {
    const ScratchScope scope(*scratch_[size_t(device)]);
    work(backend(device));
  }
  if (observer != nullptr) observer->End();
}

void SplitMachine::Compute(std::string_view op, const Runs& runs, Operands inputs,
                           Operands outputs, const Work& compute) {
  const auto columns = [](const Operand& operand, int64_t begin, int64_t end) {
    return operand.step == 0 ? operand.rows
                             : reprise::Columns(operand.rows, begin * operand.step,
                                                (end - begin - 1) * operand.step + operand.width);
  };
  // All that is to be read comes before anything is written.
  for (const Run& run : runs) {
    for (const Operand& input : inputs) {
      memory_.Gather(columns(input, run.begin, run.end), run.where);
    }
  }
  for (int device = 0; device < count(); ++device) {
    const auto takes_part = [&](const Run& run) { return (run.where >> device & 1) != 0; };
    if (std::none_of(runs.begin(), runs.end(), takes_part)) continue;
    On(device, op, [&](Backend&) {
      for (const Run& run : runs) {
        if (takes_part(run)) compute({this, device, run});
      }
    });
  }
  for (const Run& run : runs) {
    for (const Operand& output : outputs) {
      const bool dense = output.step == output.width || output.step == 0;
      for (int64_t item = run.begin; !dense && item < run.end; ++item) {
        memory_.whereabouts().Set(columns(output, item, item + 1), run.where);
      }
      if (dense) memory_.whereabouts().Set(columns(output, run.begin, run.end), run.where);
    }
  }
}

SplitMachine::SliceKey SplitMachine::KeyOf(ConstFloats weights, int64_t rows, int64_t cols,
                                           const Run& run, int device) {
  return {Raw(weights), rows, cols, run.begin, run.end, device};
}

void SplitMachine::MakeSlices(ConstFloats weights, int64_t rows, int64_t cols, const Runs& runs) {
  if (!weights || rows == 1) return;
  memory_.Gather({weights, rows, cols, cols}, everywhere());
  for (const Run& run : runs) {
    if (run.begin == 0 && run.end == cols) continue;
    for (int device = 0; device < count(); ++device) {
      const SliceKey key = KeyOf(weights, rows, cols, run, device);
      if ((run.where >> device & 1) == 0 || slices_.contains(key)) continue;
      const size_t width = size_t(run.end - run.begin) * sizeof(float);
      DeviceMemory& memory = memory_.part(device);
      auto slice = memory.Allocate(size_t(rows) * width);
      if (!slice.ok()) {
        refused_ = slice.status();
        return;
      }
      for (int64_t row = 0; row < rows; ++row) {
        const ConstFloats from = memory_.On(device, weights) + (row * cols + run.begin);
        memory.Copy(slice->data() + row * int64_t(width), from.As<const std::byte>(), width);
      }
      slices_[key] = std::move(*slice);
    }
  }
}

// Where there was no memory for one, nothing of the step is used.
ConstFloats SplitMachine::SliceOf(ConstFloats weights, int64_t rows, int64_t cols,
                                  const Here& here) const {
  if (!weights) return nullptr;
  const bool whole = here.run.begin == 0 && here.run.end == cols;
  if (rows == 1 || whole) return here.At(weights, here.run.begin);
  const auto slice = slices_.find(KeyOf(weights, rows, cols, here.run, here.device));
  return slice == slices_.end() ? here.At(weights)
                                : ConstFloats(slice->second.data().As<float>());
}

SplitMachine::Units SplitMachine::UnitsOn(int device, DevicePtr<std::byte> units,
                                          size_t bytes) const {
  if (!units) return {};
  if (state_ == nullptr || state_->ShapeOf(units) == nullptr) {
    return {memory_.On(device, units), bytes};
  }
  return {state_->PlaceIn(device, units), state_->UnitBytesIn(device, units)};
}

void SplitMachine::BeginStep(ScratchArena& scratch, StepLayout* step) {
  for (int device = 0; device < count(); ++device) {
    StepLayout& here = steps_[size_t(device)];
    here = *step;
    const Units blocks = UnitsOn(device, step->block_memory, step->block_bytes);
    const Units states = UnitsOn(device, step->state_memory, step->state_bytes);
    here.block_memory = blocks.place;
    here.block_bytes = blocks.bytes;
    here.state_memory = states.place;
    here.state_bytes = states.bytes;
    here.choices = nullptr;
    scratch_[size_t(device)]->Reset();
    memory_.Use(device);
    OpObserver* const observer = devices_[size_t(device)].observer;
    if (observer != nullptr) observer->Begin("begin step");
    backend(device).BeginStep(*scratch_[size_t(device)], &here);
    if (observer != nullptr) observer->End();
  }
  // What families hand to ops.
  const std::span<const int32_t> rows = step->host.logit_rows;
  const DevicePtr<int32_t> logit_rows = scratch.Take<int32_t>(rows.size());
  if (!rows.empty() && !scratch.refused()) memory_.UploadArray<int32_t>(logit_rows, rows);
  step->device.logit_rows = logit_rows;
}

void SplitMachine::DropScratch() {
  for (int device = 0; device < count(); ++device) {
    *scratch_[size_t(device)] = ScratchArena(backend(device).memory());
  }
  shared_scratch_ = ScratchArena(memory_);
}

Status SplitMachine::TakeError() {
  Status first = std::exchange(refused_, OkStatus());
  if (const Status shared = shared_scratch_.TakeRefusal(); first.ok()) first = shared;
  for (int device = 0; device < count(); ++device) {
    const Status refusal = scratch_[size_t(device)]->TakeRefusal();
    const Status error = backend(device).TakeError();
    if (first.ok()) first = refusal.ok() ? error : refusal;
  }
  return first;
}

}  // namespace reprise
