// SPDX-License-Identifier: Apache-2.0
// K/V of type q8_0 as it is stored: every instruction set writes the bytes of the reference, for
// rows of every size, numbers of every magnitude and what is no number, and nothing beside them;
// what is read back is what was stored, up to half a step of its scale.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/rng.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/table.h"
#include "kernels/reference/attention.h"
#include "tensor/kv_row.h"

namespace reprise {
namespace {

using cpu::KernelTable;
using cpu::kGroup;
using cpu::kKeys;
using Floats = std::vector<float>;

class KvQ8 : public ::testing::TestWithParam<std::string> {
 protected:
  KvQ8() : reference_(*cpu::BuildTable("scalar")), table_(*cpu::BuildTable(GetParam())) {}

  Floats Random(int64_t count, float scale) {
    Floats x(static_cast<size_t>(count));
    for (float& v : x) v = (rng_.Uniform() * 2 - 1) * scale;
    return x;
  }

  // The block that `store` writes, the same with both tables, nothing beside it.
  std::vector<std::byte> Stored(int channels,
                                const std::function<void(const KernelTable&, void*)>& store) {
    constexpr size_t kPad = 64;
    const size_t bytes = kKeys * KvRowBytes(DType::kQ8_0, channels);
    std::vector<std::byte> expected(bytes + 2 * kPad, std::byte{0x55}), got = expected;
    store(reference_, expected.data() + kPad);
    store(table_, got.data() + kPad);
    EXPECT_TRUE(expected == got);
    const auto untouched = [&](size_t i) { return got[i] == std::byte{0x55}; };
    for (size_t i = 0; i < kPad; ++i) EXPECT_TRUE(untouched(i) && untouched(kPad + bytes + i));
    return {got.begin() + kPad, got.end() - kPad};
  }

  const KernelTable reference_;
  const KernelTable table_;
  Rng rng_{5};
};

TEST_P(KvQ8, RowsGoWhereTheyBelong) {
  for (const int channels : {1, 16, 24, 32, 64, 80, 100, 128, 256, 576}) {
    for (const auto& [slot, tokens] :
         {std::pair{0, 64}, {0, 1}, {63, 1}, {5, 3}, {7, 4}, {16, 16}, {1, 40}, {33, 31}}) {
      const int stride = channels + 3;
      const Floats x = Random(tokens * stride, 100);
      const auto k = Stored(channels, [&](const KernelTable& t, void* block) {
        t.store_keys_q8_0(x.data(), stride, tokens, channels, slot, block);
      });
      const auto v = Stored(channels, [&](const KernelTable& t, void* block) {
        t.store_values_q8_0(x.data(), stride, tokens, channels, slot, block);
      });
      // Keys are values, transposed; rows that were not stored are as they were.
      const int groups = int(KvGroups(channels));
      const size_t scales = size_t(kKeys * channels);
      for (int row = 0; row < kKeys; ++row) {
        const bool stored = row >= slot && row < slot + tokens;
        for (int c = 0; c < channels; ++c) {
          const std::byte code = v[size_t(row * channels + c)];
          ASSERT_EQ(k[size_t(c * kKeys + row)], code);
          ASSERT_TRUE(stored || code == std::byte{0x55});
        }
        for (int g = 0; g < groups; ++g) {
          const std::byte* at = v.data() + scales + size_t(2 * (row * groups + g));
          ASSERT_EQ(0, std::memcmp(at, k.data() + scales + size_t(2 * (g * kKeys + row)), 2));
          ASSERT_TRUE(stored || *at == std::byte{0x55});
        }
      }
    }
  }
}

TEST_P(KvQ8, HalfAStepOfTheScale) {
  for (const int channels : {1, 7, 16, 32, 33, 48, 64, 96, 576}) {
    for (int exponent = -45; exponent <= 39; ++exponent) {
      Floats x = Random(kKeys * channels, 0.9f);
      for (float& value : x) value *= std::pow(10.0f, float(exponent));
      x[0] = exponent % 3 == 0 ? NAN : exponent % 3 == 1 ? INFINITY : 0.0f;
      if (channels > kGroup) std::fill_n(x.begin() + channels, kGroup, -0.0f);
      const auto block = Stored(channels, [&](const KernelTable& t, void* v) {
        t.store_values_q8_0(x.data(), channels, kKeys, channels, 0, v);
      });
      const auto* codes = reinterpret_cast<const int8_t*>(block.data());
      const auto* scales = reinterpret_cast<const uint16_t*>(codes + kKeys * channels);
      const int64_t groups = KvGroups(channels);
      for (int row = 0; row < kKeys; ++row) {
        for (int begin = 0; begin < channels; begin += kGroup) {
          const int size = std::min(kGroup, channels - begin);
          const int first = row * channels + begin;
          float most = 0;
          bool finite = true;
          for (int i = first; i < first + size; ++i) {
            finite = finite && std::isfinite(x[size_t(i)]);
            most = std::max(most, std::fabs(x[size_t(i)]));
          }
          const uint16_t scale = scales[row * groups + begin / kGroup];
          for (int i = first; i < first + size; ++i) {
            const float element = reference::ElementOfQ8(scale, codes[i]);
            if (!finite || most > 127 * 65536.0f) {
              ASSERT_TRUE(std::isnan(element)) << i;
            } else if (most < 65000) {
              // ... and what f16 rounds off the scale and off the product.
              ASSERT_NEAR(element, x[size_t(i)], most / 254 + most * 0x1p-10f + 0x1p-18f) << i;
            }
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, KvQ8, ::testing::ValuesIn(cpu::AvailableIsas()),
                         [](const auto& isa) { return isa.param; });

}  // namespace
}  // namespace reprise
