// SPDX-License-Identifier: Apache-2.0
// Proves that a file that cannot be finished, for whatever reason, gives one sentence and leaves
// nothing behind.
#include "weights/format/tensor_stream.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>

namespace reprise {
namespace {

namespace fs = std::filesystem;

class TensorStreamTest : public testing::Test {
 protected:
  TensorStreamTest() : folder_(fs::path(testing::TempDir()) / "tensor_stream_test") {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~TensorStreamTest() override { fs::remove_all(folder_); }
  bool FolderIsEmpty() const { return fs::is_empty(folder_); }

  const fs::path folder_;
};

// A disk that takes no more, as the kernel reports it for a file size limit.
TEST_F(TensorStreamTest, AFullDisk) {
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 1 << 20;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  Status status;
  {
    Result<TensorStream> stream = TensorStream::Create(folder_ / "x", {}, {4 << 20}, 32);
    ASSERT_TRUE(stream.ok());
    const std::vector<std::byte> data(4 << 20);
    status = stream->Append(data);
  }
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_NE(status.message().find("cannot write "), std::string::npos) << status.message();
  EXPECT_TRUE(FolderIsEmpty());
}

TEST_F(TensorStreamTest, ATargetThatCannotBeReplaced) {
  fs::create_directories(folder_ / "x" / "full");
  {
    Result<TensorStream> stream = TensorStream::Create(folder_ / "x", {}, {}, 32);
    ASSERT_TRUE(stream.ok());
    EXPECT_FALSE(stream->Finish().ok());
  }
  EXPECT_FALSE(fs::exists(folder_ / "x.partial"));
}

TEST_F(TensorStreamTest, ReplacesAnOlderFile) {
  std::ofstream(folder_ / "x") << "older and longer than the new one";
  Result<TensorStream> stream = TensorStream::Create(folder_ / "x", {}, {0, 3, 0}, 8);
  ASSERT_TRUE(stream.ok());
  const std::vector<std::byte> data(3, std::byte{7});
  ASSERT_TRUE(stream->Append(data).ok());
  ASSERT_TRUE(stream->Finish().ok());
  EXPECT_EQ(fs::file_size(folder_ / "x"), 8u);
}

}  // namespace
}  // namespace reprise
