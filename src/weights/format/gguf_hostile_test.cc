// SPDX-License-Identifier: Apache-2.0
// Proves that hostile GGUF files are refused with one sentence and no allocation by the attacker's
// count. Each test is a class of vulnerability that was found in another reader; the name in the
// comment is the public record of it.
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "base/rng.h"
#include "weights/format/gguf.h"

namespace reprise {
namespace {

// A GGUF file byte by byte, with nothing to stop it from being wrong.
class Bytes {
 public:
  template <typename T>
  Bytes& Raw(T value) {
    text_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Bytes& U32(uint32_t value) { return Raw(value); }
  Bytes& U64(uint64_t value) { return Raw(value); }
  Bytes& String(std::string_view text) {
    U64(text.size());
    text_ += text;
    return *this;
  }
  Bytes& Head(uint64_t tensors, uint64_t values, uint32_t version = 3) {
    text_ += "GGUF";
    return U32(version).U64(tensors).U64(values);
  }
  Bytes& KeyU32(std::string_view key, uint32_t value) { return String(key).U32(4).U32(value); }
  Bytes& Tensor(std::string_view name, std::vector<uint64_t> extents, uint32_t type,
                uint64_t offset) {
    String(name).U32(uint32_t(extents.size()));
    for (const uint64_t extent : extents) U64(extent);
    return U32(type).U64(offset);
  }
  // To the alignment, then `count` bytes of data.
  Bytes& Data(size_t count, size_t alignment = 32) {
    text_.resize((text_.size() + alignment - 1) / alignment * alignment + count);
    return *this;
  }
  std::span<const std::byte> span() const { return std::as_bytes(std::span(text_)); }
  std::string& text() { return text_; }

  // The sentence of the refusal; empty if the file was accepted.
  std::string Refusal() const {
    const Result<GgufFile> file = GgufFile::Parse(span());
    return file.ok() ? "" : file.status().message();
  }

 private:
  std::string text_;
};

#define EXPECT_REFUSED(bytes, sentence) \
  EXPECT_NE((bytes).Refusal().find(sentence), std::string::npos) << (bytes).Refusal()

TEST(GgufHostile, TheSmallestFileIsAccepted) {
  EXPECT_EQ(Bytes().Head(0, 0).Refusal(), "");
  EXPECT_EQ(Bytes().Head(0, 0, 2).Refusal(), "");
  EXPECT_EQ(Bytes().Head(1, 0).Tensor("t", {8}, 0, 0).Data(32).Refusal(), "");
}

TEST(GgufHostile, OtherFormatsAndVersionsAreNamed) {
  Bytes ggml;
  ggml.text() = "ggml and more";
  EXPECT_REFUSED(ggml, "not a GGUF file");
  EXPECT_REFUSED(Bytes(), "not a GGUF file");
  EXPECT_REFUSED(Bytes().Head(0, 0, 1), "version 1 is too old");
  EXPECT_REFUSED(Bytes().Head(0, 0, 0x03000000), "big-endian");
  EXPECT_REFUSED(Bytes().Head(0, 0, 0x02000000), "big-endian");
  EXPECT_REFUSED(Bytes().Head(0, 0, 4), "version 4 is not supported");
  EXPECT_REFUSED(Bytes().Head(0, 0, 0), "version 0 is not supported");
}

// CVE-2024-21836 (n_tensors), CVE-2024-23605 (n_kv): counts of the header taken as sizes.
TEST(GgufHostile, HeaderCountsAreBoundedByTheFile) {
  EXPECT_REFUSED(Bytes().Head(0, UINT64_MAX), "more than the file can hold");
  EXPECT_REFUSED(Bytes().Head(UINT64_MAX, 0), "more than the file can hold");
  EXPECT_REFUSED(Bytes().Head(uint64_t{1} << 32, uint64_t{1} << 32), "more than the file can hold");
  EXPECT_REFUSED(Bytes().Head(0, 2).KeyU32("a", 1).U64(50).U32(1), "the file ends inside");
}

// CVE-2024-23496: string lengths that wrap when one is added.
TEST(GgufHostile, StringLengthsAreBoundedByTheFile) {
  for (const uint64_t length : {UINT64_MAX, UINT64_MAX - 1, uint64_t{1} << 63, uint64_t{100}}) {
    EXPECT_REFUSED(Bytes().Head(0, 1).U64(length).Data(40), "the file ends inside the metadata");
    EXPECT_REFUSED(Bytes().Head(0, 1).String("key").U32(8).U64(length).Data(0),
                   "the file ends inside");
    EXPECT_REFUSED(Bytes().Head(1, 0).U64(length).Data(40),
                   "the file ends inside the tensor table");
  }
}

// CVE-2024-21825: array counts whose product with the element size wraps.
TEST(GgufHostile, ArrayCountsAreBoundedByTheFile) {
  for (uint32_t type = 0; type < 13; ++type) {
    if (type == 9) continue;
    for (const uint64_t count : {UINT64_MAX, (uint64_t{1} << 61) + 1, (uint64_t{1} << 62) + 1,
                                 (uint64_t{1} << 63) + 1, uint64_t{1000}}) {
      EXPECT_REFUSED(Bytes().Head(0, 1).String("key").U32(9).U32(type).U64(count).Data(64),
                     "the file ends inside the metadata, in the value of \"key\"");
    }
  }
}

// Ollama #17042: small files that make the reader allocate gigabytes.
TEST(GgufHostile, MetadataIsNoAllocationBomb) {
  // Each array is refused at the first byte that is missing; nothing was reserved for its count.
  Bytes bytes;
  bytes.Head(0, 1).String("tokens").U32(9).U32(8).U64(8'000'000);
  bytes.text().resize(bytes.text().size() + 63'999'999);  // strings of length 0, one byte short
  EXPECT_REFUSED(bytes, "the file ends inside the metadata");
}

TEST(GgufHostile, NestedArraysAndUnknownTypes) {
  EXPECT_REFUSED(Bytes().Head(0, 1).String("k").U32(9).U32(9).U64(1).Data(64), "unknown type 9");
  EXPECT_REFUSED(Bytes().Head(0, 1).String("k").U32(13).Data(64), "unknown type 13");
  EXPECT_REFUSED(Bytes().Head(0, 1).String("k").U32(UINT32_MAX).Data(64), "unknown type");
  EXPECT_REFUSED(Bytes().Head(0, 1).String("k").U32(9).U32(99).U64(0).Data(64), "unknown type 99");
}

TEST(GgufHostile, KeysAndNames) {
  EXPECT_REFUSED(Bytes().Head(0, 1).KeyU32("", 1), "a metadata key of 0 bytes");
  EXPECT_REFUSED(Bytes().Head(0, 1).KeyU32(std::string(65536, 'k'), 1), "of 65536 bytes");
  EXPECT_REFUSED(Bytes().Head(0, 2).KeyU32("k", 1).KeyU32("k", 2), "\"k\" occurs twice");
  EXPECT_REFUSED(Bytes().Head(1, 0).Tensor("", {8}, 0, 0).Data(32), "its name has 0 bytes");
  EXPECT_REFUSED(Bytes().Head(1, 0).Tensor(std::string(64, 'n'), {8}, 0, 0).Data(32),
                 "its name has 64 bytes");
  EXPECT_REFUSED(Bytes().Head(2, 0).Tensor("t", {8}, 0, 0).Tensor("t", {8}, 0, 32).Data(64),
                 "tensor \"t\" occurs twice");
  // What is shown is escaped: a name cannot write to the terminal.
  EXPECT_REFUSED(Bytes().Head(1, 0).Tensor("\x1b[2J", {8}, 9, 0).Data(32), "\\u001b[2J");
}

// CVE-2026-7482 ("Bleeding Llama"): a tensor beyond the end of the file gave away the heap.
TEST(GgufHostile, TensorsLieInsideTheFile) {
  const char* kBeyond = "lies beyond the end of the file";
  EXPECT_REFUSED(Bytes().Head(1, 0).Tensor("t", {8}, 0, 0).Data(31), kBeyond);
  EXPECT_REFUSED(Bytes().Head(1, 0).Tensor("t", {8}, 0, 32).Data(32), kBeyond);
  EXPECT_REFUSED(Bytes().Head(1, 0).Tensor("t", {9}, 0, 0).Data(32), kBeyond);
  for (const uint64_t offset : {UINT64_MAX - 31, uint64_t{1} << 63, uint64_t{1} << 40}) {
    EXPECT_REFUSED(Bytes().Head(1, 0).Tensor("t", {8}, 0, offset).Data(32), kBeyond);
  }
  EXPECT_REFUSED(Bytes().Head(1, 0).Tensor("t", {8}, 0, 0), "the file ends inside the padding");
}

// CVE-2024-21802 (extents), CVE-2026-33298: a tensor of exabytes whose size wraps to a small one.
TEST(GgufHostile, TensorSizesDoNotWrap) {
  const uint64_t k32 = uint64_t{1} << 32;
  EXPECT_REFUSED(Bytes().Head(1, 0).Tensor("t", {k32, k32}, 0, 0).Data(32), "63 bits");
  EXPECT_REFUSED(Bytes().Head(1, 0).Tensor("t", {k32, k32, k32, k32}, 0, 0).Data(32), "63 bits");
  EXPECT_REFUSED(Bytes().Head(1, 0).Tensor("t", {uint64_t{1} << 62}, 0, 0).Data(32), "64 bits");
  EXPECT_REFUSED(Bytes().Head(1, 0).Tensor("t", {uint64_t{1} << 61}, 0, 0).Data(32),
                 "lies beyond the end");
  EXPECT_REFUSED(Bytes().Head(1, 0).Tensor("t", {32, uint64_t{1} << 57}, 8, 0).Data(34),
                 "beyond the end");
  EXPECT_REFUSED(Bytes().Head(1, 0).Tensor("t", {uint64_t{1} << 63}, 0, 0).Data(32),
                 "a dimension of -");
  EXPECT_REFUSED(Bytes().Head(1, 0).Tensor("t", {UINT64_MAX, UINT64_MAX}, 0, 0).Data(32),
                 "a dimension of -1");
  EXPECT_REFUSED(Bytes().Head(1, 0).Tensor("t", {8, 0}, 0, 0).Data(32), "a dimension of 0");
}

// CVE-2025-53630, CVE-2026-27940: the sum of padded tensor sizes wraps, and the buffer is small.
TEST(GgufHostile, SumsOfTensorSizesDoNotWrap) {
  Bytes bytes;
  bytes.Head(4, 0);
  for (int i = 0; i < 4; ++i) {
    bytes.Tensor(std::string(size_t(i) + 1, 't'), {uint64_t{1} << 60}, 0, uint64_t(i) << 62);
  }
  EXPECT_REFUSED(bytes.Data(64), "lies beyond the end");
}

// Many tensors that share bytes would make a small file a large model.
TEST(GgufHostile, TensorsDoNotOverlap) {
  EXPECT_REFUSED(Bytes().Head(2, 0).Tensor("a", {16}, 0, 0).Tensor("b", {8}, 0, 32).Data(64),
                 "\"b\" overlaps another");
  EXPECT_REFUSED(Bytes().Head(2, 0).Tensor("a", {8}, 0, 0).Tensor("b", {8}, 0, 0).Data(64),
                 "overlaps another");
  EXPECT_EQ(Bytes().Head(2, 0).Tensor("b", {8}, 0, 32).Tensor("a", {8}, 0, 0).Data(64).Refusal(),
            "");
}

// llama.cpp #24997 and #26318: alignment without a bound; padding that wraps.
TEST(GgufHostile, AlignmentIsAPowerOfTwoWithinBounds) {
  for (const uint32_t alignment : {0u, 1u, 4u, 24u, 33u, 1u << 22, 1u << 31, UINT32_MAX}) {
    EXPECT_REFUSED(
        Bytes().Head(1, 1).KeyU32("general.alignment", alignment).Tensor("t", {8}, 0, 0).Data(64),
        "it must be a power of two from 8 to 2097152");
  }
  EXPECT_EQ(Bytes()
                .Head(1, 1)
                .KeyU32("general.alignment", 64)
                .Tensor("t", {8}, 0, 0)
                .Data(64, 64)
                .Refusal(),
            "");
  EXPECT_REFUSED(Bytes().Head(0, 1).String("general.alignment").U32(10).U64(32), "32-bit unsigned");
  EXPECT_REFUSED(Bytes().Head(0, 1).String("general.alignment").U32(8).String("32"),
                 "32-bit unsigned");
  EXPECT_REFUSED(Bytes().Head(0, 1).String("general.alignment").U32(9).U32(4).U64(0),
                 "32-bit unsigned");
  EXPECT_REFUSED(Bytes().Head(1, 0).Tensor("t", {8}, 0, 8).Data(64), "unaligned offset");
}

TEST(GgufHostile, RanksTypesAndBlocks) {
  EXPECT_REFUSED(Bytes().Head(1, 0).Tensor("t", {1, 1, 1, 1, 1}, 0, 0).Data(32),
                 "has 5 dimensions");
  EXPECT_REFUSED(Bytes().Head(1, 0).String("t").U32(UINT32_MAX).Data(64), "dimensions (at most 4");
  EXPECT_REFUSED(Bytes().Head(1, 0).Tensor("blk.0.w", {256}, 41, 0).Data(512),
                 "tensor \"blk.0.w\" has type Q1_0 (41), which is not supported");
  EXPECT_EQ(Bytes().Head(1, 0).Tensor("t", {64, 3}, 40, 0).Data(108).Refusal(), "");
  EXPECT_REFUSED(Bytes().Head(1, 0).Tensor("t", {64, 3}, 40, 0).Data(107), "truncated");
  EXPECT_REFUSED(Bytes().Head(1, 0).Tensor("t", {32, 4}, 40, 0).Data(512),
                 "do not divide into blocks of nvfp4");
  EXPECT_REFUSED(Bytes().Head(1, 0).Tensor("t", {64, uint64_t{1} << 56}, 40, 0).Data(512),
                 "beyond the end of the file");
  EXPECT_REFUSED(Bytes().Head(1, 0).Tensor("t", {256}, 4000, 0).Data(512), "type unknown (4000)");
  EXPECT_REFUSED(Bytes().Head(1, 0).Tensor("t", {256}, 0xFFFFFFFF, 0).Data(512),
                 "is not supported");
  EXPECT_REFUSED(Bytes().Head(1, 0).Tensor("t", {255}, 12, 0).Data(512),
                 "do not divide into blocks of q4_k");
  EXPECT_REFUSED(Bytes().Head(1, 0).Tensor("t", {}, 8, 0).Data(512), "do not divide into blocks");
}

// CVE-2024-32878: clean-up after an early error. Every prefix and many damaged copies of a good
// file: an answer, never a crash. (Sanitizers watch.)
TEST(GgufHostile, TruncatedAndDamagedFiles) {
  Bytes good;
  good.Head(2, 3).KeyU32("general.alignment", 32).String("s").U32(8).String("text");
  good.String("a").U32(9).U32(8).U64(2).String("x").String("yz");
  good.Tensor("t", {32, 2}, 8, 0).Tensor("u", {3}, 0, 96).Data(96 + 12);
  ASSERT_EQ(good.Refusal(), "");
  for (size_t size = 0; size < good.text().size(); ++size) {
    Bytes cut = good;
    cut.text().resize(size);
    EXPECT_NE(cut.Refusal(), "") << size;
  }
  Rng rng(1);
  for (int i = 0; i < 20000; ++i) {
    Bytes damaged = good;
    for (uint64_t flips = 1 + rng.Below(3); flips > 0; --flips) {
      damaged.text()[rng.Below(damaged.text().size())] = char(rng.Next());
    }
    (void)damaged.Refusal();
  }
}

}  // namespace
}  // namespace reprise
