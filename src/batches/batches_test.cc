// SPDX-License-Identifier: Apache-2.0
// Forms, files and records of batches, without a server; tests/clients/batches_test.py has one.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "batches/batch.h"
#include "batches/file_store.h"
#include "batches/multipart.h"

namespace reprise::batches {
namespace {

namespace fs = std::filesystem;

constexpr char kType[] = "multipart/form-data; boundary=\"x y\"";

TEST(Multipart, PartsAsClientsSendThem) {
  const std::string body =
      "--x y\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n"
      "--x y\r\ncontent-type: text/plain\r\n"
      "content-disposition: form-data; name=file; filename=\"a;\\\"b.jsonl\"\r\n\r\n"
      "one\r\n--x\r\ntwo\r\n--x y--\r\n";
  const auto parts = ParseMultipart(kType, body);
  ASSERT_TRUE(parts.ok()) << parts.status().message();
  ASSERT_EQ(parts->size(), 2u);
  EXPECT_EQ((*parts)[0].name, "purpose");
  EXPECT_EQ((*parts)[0].content, "batch");
  EXPECT_EQ((*parts)[1].name, "file");
  EXPECT_EQ((*parts)[1].file_name, "a;\"b.jsonl");
  EXPECT_EQ((*parts)[1].content, "one\r\n--x\r\ntwo");
}

TEST(Multipart, EveryCutIsRefusedOrShort) {
  const std::string body =
      "--x y\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nabc\r\n--x y--";
  for (size_t end = 0; end < body.size(); ++end) {
    EXPECT_FALSE(ParseMultipart(kType, body.substr(0, end)).ok()) << end;
  }
  EXPECT_TRUE(ParseMultipart(kType, body).ok());
  EXPECT_FALSE(ParseMultipart("application/json", body).ok());
  EXPECT_FALSE(ParseMultipart("multipart/form-data", body).ok());
  std::string many;
  for (int i = 0; i < 20; ++i) {
    many += "--x y\r\nContent-Disposition: form-data; name=a\r\n\r\n\r\n";
  }
  EXPECT_FALSE(ParseMultipart(kType, many + "--x y--").ok());
}

TEST(FileStore, KeepsFilesOfEachTenantOverARestart) {
  const std::string folder = testing::TempDir() + "/reprise_files";
  fs::remove_all(folder);
  std::string id;
  {
    auto store = FileStore::Open(folder, 100);
    ASSERT_TRUE(store.ok());
    const auto added = (*store)->Add({.tenant = "a", .name = "../x", .purpose = "batch"}, "hello");
    ASSERT_TRUE(added.ok());
    id = added->id;
    EXPECT_FALSE((*store)->Add({.tenant = "a"}, std::string(96, 'x')).ok());
    EXPECT_FALSE((*store)->Find("b", id));
    EXPECT_FALSE((*store)->Remove("b", id));
  }
  // What a crash left: a description that was cut, and a content without one.
  std::ofstream(folder + "/file-1.json") << "{\"id\": \"file-1\"";
  std::ofstream(folder + "/file-1") << "half";
  std::ofstream(folder + "/file-2") << "half";
  auto store = FileStore::Open(folder, 100);
  ASSERT_TRUE(store.ok());
  ASSERT_EQ((*store)->List("a").size(), 1u);
  const auto file = (*store)->Find("a", id);
  ASSERT_TRUE(file);
  EXPECT_EQ(file->name, "../x");
  EXPECT_EQ(*(*store)->Read(*file), "hello");
  EXPECT_FALSE(fs::exists(folder + "/file-1"));
  EXPECT_FALSE(fs::exists(folder + "/file-2"));
  EXPECT_TRUE((*store)->Remove("a", id));
  EXPECT_TRUE((*store)->Add({.tenant = "a"}, std::string(96, 'x')).ok());  // its room is free
}

TEST(Batch, ARecordIsReadAsItWasWritten) {
  Batch batch;
  batch.id = "batch_1";
  batch.tenant = "a";
  batch.endpoint = "/v1/chat/completions";
  batch.input_file_id = "file-1";
  batch.output_file_id = "file-2";
  batch.status = "failed";
  batch.error = "a line is wrong";
  batch.error_line = 3;
  batch.metadata = R"({"a":"b"})";
  batch.ended_at = 7;
  batch.total = 5;
  batch.completed = 2;
  const std::string text = FormatRecord(batch);
  const auto read = ParseRecord(text);
  ASSERT_TRUE(read.ok()) << text;
  EXPECT_EQ(FormatRecord(*read), text);
  for (size_t end = 0; end < text.size(); ++end)
    EXPECT_FALSE(ParseRecord(text.substr(0, end)).ok());
}

TEST(Batch, LinesAreRefusedByWhatIsWrong) {
  const auto refused = [](const std::string& line) {
    const auto read = ParseLine(line, "/v1/completions");
    return read.ok() ? "" : read.status().message();
  };
  const std::string good = R"({"custom_id":"a","method":"POST","url":"/v1/completions","body":{}})";
  EXPECT_EQ(refused(good), "");
  EXPECT_NE(refused("[]").find("object"), std::string::npos);
  EXPECT_NE(refused(R"({"custom_id":"","method":"POST"})").find("custom_id"), std::string::npos);
  EXPECT_NE(refused(R"({"custom_id":"a","method":"GET"})").find("method"), std::string::npos);
  EXPECT_NE(refused(R"({"custom_id":"a","method":"POST","url":"/x"})").find("url"),
            std::string::npos);
  const std::string stream =
      R"({"custom_id":"a","method":"POST","url":"/v1/completions","body":{"stream":true}})";
  EXPECT_NE(refused(stream).find("stream"), std::string::npos);
}

}  // namespace
}  // namespace reprise::batches
