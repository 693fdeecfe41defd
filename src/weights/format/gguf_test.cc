// SPDX-License-Identifier: Apache-2.0
// Proves that we read what llama.cpp's own writer writes (tests/data,
// tools/make_format_fixtures.py) and that what our writer writes comes back, through pieces of any
// size.
#include "weights/format/gguf.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "base/mapped_file.h"
#include "weights/format/gguf_writer.h"

namespace reprise {
namespace {

std::vector<std::string_view> Strings(const GgufFile& file, std::string_view key) {
  std::vector<std::string_view> strings;
  for (const std::string_view text : file.Find(key)->strings()) strings.push_back(text);
  return strings;
}

TEST(Gguf, ReadsEveryMetadataType) {
  const MappedFile map = MappedFile::Open("tests/data/tiny.gguf").value();
  const Result<GgufFile> file = GgufFile::Parse(map.bytes());
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->version(), 3u);
  EXPECT_EQ(file->entries().size(), 18u);
  EXPECT_EQ(file->Find("t.u8")->IntAt(0), 200);
  EXPECT_EQ(file->Find("t.i8")->IntAt(0), -100);
  EXPECT_EQ(file->Find("t.u16")->IntAt(0), 60000);
  EXPECT_EQ(file->Find("t.i16")->IntAt(0), -30000);
  EXPECT_EQ(file->Find("t.u32")->IntAt(0), 4000000000);
  EXPECT_EQ(file->Find("t.i32")->IntAt(0), -2000000000);
  EXPECT_EQ(file->Find("t.i64")->IntAt(0), -(int64_t{1} << 60));
  EXPECT_EQ(file->Find("t.u64")->IntAt(0), std::nullopt);  // does not fit
  EXPECT_EQ(file->Find("t.u64")->NumberAt(0), 0x1p63);
  EXPECT_EQ(file->Find("t.f32")->NumberAt(0), 0.5);
  EXPECT_EQ(file->Find("t.f32")->IntAt(0), std::nullopt);
  EXPECT_EQ(file->Find("t.f64")->NumberAt(0), 1e300);
  EXPECT_EQ(file->Find("t.bool")->BoolAt(0), true);
  EXPECT_EQ(file->Find("t.bool")->IntAt(0), std::nullopt);
  EXPECT_EQ(Strings(*file, "t.string")[0], "grüße");
  EXPECT_EQ(file->Find("t.ints")->size(), 3u);
  EXPECT_EQ(file->Find("t.ints")->IntAt(1), -1);
  EXPECT_EQ(file->Find("t.floats")->NumberAt(1), -2.0);
  EXPECT_EQ(file->Find("t.bools")->BoolAt(1), false);
  EXPECT_EQ(Strings(*file, "t.strings"), (std::vector<std::string_view>{"a", "", "Ġthe", "漢字"}));
  EXPECT_EQ(file->Find("t.none"), nullptr);
}

TEST(Gguf, ReadsEveryTensorType) {
  const MappedFile map = MappedFile::Open("tests/data/tiny.gguf").value();
  const Result<GgufFile> file = GgufFile::Parse(map.bytes());
  ASSERT_TRUE(file.ok()) << file.status().message();
  ASSERT_EQ(file->tensors().size(), size_t{kDTypeCount - 1});  // all but i32
  for (size_t i = 0; i < file->tensors().size(); ++i) {
    const StoredTensor& tensor = file->tensors()[i];
    SCOPED_TRACE(tensor.name);
    EXPECT_EQ(tensor.name, std::string(NameOf(tensor.dtype)) + ".weight");
    EXPECT_EQ(tensor.shape, (Shape{2, 256}));
    ASSERT_EQ(tensor.bytes.size(), 2 * RowBytes(tensor.dtype, 256));
    for (size_t j = 0; j < tensor.bytes.size(); ++j) {
      ASSERT_EQ(static_cast<size_t>(tensor.bytes[j]), (31 * i + 7 * j) % 251);
    }
  }
}

class GgufWriterTest : public testing::Test {
 protected:
  GgufWriterTest() : path_(testing::TempDir() + "writer_test.gguf") {}
  ~GgufWriterTest() override { std::remove(path_.c_str()); }
  const std::string path_;
};

TEST_F(GgufWriterTest, WhatIsWrittenIsRead) {
  GgufWriter writer;
  writer.PutString("general.architecture", "llama");
  writer.Put<uint32_t>("a.u32", 7);
  writer.Put<float>("a.f32", 0.25f);
  writer.Put<bool>("a.bool", true);
  writer.Put<int64_t>("a.i64", -5);
  writer.Put<uint16_t>("a.u16", 9);
  const std::vector<int32_t> kinds = {1, 3, 6};
  writer.PutArray<int32_t>("a.kinds", kinds);
  const std::vector<std::string_view> tokens = {"x", "", "yz"};
  writer.PutStrings("a.tokens", tokens);
  writer.PutStrings("a.none", {});
  ASSERT_TRUE(writer.AddTensor("first", DType::kF32, {3}).ok());  // 12 bytes and 20 of padding
  ASSERT_TRUE(writer.AddTensor("second", DType::kQ8_0, {2, 3, 32}).ok());
  EXPECT_EQ(writer.tensor_bytes(), 32u + 224u);
  ASSERT_TRUE(writer.Open(path_).ok());
  std::string data;
  for (int i = 0; i < 12 + 204; ++i) data += char(i);
  const auto bytes = std::as_bytes(std::span(data));
  for (size_t at = 0; at < bytes.size(); at += 5) {  // pieces that cross the boundary
    ASSERT_TRUE(writer.Append(bytes.subspan(at, std::min<size_t>(5, bytes.size() - at))).ok());
  }
  EXPECT_FALSE(MappedFile::Open(path_).ok());  // not before it is whole
  ASSERT_TRUE(writer.Finish().ok());

  const MappedFile map = MappedFile::Open(path_).value();
  const Result<GgufFile> file = GgufFile::Parse(map.bytes());
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(Strings(*file, "general.architecture")[0], "llama");
  EXPECT_EQ(file->Find("a.u32")->IntAt(0), 7);
  EXPECT_EQ(file->Find("a.u16")->type(), GgufType::kU16);
  EXPECT_EQ(file->Find("a.f32")->NumberAt(0), 0.25);
  EXPECT_EQ(file->Find("a.bool")->BoolAt(0), true);
  EXPECT_EQ(file->Find("a.i64")->IntAt(0), -5);
  EXPECT_EQ(file->Find("a.kinds")->IntAt(2), 6);
  EXPECT_EQ(Strings(*file, "a.tokens"), tokens);
  EXPECT_EQ(file->Find("a.none")->size(), 0u);
  ASSERT_EQ(file->tensors().size(), 2u);
  EXPECT_EQ(file->tensors()[1].shape, (Shape{2, 3, 32}));
  std::string back;
  for (const StoredTensor& tensor : file->tensors()) {
    back.append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
  }
  EXPECT_EQ(back, data);
}

TEST_F(GgufWriterTest, CopiesValuesOfAnotherFile) {
  const MappedFile source_map = MappedFile::Open("tests/data/tiny.gguf").value();
  const Result<GgufFile> source = GgufFile::Parse(source_map.bytes());
  GgufWriter writer;
  for (const GgufFile::Entry& entry : source->entries()) writer.PutValue(entry.key, entry.value);
  ASSERT_TRUE(writer.Open(path_).ok());
  ASSERT_TRUE(writer.Finish().ok());
  const MappedFile map = MappedFile::Open(path_).value();
  const Result<GgufFile> file = GgufFile::Parse(map.bytes());
  ASSERT_TRUE(file.ok()) << file.status().message();
  ASSERT_EQ(file->entries().size(), source->entries().size());
  for (const GgufFile::Entry& entry : source->entries()) {
    const GgufValue* value = file->Find(entry.key);
    ASSERT_NE(value, nullptr);
    EXPECT_EQ(value->type(), entry.value.type());
    EXPECT_EQ(value->is_array(), entry.value.is_array());
    EXPECT_TRUE(std::equal(value->bytes().begin(), value->bytes().end(),
                           entry.value.bytes().begin(), entry.value.bytes().end()));
  }
}

TEST_F(GgufWriterTest, RefusesWhatTheFormatCannotHold) {
  GgufWriter writer;
  EXPECT_FALSE(writer.AddTensor(std::string(64, 'n'), DType::kF32, {1}).ok());
  EXPECT_FALSE(writer.AddTensor("", DType::kF32, {1}).ok());
  EXPECT_FALSE(writer.AddTensor("five", DType::kF32, {1, 1, 1, 1, 1}).ok());
  EXPECT_FALSE(writer.AddTensor("blocks", DType::kQ8_0, {2, 33}).ok());
  EXPECT_FALSE(writer.AddTensor("empty", DType::kF32, {0, 4}).ok());
  EXPECT_TRUE(writer.AddTensor("twice", DType::kF32, {1}).ok());
  EXPECT_FALSE(writer.AddTensor("twice", DType::kF32, {1}).ok());
}

TEST_F(GgufWriterTest, AnUnfinishedFileLeavesNothing) {
  {
    GgufWriter writer;
    ASSERT_TRUE(writer.AddTensor("a", DType::kF32, {4}).ok());
    ASSERT_TRUE(writer.Open(path_).ok());
  }
  EXPECT_FALSE(MappedFile::Open(path_).ok());
  EXPECT_FALSE(MappedFile::Open(path_ + ".partial").ok());
  GgufWriter elsewhere;
  EXPECT_FALSE(elsewhere.Open("/nonexistent/folder/x.gguf").ok());
}

}  // namespace
}  // namespace reprise
