// SPDX-License-Identifier: Apache-2.0
// Proves that files are read whole, replaced atomically, and refused with a sentence.
#include "base/mapped_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

namespace reprise {
namespace {

std::string TestPath(const char* name) { return testing::TempDir() + "/reprise_" + name; }

Status Write(const std::string& path, std::string_view text) {
  return WriteFileAtomically(path, std::as_bytes(std::span(text)));
}

TEST(MappedFile, ReadsWhatWasWritten) {
  const std::string path = TestPath("mapped");
  ASSERT_TRUE(Write(path, "hello").ok());
  auto file = MappedFile::Open(path);
  ASSERT_TRUE(file.ok());
  MappedFile moved = std::move(*file);
  EXPECT_EQ(std::memcmp(moved.bytes().data(), "hello", 5), 0);
  moved.Release(0, 5);
  EXPECT_EQ(std::memcmp(moved.bytes().data(), "hello", 5), 0);
  EXPECT_EQ(*ReadFile(path, 5), "hello");
  EXPECT_EQ(ReadFile(path, 4).status().code(), StatusCode::kResourceExhausted);
  ASSERT_TRUE(Write(path, "other").ok());
  EXPECT_EQ(*ReadFile(path, 5), "other");
  EXPECT_FALSE(std::filesystem::exists(path + ".partial"));
}

TEST(MappedFile, RefusesWhatIsNotAFile) {
  EXPECT_EQ(MappedFile::Open("/nonexistent/x").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(MappedFile::Open(testing::TempDir()).status().code(), StatusCode::kInvalidArgument);
  const std::string path = TestPath("empty");
  ASSERT_TRUE(Write(path, "").ok());
  EXPECT_EQ(MappedFile::Open(path).status().code(), StatusCode::kDataLoss);
}

}  // namespace
}  // namespace reprise
