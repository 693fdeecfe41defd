// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "device/joined/unit_memory.h"
#include "device/scratch.h"
#include "kernels/backend.h"
#include "kernels/split/split_memory.h"
#include "tensor/division.h"

namespace reprise {

// How an op is divided: which devices compute which of its items. Below the ops of SplitBackend.
//
// Thread safety: as Backend.
class SplitMachine {
 public:
  struct Device {
    Backend* backend = nullptr;
    OpObserver* observer = nullptr;  // of its ops
    int sharing = 1;                 // devices that take from the same memory, itself included
  };
  // What is pointed to must outlive it.
  explicit SplitMachine(std::vector<Device> devices);
  ~SplitMachine();

  int count() const { return int(devices_.size()); }
  Backend& backend(int device) const { return *devices_[size_t(device)].backend; }
  SplitMemory& memory() { return memory_; }
  DeviceSet everywhere() const { return memory_.whereabouts().all(); }

  // Items (columns, heads, groups) that some devices compute; where state lies, in their part of a
  // unit, where there is any.
  struct Run {
    DeviceSet where = 0;
    int64_t begin = 0;
    int64_t end = 0;
    size_t place = 0;
  };
  using Runs = std::vector<Run>;
  // Item i of rows is their columns [i * step, i * step + width). A step of 0: an item takes all.
  struct Operand {
    ConstRows rows;
    int64_t step = 1;
    int64_t width = 1;
  };
  static Operand Columns(const ConstRows& x) { return {x, 1, 1}; }
  static Operand Heads(const ConstRows& x, int64_t heads) {
    return {x, x.cols / heads, x.cols / heads};
  }
  static Operand Whole(const ConstRows& x) { return {x, 0, x.cols}; }
  using Operands = std::initializer_list<Operand>;

  // Every device computes all items.
  Runs Everywhere(int64_t items) const { return {{everywhere(), 0, items, 0}}; }
  // Items are computed where the first of the inputs that is divided lies; everywhere, if none is.
  Runs WhereInputsAre(Operands inputs, int64_t items) const;
  // Items whose state, `bytes` each, begins at `offset` of a unit, are computed where it lies.
  Runs WhereStateIs(DevicePtr<std::byte> units, size_t offset, int64_t items, size_t bytes) const;

  // A device and the items that it computes now.
  struct Here {
    SplitMachine* machine = nullptr;
    int device = 0;
    Run run;

    Backend& backend() const { return machine->backend(device); }
    ScratchArena& scratch() const { return *machine->scratch_[size_t(device)]; }
    const StepLayout& step() const { return machine->steps_[size_t(device)]; }
    int count() const { return int(run.end - run.begin); }
    template <typename T>
    DevicePtr<T> At(DevicePtr<T> place, int64_t offset = 0) const {
      return place ? machine->memory_.On(device, place) + offset : nullptr;
    }
    template <typename R>
    R All(const R& x) const {
      R here = x;
      here.data = At(x.data);
      return here;
    }
    // Its items.
    template <typename R>
    R Of(const R& x, int64_t step = 1) const {
      return reprise::Columns(All(x), run.begin * step, (run.end - run.begin) * step);
    }
    // The same columns of weights [rows, cols], as they would lie alone.
    ConstFloats Slice(ConstFloats weights, int64_t rows, int64_t cols) const {
      return machine->SliceOf(weights, rows, cols, *this);
    }
  };
  using Work = std::function<void(const Here&)>;
  // Brings the inputs of each run to its devices, computes, and knows that the outputs are there.
  void Compute(std::string_view op, const Runs& runs, Operands inputs, Operands outputs,
               const Work& compute);
  // Parts of weights [rows, cols] by their columns, as these runs ask for them with Here::Slice.
  void MakeSlices(ConstFloats weights, int64_t rows, int64_t cols, const Runs& runs);
  // Something on one device, between two of its ops.
  void On(int device, std::string_view op, const std::function<void(Backend&)>& work);

  // The same on the first, with what it computes in.
  void OnHome(std::string_view op, const std::function<void(Backend&, ScratchArena&)>& work) {
    On(0, op, [&](Backend& backend) { work(backend, *scratch_[0]); });
  }
  // Where rows are that were written without Compute.
  void Wrote(const ConstRows& x, DeviceSet where) { memory_.whereabouts().Set(x, where); }
  // The same of values that are no floats, on every device, or on none but home.
  template <typename T>
  void Wrote(DevicePtr<T> values, int64_t count) {
    const int64_t floats = (count * int64_t(sizeof(T)) + 3) / 4;
    Wrote(ConstRows(values.template As<const float>(), 1, floats, floats), everywhere());
  }
  // Rows for the time of an op, on all devices.
  ScratchArena& shared_scratch() { return shared_scratch_; }

  // The step that ops with state are of, as each device sees it.
  void BeginStep(ScratchArena& scratch, StepLayout* step);
  const StepLayout& StepOn(int device) const { return steps_[size_t(device)]; }
  void SetState(const UnitMemory* state) { state_ = state; }
  // What a device has of units of state, `bytes` each in all.
  struct Units {
    DevicePtr<std::byte> place;
    size_t bytes = 0;
  };
  Units UnitsOn(int device, DevicePtr<std::byte> units, size_t bytes) const;

  Status TakeError();
  // Gives back what ops took.
  void DropScratch();

 private:
  struct SliceKey {
    const float* weights;
    int64_t rows, cols, begin, end;
    int device;
    auto operator<=>(const SliceKey&) const = default;
  };
  static SliceKey KeyOf(ConstFloats weights, int64_t rows, int64_t cols, const Run& run,
                        int device);
  ConstFloats SliceOf(ConstFloats weights, int64_t rows, int64_t cols, const Here& here) const;

  std::vector<Device> devices_;
  mutable SplitMemory memory_;
  std::vector<std::unique_ptr<ScratchArena>> scratch_;
  ScratchArena shared_scratch_{memory_};
  std::vector<StepLayout> steps_;
  const UnitMemory* state_ = nullptr;
  std::map<SliceKey, DeviceBuffer> slices_;
  Status refused_;
};

}  // namespace reprise
