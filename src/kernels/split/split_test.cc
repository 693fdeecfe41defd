// SPDX-License-Identifier: Apache-2.0
// Where values are, and how they come to where they are not.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/devices/devices.h"
#include "kernels/front/ops_fixture.h"
#include "kernels/split/split_backend.h"
#include "kernels/split/whereabouts.h"

namespace reprise {
namespace {

// So many devices of one CPU, each with a memory that is closed to the others, as one.
class SplitCpu {
 public:
  explicit SplitCpu(int count) : pool_(1), table_(*cpu::BuildTable("all")) {
    std::vector<Devices::Device> list;
    for (int i = 0; i < count; ++i) {
      Devices::Device device;
      device.name = "cpu";
      device.closed = std::make_unique<ClosedMemory>();
      device.backend = std::make_unique<cpu::CpuBackend>(&pool_, &table_, *device.closed);
      list.push_back(std::move(device));
    }
    devices_ = std::make_unique<Devices>(std::move(list), Devices::Split::kRows);
  }
  const OpContext& context() const { return devices_->at(0); }
  SplitBackend& backend() { return *devices_->split_backend(); }
  Rows Put(const Floats& values, int64_t cols) {
    const Rows rows = {context().scratch->Floats(values.size()), int64_t(values.size()) / cols,
                       cols, cols};
    backend().memory().UploadArray<float>(rows.data, values);
    return rows;
  }
  Floats Get(const Rows& rows) {
    Floats values(size_t(rows.rows * rows.cols));
    backend().memory().DownloadArray<float>(values, rows.data);
    return values;
  }
  // What a device has at the place of x.
  Floats GetOn(int device, const ConstRows& x) {
    SplitMemory& memory = backend().split_memory();
    Floats values(size_t(x.rows * x.cols));
    memory.part(device).DownloadArray<float>(values, memory.On(device, x.data));
    return values;
  }

 private:
  ThreadPool pool_;
  cpu::KernelTable table_;
  std::unique_ptr<Devices> devices_;
};

TEST(DivisionTest, SectionsAreDividedOnTheirOwnAndThingsStayWhole) {
  const Section sections[] = {{4, 10}, {2, 5}, {1, 3}};
  const std::vector<Share> two = {{0, 0, 20}, {1, 20, 40}, {0, 40, 45}, {1, 45, 53}};
  EXPECT_EQ(Divide(sections, 2), two);
  const std::vector<Share> one = {{0, 0, 53}};
  EXPECT_EQ(Divide(sections, 1), one);
  for (int owners = 1; owners <= 9; ++owners) {
    int64_t at = 0;
    for (const Share& share : Divide(sections, owners)) {
      EXPECT_EQ(share.begin, at);
      EXPECT_LT(share.owner, owners);
      at = share.end;
    }
    EXPECT_EQ(at, 53);
  }
}

// Against a set for every value: views of a few arrays, written and asked for in any order.
TEST(WhereaboutsTest, EveryValueIsWhereItWasWritten) {
  constexpr int64_t kRows = 6, kStride = 20;
  Rng rng(7);
  for (int run = 0; run < 200; ++run) {
    Whereabouts places(3);
    Floats memory(kRows * kStride);
    std::vector<DeviceSet> model(memory.size(), places.all());
    const auto view = [&] {
      const auto row = int64_t(rng.Below(kRows)), col = int64_t(rng.Below(kStride));
      const int64_t rows = 1 + int64_t(rng.Below(uint64_t(kRows - row)));
      const int64_t cols = 1 + int64_t(rng.Below(uint64_t(kStride - col)));
      return ConstRows{PlaceAt(std::as_const(memory).data() + row * kStride + col), rows, cols,
                       kStride};
    };
    for (int i = 0; i < 40; ++i) {
      const ConstRows set = view();
      const DeviceSet where = 1 + rng.Below(places.all());
      places.Set(set, where);
      const int64_t first = Raw(set.data) - memory.data();
      for (int64_t row = 0; row < set.rows; ++row) {
        for (int64_t col = 0; col < set.cols; ++col) {
          model[size_t(first + row * kStride + col)] = where;
        }
      }
      const ConstRows asked = view();
      std::vector<DeviceSet> found(size_t(asked.rows * asked.cols), places.all());
      for (const Whereabouts::Part& part : places.PartsOf(asked)) {
        for (int64_t row = part.row_begin; row < part.row_end; ++row) {
          for (int64_t col = part.col_begin; col < part.col_end; ++col) {
            DeviceSet& one = found[size_t(row * asked.cols + col)];
            ASSERT_EQ(one, places.all());  // parts do not overlap
            one = part.where;
          }
        }
      }
      const int64_t begin = Raw(asked.data) - memory.data();
      for (int64_t row = 0; row < asked.rows; ++row) {
        for (int64_t col = 0; col < asked.cols; ++col) {
          ASSERT_EQ(found[size_t(row * asked.cols + col)],
                    model[size_t(begin + row * kStride + col)]);
        }
      }
    }
  }
}

TEST(WhereaboutsTest, MemoryThatIsUsedInAnotherFormIsForgotten) {
  Whereabouts places(2);
  Floats memory(60);
  const auto rows = [&](int64_t at, int64_t count, int64_t cols) {
    return ConstRows{PlaceAt(std::as_const(memory).data() + at), count, cols, cols};
  };
  places.Set(rows(0, 6, 10), 1);
  places.Set(rows(20, 4, 7), 2);  // 28 values in the midst of it
  EXPECT_TRUE(places.PartsOf(rows(0, 6, 10)).empty());
  ASSERT_EQ(places.PartsOf(rows(20, 4, 7)).size(), 1u);
  EXPECT_EQ(places.PartsOf(rows(20, 4, 7))[0].where, 2u);
  // Another form of what is there is found, so that it can be gathered.
  EXPECT_EQ(places.Strangers(memory.data(), 60 * sizeof(float), rows(20, 2, 14)).size(), 1u);
  places.Forget(memory.data(), 60 * sizeof(float));
  EXPECT_TRUE(places.PartsOf(rows(20, 4, 7)).empty());
}

// The law of the op: afterwards each device that it names has the values, bit for bit, and nothing
// beside them has changed anywhere.
TEST(GatherTest, BringsWhatIsMissingAndNothingElse) {
  Rng rng(3);
  for (const int count : {1, 2, 3, 8}) {
    SplitCpu cpu(count);
    SplitMemory& memory = cpu.backend().split_memory();
    const Floats values = Uniform(rng, 5 * 48, -1, 1);
    const Rows x = cpu.Put(values, 48);
    // Each device alone has some columns; elsewhere lies something else.
    for (int device = 0; device < count; ++device) {
      const Floats noise = Uniform(rng, 5 * 48, -1, 1);
      Floats there = noise;
      const int64_t begin = 40 * device / count, end = 40 * (device + 1) / count;
      for (int64_t row = 0; row < 5; ++row) {
        for (int64_t col = 0; col < 48; ++col) {
          const auto i = size_t(row * 48 + col);
          if ((begin <= col && col < end) || col >= 40) there[i] = values[i];
        }
      }
      memory.part(device).UploadArray<float>(memory.On(device, x.data), there);
      memory.whereabouts().Set(Columns(x, begin, end - begin), DeviceSet{1} << device);
    }
    const int last = count - 1;
    std::vector<Floats> before;
    for (int device = 0; device < count; ++device) before.push_back(cpu.GetOn(device, x));
    cpu.backend().Gather(Columns(x, 3, 30), DeviceSet{1} << last);
    for (int device = 0; device < count; ++device) {
      const Floats now = cpu.GetOn(device, x);
      for (size_t i = 0; i < now.size(); ++i) {
        const auto col = int64_t(i) % 48;
        const bool brought = device == last && 3 <= col && col < 33;
        ASSERT_EQ(now[i], brought ? values[i] : before[size_t(device)][i]);
      }
    }
    const size_t copies = memory.gathered().copies;
    cpu.backend().Gather(Columns(x, 3, 30), DeviceSet{1} << last);
    EXPECT_EQ(memory.gathered().copies, copies);  // it is there
    cpu.backend().Gather(x);
    for (int device = 0; device < count; ++device) {
      EXPECT_TRUE(SameBits(cpu.GetOn(device, x), values)) << device << " of " << count;
    }
  }
}

// Each column of a product is one device's, and what follows column by column stays there.
TEST(SplitBackendTest, ProductsAreDividedByRowsOfOutput) {
  constexpr int64_t kCols = 64, kRows = 96;
  Rng rng(5);
  Machine one(2);
  const Floats weights = Uniform(rng, kRows * kCols, -1, 1), input = Uniform(rng, 3 * kCols, -1, 1);
  const auto* const source = reinterpret_cast<const std::byte*>(weights.data());
  const MatrixShape shape = {DType::kF32, 1, kRows, kCols};
  const auto whole = Matrix::Pack(one.context(), shape, source, kCols * sizeof(float));
  ASSERT_TRUE(whole.ok());
  Floats expected(3 * kRows);
  const Projection projection[] = {{&*whole, View(expected, kRows)}};
  Project(one.context(), View(input, kCols), projection);
  for (const int count : {1, 2, 3, 4, 8}) {
    SplitCpu cpu(count);
    const auto split = Matrix::Pack(cpu.context(), shape, source, kCols * sizeof(float));
    ASSERT_TRUE(split.ok());
    const Rows x = cpu.Put(input, kCols);
    const Rows y = {cpu.context().scratch->Floats(3 * kRows), 3, kRows, kRows};
    const Projection mine[] = {{&*split, y}};
    Project(cpu.context(), x, mine);
    const size_t copies = cpu.backend().split_memory().gathered().copies;
    EXPECT_EQ(copies, 0u);
    EXPECT_TRUE(SameBits(cpu.Get(y), expected)) << count;
  }
}

}  // namespace
}  // namespace reprise
