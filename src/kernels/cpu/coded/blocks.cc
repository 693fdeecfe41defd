// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/coded/blocks.h"

#include <cstddef>
#include <cstring>

#include "base/check.h"
#include "tensor/factored.h"
#include "tensor/half.h"

namespace reprise::cpu {
namespace {

// The code of a value; every value of the type has one.
class Codes {
 public:
  explicit Codes(DType dtype) {
    std::memset(code_, 0xFF, sizeof code_);
    const Levels& levels = LevelsOf(dtype);
    for (int c = 15; c >= 0; --c) code_[levels.value[c] + 128] = uint8_t(c);
  }
  int operator()(int8_t value) const {
    const int code = code_[value + 128];
    CHECK(code < 16);
    return code;
  }

 private:
  uint8_t code_[256];
};

const Codes& CodesOf(DType dtype) {
  struct Table {
    Codes of[kDTypeCount] = {
#define REPRISE_CODES(name, ...) Codes(DType::k##name),
        REPRISE_WEIGHT_TYPES(REPRISE_CODES)
#undef REPRISE_CODES
            Codes(DType::kI32)};
  };
  static const Table table;
  return table.of[static_cast<size_t>(dtype)];
}

struct CodedValues {
  uint16_t d;
  uint8_t scale[16];  // (scale - 1) / 2
  uint8_t code[256];
};

CodedValues ReadBlock(const void* block, DType dtype) {
  const Codes& codes = CodesOf(dtype);
  FactoredBlock factored;
  TakeApart(dtype, block, &factored);
  CodedValues out;
  out.d = factored.d;
  for (int s = 0; s < 16; ++s) out.scale[s] = uint8_t(factored.scale[s] / 2);
  for (int e = 0; e < 256; ++e) out.code[e] = uint8_t(codes(factored.value[e]));
  return out;
}

void WriteValues(const CodedValues& coded, float* out, DType dtype) {
  const Levels& levels = LevelsOf(dtype);
  const float d = F16ToF32(coded.d) * UnitOf(dtype);
  for (int e = 0; e < 256; ++e) {
    out[e] = d * float((2 * coded.scale[e / 16] + 1) * levels.value[coded.code[e]]);
  }
}

// Where codes have their two low bits, and their third.
uint8_t& LowByte(uint8_t* qs, int e) { return qs[32 * (e / 128) + e % 32]; }
int LowShift(int e) { return e % 128 / 32 * 2; }

void PutLow(const CodedValues& values, uint8_t* qs) {
  std::memset(qs, 0, 64);
  for (int e = 0; e < 256; ++e) {
    uint8_t& byte = LowByte(qs, e);
    byte = uint8_t(byte | (values.code[e] & 3) << LowShift(e));
  }
}
void TakeLow(const uint8_t* qs, CodedValues* values) {
  for (int e = 0; e < 256; ++e) {
    values->code[e] = uint8_t(qs[32 * (e / 128) + e % 32] >> LowShift(e) & 3);
  }
}

void PutHigh(const CodedValues& values, uint8_t* high) {
  std::memset(high, 0, 32);
  for (int e = 0; e < 256; ++e) {
    high[e % 32] = uint8_t(high[e % 32] | (values.code[e] >> 2 & 1) << (e / 32));
  }
}
void TakeHigh(const uint8_t* high, CodedValues* values) {
  for (int e = 0; e < 256; ++e) {
    values->code[e] = uint8_t(values->code[e] | (high[e % 32] >> (e / 32) & 1) << 2);
  }
}

// kCount nibbles, each for 16 / kCount sub-blocks of 16.
template <int kCount>
void PutNibbles(const CodedValues& values, uint8_t* scales) {
  std::memset(scales, 0, kCount / 2);
  for (int s = 0; s < kCount; ++s) {
    const int scale = values.scale[s * (16 / kCount)];
    scales[s / 2] = uint8_t(scales[s / 2] | scale << (s % 2 * 4));
  }
}
template <int kCount>
void TakeNibbles(const uint8_t* scales, CodedValues* values) {
  for (int s = 0; s < 16; ++s) {
    const int nibble = s / (16 / kCount);
    values->scale[s] = uint8_t(scales[nibble / 2] >> (nibble % 2 * 4) & 15);
  }
}

void Put(const CodedValues& values, CodedIQ1_S* out) {
  PutNibbles<8>(values, out->scales);  // of three bits
  for (int s = 0; s < 8; ++s) {
    const int third = values.code[32 * s] >> 2;
    out->scales[s / 2] = uint8_t(out->scales[s / 2] | third << (s % 2 * 4 + 3));
  }
  PutLow(values, out->qs);
}
void Take(const CodedIQ1_S& coded, CodedValues* out) {
  TakeNibbles<8>(coded.scales, out);
  TakeLow(coded.qs, out);
  for (int e = 0; e < 256; ++e) {
    out->code[e] = uint8_t(out->code[e] | (out->scale[e / 16] >> 3) << 2);
  }
  for (uint8_t& scale : out->scale) scale &= 7;
}

void Put(const CodedValues& values, CodedIQ1_M* out) {
  for (int s = 0; s < 16; ++s) {
    const int first = values.code[16 * s] >> 2, last = values.code[16 * s + 8] >> 2;
    out->scales[s] = uint8_t(values.scale[s] | first << 3 | last << 4);
  }
  PutLow(values, out->qs);
}
void Take(const CodedIQ1_M& coded, CodedValues* out) {
  TakeLow(coded.qs, out);
  for (int e = 0; e < 256; ++e) {
    const int third = coded.scales[e / 16] >> (3 + e % 16 / 8) & 1;
    out->code[e] = uint8_t(out->code[e] | third << 2);
  }
  for (int s = 0; s < 16; ++s) out->scale[s] = coded.scales[s] & 7;
}

void Put(const CodedValues& values, CodedIQ2_XXS* out) {
  PutNibbles<8>(values, out->scales);
  PutHigh(values, out->high);
  PutLow(values, out->qs);
}
void Take(const CodedIQ2_XXS& coded, CodedValues* out) {
  TakeNibbles<8>(coded.scales, out);
  TakeLow(coded.qs, out);
  TakeHigh(coded.high, out);
}

void Put(const CodedValues& values, CodedIQ2_XS* out) {
  PutNibbles<16>(values, out->scales);
  PutHigh(values, out->high);
  PutLow(values, out->qs);
}
void Take(const CodedIQ2_XS& coded, CodedValues* out) {
  TakeNibbles<16>(coded.scales, out);
  TakeLow(coded.qs, out);
  TakeHigh(coded.high, out);
}

void Put(const CodedValues& values, CodedIQ3_XXS* out) {
  PutNibbles<8>(values, out->scales);
  for (int j = 0; j < 128; ++j) {
    const uint8_t* code = values.code + 32 * (j / 16) + j % 16;
    out->qs[j] = uint8_t(code[0] | code[16] << 4);
  }
}
void Take(const CodedIQ3_XXS& coded, CodedValues* out) {
  TakeNibbles<8>(coded.scales, out);
  for (int j = 0; j < 128; ++j) {
    uint8_t* code = out->code + 32 * (j / 16) + j % 16;
    code[0] = coded.qs[j] & 15;
    code[16] = coded.qs[j] >> 4;
  }
}

// Where bit `bit` of the code of value `in_run` of a run lies in the planes: byte, and bit of it.
struct BitPlace {
  int byte, bit;
};
BitPlace PlaceOf(int run, int in_run, int bit) {
  const int half = run % 2 * 4;
  if (run >= 6) return {32 * bit + in_run, half + bit};
  const int plane = run / 2;
  return {32 * plane + in_run, half + (bit < plane ? bit : bit + 1)};
}

// Run and place in it of value e.
template <typename Coded>
int RunOf(int e) {
  return sizeof(Coded::scales) == 4 ? e / 32 : e / 16 % 8;
}
template <typename Coded>
int InRun(int e) {
  return sizeof(Coded::scales) == 4 ? e % 32 : e / 128 * 16 + e % 16;
}

template <typename Coded>
void EntwineCodes(Coded* coded) {
  static_assert(offsetof(Coded, qs) == offsetof(Coded, high) + 32);
  CodedValues values;
  TakeLow(coded->qs, &values);
  TakeHigh(coded->high, &values);
  uint8_t planes[96] = {};
  for (int e = 0; e < 256; ++e) {
    for (int bit = 0; bit < 3; ++bit) {
      const BitPlace place = PlaceOf(RunOf<Coded>(e), InRun<Coded>(e), bit);
      planes[place.byte] = uint8_t(planes[place.byte] | (values.code[e] >> bit & 1) << place.bit);
    }
  }
  std::memcpy(coded->high, planes, 32);
  std::memcpy(coded->qs, planes + 32, 64);
}

template <typename Coded>
void DisentwineCodes(Coded* coded) {
  uint8_t planes[96];
  std::memcpy(planes, coded->high, 32);
  std::memcpy(planes + 32, coded->qs, 64);
  CodedValues values;
  for (int e = 0; e < 256; ++e) {
    int code = 0;
    for (int bit = 0; bit < 3; ++bit) {
      const BitPlace place = PlaceOf(RunOf<Coded>(e), InRun<Coded>(e), bit);
      code |= (planes[place.byte] >> place.bit & 1) << bit;
    }
    values.code[e] = uint8_t(code);
  }
  PutHigh(values, coded->high);
  PutLow(values, coded->qs);
}

void Put(const CodedValues& values, CodedTQ1_0* out) { PutLow(values, out->qs); }
void Take(const CodedTQ1_0& coded, CodedValues* out) {
  std::memset(out->scale, 0, sizeof out->scale);
  TakeLow(coded.qs, out);
}

}  // namespace

#define REPRISE_CODED(name)                                              \
  void EncodeBlock(const void* block, Coded##name* coded, DType dtype) { \
    const CodedValues values = ReadBlock(block, dtype);                  \
    coded->d = values.d;                                                 \
    Put(values, coded);                                                  \
  }                                                                      \
  void DecodeBlock(const Coded##name& coded, float* out, DType dtype) {  \
    CodedValues values;                                                  \
    values.d = coded.d;                                                  \
    Take(coded, &values);                                                \
    WriteValues(values, out, dtype);                                     \
  }
REPRISE_CODED(IQ1_S)
REPRISE_CODED(IQ1_M)
REPRISE_CODED(IQ2_XXS)
REPRISE_CODED(IQ2_XS)
REPRISE_CODED(IQ3_XXS)
REPRISE_CODED(TQ1_0)
#undef REPRISE_CODED

void Entwine(CodedIQ2_XXS* coded) { EntwineCodes(coded); }
void Entwine(CodedIQ2_XS* coded) { EntwineCodes(coded); }
void Disentwine(CodedIQ2_XXS* coded) { DisentwineCodes(coded); }
void Disentwine(CodedIQ2_XS* coded) { DisentwineCodes(coded); }

void Entwine(CodedIQ1_M* coded) {
  for (uint8_t& byte : coded->scales) {
    byte = uint8_t((2 * (byte & 7) + 1) << 4 | (byte >> 3 & 3) * 5);
  }
}
void Disentwine(CodedIQ1_M* coded) {
  for (uint8_t& byte : coded->scales) byte = uint8_t(byte >> 5 | (byte & 3) << 3);
}

}  // namespace reprise::cpu
