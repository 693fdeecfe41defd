// SPDX-License-Identifier: Apache-2.0
// Proves that we read what Hugging Face's library writes (tests/data/tiny.safetensors), that our
// writer's files come back, and that hostile headers are refused with one sentence.
#include "weights/format/safetensors.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "base/mapped_file.h"

namespace reprise {
namespace {

std::string File(const std::string& header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string text(reinterpret_cast<const char*>(&length), sizeof length);
  return text + header + std::string(data_bytes, '\0');
}

std::string Refusal(const std::string& text) {
  const Result<SafetensorsFile> file = SafetensorsFile::Parse(std::as_bytes(std::span(text)));
  return file.ok() ? "" : file.status().message();
}

std::string Entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
         ",\"data_offsets\":" + offsets + "}";
}

#define EXPECT_REFUSED(text, sentence) \
  EXPECT_NE(Refusal(text).find(sentence), std::string::npos) << Refusal(text)

TEST(Safetensors, ReadsWhatTheLibraryWrites) {
  const MappedFile map = MappedFile::Open("tests/data/tiny.safetensors").value();
  const Result<SafetensorsFile> file = SafetensorsFile::Parse(map.bytes());
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->tensors().size(), 5u);
  EXPECT_EQ(file->foreign().size(), 2u);
  const StoredTensor* weight = file->Find("a.weight");
  ASSERT_NE(weight, nullptr);
  EXPECT_EQ(weight->shape, (Shape{2, 3}));
  float value;
  std::memcpy(&value, weight->bytes.data() + 20, 4);
  EXPECT_EQ(value, 1.25f);
  EXPECT_EQ(file->Find("b.half")->dtype, DType::kF16);
  EXPECT_EQ(file->Find("scalar")->shape.rank(), 0);
  EXPECT_EQ(file->Find("empty")->shape, (Shape{0, 4}));
  EXPECT_TRUE(file->Find("empty")->bytes.empty());
  EXPECT_EQ(*file->ReadIds("tokens"), (std::vector<int32_t>{1, 2, 300}));
  EXPECT_EQ(*file->ReadIds("tokens64"), (std::vector<int32_t>{7, 8}));
  EXPECT_EQ(file->ReadIds("mask").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(file->ReadIds("a.weight").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(file->ReadIds("none").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(file->FindMetadata("note"), "grüße");
  EXPECT_EQ(file->FindMetadata("none"), std::nullopt);
}

TEST(Safetensors, WhatIsWrittenIsRead) {
  const std::string path = testing::TempDir() + "safetensors_test.safetensors";
  SafetensorsWriter writer;
  writer.PutMetadata("made by", "a \"test\"");
  writer.AddTensor("logits", DType::kF32, {2, 3});
  writer.AddTensor("none", DType::kBF16, {0});
  writer.AddTensor("tokens", DType::kI32, {2});
  ASSERT_TRUE(writer.Open(path).ok());
  const float logits[6] = {1, 2, 3, 4, 5, 6};
  const int32_t tokens[2] = {7, -8};
  ASSERT_TRUE(writer.Append(std::as_bytes(std::span(logits)).first(7)).ok());
  ASSERT_TRUE(writer.Append(std::as_bytes(std::span(logits)).subspan(7)).ok());
  ASSERT_TRUE(writer.Append(std::as_bytes(std::span(tokens))).ok());
  ASSERT_TRUE(writer.Finish().ok());
  const MappedFile map = MappedFile::Open(path).value();
  std::remove(path.c_str());
  const Result<SafetensorsFile> file = SafetensorsFile::Parse(map.bytes());
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(std::memcmp(file->Find("logits")->bytes.data(), logits, sizeof logits), 0);
  EXPECT_EQ(*file->ReadIds("tokens"), (std::vector<int32_t>{7, -8}));
  EXPECT_EQ(file->Find("none")->dtype, DType::kBF16);
  EXPECT_EQ(file->FindMetadata("made by"), "a \"test\"");
}

TEST(Safetensors, AFileWithoutTensors) {
  EXPECT_EQ(Refusal(File("{}", 0)), "");
  EXPECT_EQ(Refusal(File("{}      ", 0)), "");
}

TEST(Safetensors, HeaderLengthIsBoundedByTheFile) {
  EXPECT_REFUSED("", "too short");
  EXPECT_REFUSED("1234567", "too short");
  EXPECT_REFUSED(File("{}", 0).substr(0, 9), "the header claims 2 bytes");
  for (const uint64_t length : {UINT64_MAX, uint64_t{1} << 63, uint64_t{100'000'001}}) {
    std::string text = File("{}", 100);
    std::memcpy(text.data(), &length, sizeof length);
    EXPECT_REFUSED(text, "the header claims");
  }
  EXPECT_REFUSED(File("", 8), "no JSON header");
  EXPECT_REFUSED(File("[]", 0), "no JSON header");
  EXPECT_REFUSED(File(" {}", 0), "no JSON header");
  EXPECT_REFUSED(File("{", 0), "the header is damaged");
  EXPECT_REFUSED(File("{\"a\":" + std::string(100000, '['), 0), "the header is damaged");
}

TEST(Safetensors, OffsetsCoverTheDataOnce) {
  const std::string a = Entry("a", "F32", "[2]", "[0,8]");
  EXPECT_EQ(Refusal(File("{" + a + "," + Entry("b", "F32", "[1]", "[8,12]") + "}", 12)), "");
  EXPECT_EQ(Refusal(File("{" + Entry("b", "F32", "[1]", "[8,12]") + "," + a + "}", 12)), "");
  EXPECT_REFUSED(File("{" + a + "," + Entry("b", "F32", "[1]", "[4,8]") + "}", 12), "overlaps");
  EXPECT_REFUSED(File("{" + a + "," + Entry("b", "F32", "[1]", "[12,16]") + "}", 16),
                 "leaves a hole");
  EXPECT_REFUSED(File("{" + a + "}", 7), "beyond the end of the file");
  EXPECT_REFUSED(File("{" + a + "}", 9), "bytes after the last tensor");
  EXPECT_REFUSED(File("{}", 1), "bytes after the last tensor");
  EXPECT_REFUSED(File("{" + Entry("b", "F32", "[1]", "[4,8]") + "}", 8), "leaves a hole");
  EXPECT_REFUSED(File("{" + Entry("a", "F32", "[0]", "[5,5]") + "}", 0), "leaves a hole");
}

TEST(Safetensors, SizesAreThoseOfTheShape) {
  const char* kBytes = "does not have the bytes that its shape needs";
  EXPECT_REFUSED(File("{" + Entry("a", "F32", "[2]", "[0,4]") + "}", 4), kBytes);
  EXPECT_REFUSED(File("{" + Entry("a", "F32", "[2305843009213693953]", "[0,4]") + "}", 4), kBytes);
  EXPECT_REFUSED(File("{" + Entry("a", "F4", "[3]", "[0,1]") + "}", 1), kBytes);
  EXPECT_EQ(Refusal(File("{" + Entry("a", "F4", "[4]", "[0,2]") + "}", 2)), "");
  EXPECT_REFUSED(File("{" + Entry("a", "F32", "[4294967296,4294967296]", "[0,0]") + "}", 0),
                 "impossible shape");
  EXPECT_REFUSED(File("{" + Entry("a", "F32", "[0,4294967296,4294967296]", "[0,0]") + "}", 0),
                 "impossible shape");
  EXPECT_REFUSED(File("{" + Entry("a", "F32", "[-1]", "[0,4]") + "}", 4), "impossible shape");
  EXPECT_REFUSED(File("{" + Entry("a", "F32", "[1.5]", "[0,4]") + "}", 4), "not an integer");
  EXPECT_REFUSED(File("{" + Entry("a", "F32", "[18446744073709551617]", "[0,4]") + "}", 4),
                 "not an integer");
  EXPECT_REFUSED(File("{" + Entry("a", "F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]") + "}", 4),
                 "too many dimensions");
  EXPECT_REFUSED(File("{" + Entry("a", "F32", "[1]", "[4,0]") + "}", 4), "offsets out of order");
  EXPECT_REFUSED(File("{" + Entry("a", "F32", "[1]", "[-4,0]") + "}", 4), "offsets out of order");
  EXPECT_REFUSED(File("{" + Entry("a", "F32", "[1]", "[0,4,8]") + "}", 4), "no data_offsets");
  EXPECT_REFUSED(File("{" + Entry("a", "F32", "[1]", "null") + "}", 4), "no data_offsets");
  EXPECT_REFUSED(File("{" + Entry("a", "F99", "[1]", "[0,4]") + "}", 4), "unknown type \"F99\"");
}

TEST(Safetensors, EntriesAndMetadataHaveTheirForm) {
  EXPECT_REFUSED(File("{\"a\":1}", 0), "is not described by an object");
  EXPECT_REFUSED(File("{\"a\":{}}", 0), "has no dtype");
  EXPECT_REFUSED(File("{\"a\":{\"dtype\":\"F32\"}}", 0), "has no shape");
  EXPECT_REFUSED(File("{\"__metadata__\":1}", 0), "is not an object");
  EXPECT_REFUSED(File("{\"__metadata__\":{\"a\":1}}", 0), "not a string");
  EXPECT_REFUSED(File("{\"a\":{},\"a\":{}}", 0), "duplicate");
}

TEST(Safetensors, IdsBeyond32Bits) {
  std::string text = File("{" + Entry("t", "I64", "[1]", "[0,8]") + "}", 8);
  text[text.size() - 2] = 1;
  const Result<SafetensorsFile> file = SafetensorsFile::Parse(std::as_bytes(std::span(text)));
  ASSERT_TRUE(file.ok());
  EXPECT_NE(file->ReadIds("t").status().message().find("which is not a token id"),
            std::string::npos);
}

}  // namespace
}  // namespace reprise
