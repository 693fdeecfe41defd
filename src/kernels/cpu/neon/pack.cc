// SPDX-License-Identifier: Apache-2.0
// Packing into groups of eight rows and back. neon is what every aarch64 CPU has, so this folder is
// compiled without flags of its own and may use tensor/.
#include <cstring>

#include "kernels/cpu/coded/blocks.h"
#include "kernels/cpu/neon/packed.h"
#include "tensor/blocks.h"
#include "tensor/codec.h"

namespace reprise::cpu::neon {
namespace {

// Moves fields of one row's block into the group (kPack) or out of it again.
template <bool kPack>
struct Mover {
  int row;

  void Half(uint16_t& field, uint16_t* packed) const {
    if constexpr (kPack) {
      packed[row] = field;
    } else {
      field = packed[row];
    }
  }
  // Bytes that become registers: eight at a time, beside those of the other rows.
  void Registers(void* field, int bytes, void* packed) const {
    char* file = static_cast<char*>(field);
    char* group = static_cast<char*>(packed) + 8 * row;
    for (int i = 0; i < bytes; i += 8, file += 8, group += 8 * kGroupRows) {
      std::memcpy(kPack ? group : file, kPack ? file : group, 8);
    }
  }
  void Transpose(void* field, int bytes, void* packed) const {
    char* file = static_cast<char*>(field);
    char* group = static_cast<char*>(packed) + row;
    for (int i = 0; i < bytes; ++i, group += kGroupRows) {
      if constexpr (kPack) {
        *group = file[i];
      } else {
        file[i] = *group;
      }
    }
  }
};

template <bool kPack>
void Move(const Mover<kPack>& mover, BlockQ8_0* block, PackedQ8_0* packed) {
  mover.Half(block->d, packed->d);
  mover.Registers(block->qs, sizeof block->qs, packed->q);
}

// Flips `mask` in every byte of a field that Registers() moved.
template <bool kPack>
void Flip(const Mover<kPack>& mover, void* field, int bytes, void* packed, uint64_t mask) {
  char* at = static_cast<char*>(kPack ? packed : field) + (kPack ? 8 * mover.row : 0);
  for (int i = 0; i < bytes; i += 8, at += kPack ? 8 * kGroupRows : 8) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    word ^= mask;
    std::memcpy(at, &word, 8);
  }
}

template <bool kPack>
void Move(const Mover<kPack>& mover, BlockQ4_0* block, PackedQ4_0* packed) {
  mover.Half(block->d, packed->d);
  mover.Registers(block->qs, sizeof block->qs, packed->q);
  Flip(mover, block->qs, sizeof block->qs, packed->q, 0x8888888888888888u);
}

template <bool kPack>
void Move(const Mover<kPack>& mover, BlockIQ4_NL* block, PackedIQ4_NL* packed) {
  mover.Half(block->d, packed->d);
  mover.Registers(block->qs, sizeof block->qs, packed->q);
}

template <bool kPack>
void Move(const Mover<kPack>& mover, BlockMXFP4* block, PackedMXFP4* packed) {
  mover.Transpose(&block->e, 1, packed->e);
  mover.Registers(block->qs, sizeof block->qs, packed->q);
}

template <bool kPack>
void Move(const Mover<kPack>& mover, BlockQ4_1* block, PackedQ4_1* packed) {
  mover.Half(block->d, packed->d);
  mover.Half(block->m, packed->m);
  mover.Registers(block->qs, sizeof block->qs, packed->q);
}

// Bit j of `bits` becomes bit 0 of byte j.
uint64_t SpreadBits(uint8_t bits) {
  const uint64_t own = (bits * 0x0101010101010101u) & 0x8040201008040201u;
  return (own + 0x7F7F7F7F7F7F7F7Fu) >> 7 & 0x0101010101010101u;
}

// The fifth bits of one row: byte s of the file holds those of step s.
template <bool kPack>
void MoveHigh(const Mover<kPack>& mover, uint8_t* qh, Register* high, uint8_t flip) {
  uint8_t* bytes = high[mover.row / 4] + 8 * (mover.row % 2);
  const int shift = mover.row / 2 % 2 * 4;
  uint64_t word;
  std::memcpy(&word, bytes, 8);
  if constexpr (kPack) {
    for (int step = 0; step < 4; ++step) {
      word |= SpreadBits(uint8_t(qh[step] ^ flip)) << (shift + step);
    }
    std::memcpy(bytes, &word, 8);
  } else {
    for (int step = 0; step < 4; ++step) {
      int bits = 0;
      for (int j = 0; j < 8; ++j) bits |= (bytes[j] >> (shift + step) & 1) << j;
      qh[step] = uint8_t(bits ^ flip);
    }
  }
}

template <bool kPack>
void Move(const Mover<kPack>& mover, BlockQ5_0* block, PackedQ5_0* packed) {
  mover.Half(block->d, packed->d);
  MoveHigh(mover, block->qh, packed->high, 0xFF);
  mover.Registers(block->qs, sizeof block->qs, packed->q);
}

template <bool kPack>
void Move(const Mover<kPack>& mover, BlockQ5_1* block, PackedQ5_1* packed) {
  mover.Half(block->d, packed->d);
  mover.Half(block->m, packed->m);
  MoveHigh(mover, block->qh, packed->high, 0);
  mover.Registers(block->qs, sizeof block->qs, packed->q);
}

template <bool kPack>
void Move(const Mover<kPack>& mover, BlockQ2_K* block, PackedQ2_K* packed) {
  mover.Half(block->d, packed->d);
  mover.Half(block->dmin, packed->dmin);
  mover.Transpose(block->scales, sizeof block->scales, packed->scales);
  mover.Registers(block->qs, sizeof block->qs, packed->q);
}

template <bool kPack>
void Move(const Mover<kPack>& mover, BlockQ3_K* block, PackedQ3_K* packed) {
  mover.Half(block->d, packed->d);
  mover.Transpose(block->scales, sizeof block->scales, packed->scales);
  mover.Registers(block->hmask, sizeof block->hmask, packed->high);
  mover.Registers(block->qs, sizeof block->qs, packed->q);
}

template <bool kPack>
void Move(const Mover<kPack>& mover, BlockQ4_K* block, PackedQ4_K* packed) {
  mover.Half(block->d, packed->d);
  mover.Half(block->dmin, packed->dmin);
  mover.Transpose(block->scales, sizeof block->scales, packed->scales);
  mover.Registers(block->qs, sizeof block->qs, packed->q);
}

template <bool kPack>
void Move(const Mover<kPack>& mover, BlockQ5_K* block, PackedQ5_K* packed) {
  mover.Half(block->d, packed->d);
  mover.Half(block->dmin, packed->dmin);
  mover.Transpose(block->scales, sizeof block->scales, packed->scales);
  mover.Registers(block->qh, sizeof block->qh, packed->high);
  mover.Registers(block->qs, sizeof block->qs, packed->q);
}

template <bool kPack>
void Move(const Mover<kPack>& mover, BlockQ6_K* block, PackedQ6_K* packed) {
  mover.Half(block->d, packed->d);
  mover.Transpose(block->scales, sizeof block->scales, packed->scales);
  mover.Registers(block->ql, sizeof block->ql, packed->low);
  mover.Registers(block->qh, sizeof block->qh, packed->high);
  Flip(mover, block->qh, sizeof block->qh, packed->high, 0xAAAAAAAAAAAAAAAAu);
}

template <bool kPack>
void Move(const Mover<kPack>& mover, BlockIQ4_XS* block, PackedIQ4_XS* packed) {
  mover.Half(block->d, packed->d);
  mover.Transpose(&block->scales_h, 6, packed->scales);
  mover.Registers(block->qs, sizeof block->qs, packed->q);
}

template <bool kPack>
void Move(const Mover<kPack>& mover, CodedIQ1_S* block, PackedIQ1_S* packed) {
  mover.Half(block->d, packed->d);
  mover.Transpose(block->scales, sizeof block->scales, packed->scales);
  mover.Registers(block->qs, sizeof block->qs, packed->q);
}

template <bool kPack>
void Move(const Mover<kPack>& mover, CodedIQ1_M* block, PackedIQ1_M* packed) {
  mover.Half(block->d, packed->d);
  mover.Transpose(block->scales, sizeof block->scales, packed->scales);
  mover.Registers(block->qs, sizeof block->qs, packed->q);
}

template <bool kPack>
void Move(const Mover<kPack>& mover, CodedIQ2_XXS* block, PackedIQ2_XXS* packed) {
  mover.Half(block->d, packed->d);
  mover.Transpose(block->scales, sizeof block->scales, packed->scales);
  mover.Registers(block->high, sizeof block->high, packed->high);
  mover.Registers(block->qs, sizeof block->qs, packed->q);
}

template <bool kPack>
void Move(const Mover<kPack>& mover, CodedIQ2_XS* block, PackedIQ2_XS* packed) {
  mover.Half(block->d, packed->d);
  mover.Transpose(block->scales, sizeof block->scales, packed->scales);
  mover.Registers(block->high, sizeof block->high, packed->high);
  mover.Registers(block->qs, sizeof block->qs, packed->q);
}

template <bool kPack>
void Move(const Mover<kPack>& mover, CodedIQ3_XXS* block, PackedIQ3_XXS* packed) {
  mover.Half(block->d, packed->d);
  mover.Transpose(block->scales, sizeof block->scales, packed->scales);
  mover.Registers(block->qs, sizeof block->qs, packed->q);
}

template <bool kPack>
void Move(const Mover<kPack>& mover, CodedTQ1_0* block, PackedTQ1_0* packed) {
  mover.Half(block->d, packed->d);
  mover.Registers(block->qs, sizeof block->qs, packed->q);
}

// A type with the block that is packed, its values, and its packed block.
template <DType kDType, typename BlockT, int kBlockValues, typename PackedT>
struct Type {
  using Block = BlockT;
  using Packed = PackedT;
  static constexpr DType kType = kDType;
  static constexpr int kValues = kBlockValues;
  static_assert(sizeof(Packed) == kGroupRows * sizeof(Block));

  static void Read(const char* file, Block* block) { std::memcpy(block, file, sizeof *block); }
  static void Values(const Block& block, float* out) { DequantiseRow(kType, &block, out, kValues); }
};

template <DType kDType, typename BlockT, int kBlockValues, typename PackedT>
struct CodedType : Type<kDType, BlockT, kBlockValues, PackedT> {
  static void Read(const char* file, BlockT* block) { EncodeBlock(file, block, kDType); }
  static void Values(const BlockT& block, float* out) { DecodeBlock(block, out, kDType); }
};

template <typename T>
size_t GroupBytes(int64_t cols) {
  return (size_t(cols / T::kValues) * sizeof(typename T::Packed) + 63) / 64 * 64;
}

template <typename T>
void Pack(const void* source, size_t source_stride, int rows, int64_t cols, void* group) {
  std::memset(group, 0, GroupBytes<T>(cols));
  auto* packed = static_cast<typename T::Packed*>(group);
  const char* file = static_cast<const char*>(source);
  for (int64_t b = 0; b < cols / T::kValues; ++b, file += TraitsOf(T::kType).block_bytes) {
    for (int row = 0; row < rows; ++row) {
      typename T::Block block;
      T::Read(file + size_t(row) * source_stride, &block);
      Move(Mover<true>{row}, &block, &packed[b]);
    }
  }
}

template <typename T>
void UnpackRow(const void* group, int row, int64_t cols, float* out) {
  // Mover<false> only reads the group.
  auto* packed = static_cast<typename T::Packed*>(const_cast<void*>(group));
  for (int64_t b = 0; b < cols / T::kValues; ++b) {
    typename T::Block block;
    Move(Mover<false>{row}, &block, &packed[b]);
    T::Values(block, out + b * T::kValues);
  }
}

template <typename T>
void Set(KernelTable* table, const char* isa, RunFunction* run) {
  MatrixKernel& kernel = table->matrix[static_cast<size_t>(T::kType)];
  kernel.isa = isa;
  kernel.format = "arm8";
  kernel.activations =
      T::kValues == 32 ? ActivationFormat::kQ8Block32 : ActivationFormat::kQ8Block256;
  kernel.group_rows = kGroupRows;
  kernel.group_bytes = GroupBytes<T>;
  kernel.pack = Pack<T>;
  kernel.unpack_row = UnpackRow<T>;
  kernel.run = run;
}

}  // namespace

void SetMatrix(KernelTable* table, PackedType type, const char* isa, RunFunction* run) {
  switch (type) {
#define REPRISE_SET(name, text, values, ...) \
  case PackedType::k##name:                  \
    return Set<Type<DType::k##name, Block##name, values, Packed##name>>(table, isa, run);
#define REPRISE_SET_CODED(name, text, values, ...) \
  case PackedType::k##name:                        \
    return Set<CodedType<DType::k##name, Coded##name, values, Packed##name>>(table, isa, run);
    REPRISE_SMALL_TYPES(REPRISE_SET)
    REPRISE_SUPER_TYPES(REPRISE_SET)
    REPRISE_CODED_TYPES(REPRISE_SET_CODED)
#undef REPRISE_SET_CODED
#undef REPRISE_SET
  }
}

}  // namespace reprise::cpu::neon
