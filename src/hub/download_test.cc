// SPDX-License-Identifier: Apache-2.0
// One file from a server on this machine: who sees the token, and what may become a blob. Random
// faults: tests/hub/.
#include "hub/download.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "hub/cache/digest.h"

namespace reprise::hub {
namespace {

namespace fs = std::filesystem;

// Answers each request (its head) with what `answer` gives, and closes the connection.
class Server {
 public:
  explicit Server(std::function<std::string(const std::string& request)> answer)
      : answer_(std::move(answer)), fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    CHECK(::bind(fd_, reinterpret_cast<sockaddr*>(&address), size) == 0 && ::listen(fd_, 8) == 0);
    ::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size);
    url_ = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    thread_ = std::thread([this] { Run(); });
  }
  ~Server() {
    ::shutdown(fd_, SHUT_RDWR);
    thread_.join();
    ::close(fd_);
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  const std::string& url() const { return url_; }
  const std::vector<std::string>& requests() const { return requests_; }

 private:
  void Run() {
    for (int fd; (fd = ::accept(fd_, nullptr, nullptr)) >= 0; ::close(fd)) {
      std::string request;
      char bytes[4096];
      while (request.find("\r\n\r\n") == std::string::npos) {
        const ssize_t count = ::recv(fd, bytes, sizeof bytes, 0);
        if (count <= 0) break;
        request.append(bytes, static_cast<size_t>(count));
      }
      requests_.push_back(request);
      const std::string text = answer_(request);
      ::send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    }
  }

  const std::function<std::string(const std::string&)> answer_;
  const int fd_;
  std::string url_;
  std::vector<std::string> requests_;  // read when nothing is asked any more
  std::thread thread_;
};

std::string Answer(int status, const std::string& headers, const std::string& body = "") {
  return "HTTP/1.1 " + std::to_string(status) + " X\r\n" + headers +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

const std::string kText = "the weights of a model, of which more would be here";

class DownloadTest : public testing::Test {
 protected:
  DownloadTest() {
    const char* base = std::getenv("TEST_TMPDIR");
    path_ = (base == nullptr ? fs::temp_directory_path().string() : base) + "/hub_download";
    fs::remove_all(path_);
    Digest digest(std::string(64, '0'), kText.size());
    digest.Add(kText);
    file_ = {"m.gguf", kText.size(), digest.Finish()};
  }

  std::string blob() const { return CacheFolder(path_).BlobPath("org/repo", file_.digest); }

  Status Run(const std::string& url) {
    Settings settings;
    settings.endpoint = *Url::Parse(url);
    settings.token = "hf_secret";
    settings.retries = 1;
    settings.retry_pause_ms = 1;
    settings.http.environment = [](const char*) { return ""; };
    const CacheFolder cache(path_);
    const ModelName name{"org/repo", "main", ""};
    return DownloadFile({settings, cache, name, std::string(40, '1'),
                         [this](const std::string& line) { said_ += line + "\n"; }, nullptr},
                        file_);
  }

  static std::string ReadText(const std::string& path) {
    std::ifstream in(path);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  std::string path_;
  HubFile file_;
  std::string said_;
};

TEST_F(DownloadTest, TheTokenDoesNotFollowARedirectToAnotherOrigin) {
  Server storage([](const std::string&) { return Answer(200, "", kText); });
  Server hub([&](const std::string& request) {
    return request.find("/org/repo/") != std::string::npos
               ? Answer(307, "Location: /moved\r\n")
               : Answer(302, "Location: " + storage.url() + "/x\r\n");
  });
  ASSERT_TRUE(Run(hub.url()).ok());
  EXPECT_EQ(ReadText(blob()), kText);
  ASSERT_EQ(hub.requests().size(), 2u);
  for (const std::string& request : hub.requests()) {
    EXPECT_NE(request.find("Authorization: Bearer hf_secret"), std::string::npos);
  }
  ASSERT_EQ(storage.requests().size(), 1u);
  EXPECT_EQ(storage.requests()[0].find("uthorization"), std::string::npos);
}

TEST_F(DownloadTest, WhatHasAnotherDigestIsNoBlob) {
  std::string wrong = kText;
  wrong[7] ^= 1;
  Server hub([&](const std::string&) { return Answer(200, "", wrong); });
  EXPECT_EQ(Run(hub.url()).code(), StatusCode::kDataLoss);
  EXPECT_FALSE(fs::exists(blob()));
  EXPECT_FALSE(fs::exists(CacheFolder(path_).SnapshotPath("org/repo", std::string(40, '1'))));
}

TEST_F(DownloadTest, ContinuesAtTheByteThatWasReached) {
  fs::create_directories(fs::path(blob()).parent_path());
  std::ofstream(blob() + ".incomplete") << kText.substr(0, 10);
  Server hub([&](const std::string&) {
    return Answer(206,
                  "Content-Range: bytes 10-" + std::to_string(kText.size() - 1) + "/" +
                      std::to_string(kText.size()) + "\r\n",
                  kText.substr(10));
  });
  ASSERT_TRUE(Run(hub.url()).ok());
  EXPECT_NE(hub.requests()[0].find("Range: bytes=10-\r\n"), std::string::npos);
  EXPECT_EQ(ReadText(blob()), kText);
  EXPECT_FALSE(fs::exists(blob() + ".incomplete"));
}

TEST_F(DownloadTest, APartOfAnotherPlaceIsNotAppended) {
  fs::create_directories(fs::path(blob()).parent_path());
  std::ofstream(blob() + ".incomplete") << kText.substr(0, 10);
  int asked = 0;
  const std::string size = std::to_string(kText.size());
  Server hub([&](const std::string&) {
    if (asked++ > 0) return Answer(200, "", kText);
    return Answer(
        206, "Content-Range: bytes 9-" + std::to_string(kText.size() - 1) + "/" + size + "\r\n",
        kText.substr(10));
  });
  ASSERT_TRUE(Run(hub.url()).ok());
  ASSERT_EQ(asked, 2);
  // The lie was seen in the head, before a byte of it was kept.
  EXPECT_NE(said_.find("another part of the file came"), std::string::npos) << said_;
  EXPECT_EQ(hub.requests()[1].find("Range:"), std::string::npos);
}

TEST_F(DownloadTest, WhatAnEarlierAttemptLeftDamagedIsFetchedAgain) {
  fs::create_directories(fs::path(blob()).parent_path());
  std::ofstream(blob() + ".incomplete") << std::string(kText.size(), 'x');
  Server hub([&](const std::string&) { return Answer(200, "", kText); });
  ASSERT_TRUE(Run(hub.url()).ok());
  EXPECT_EQ(ReadText(blob()), kText);
}

TEST_F(DownloadTest, ABlobThatIsThereIsNotAskedFor) {
  Server hub([&](const std::string&) { return Answer(200, "", kText); });
  ASSERT_TRUE(Run(hub.url()).ok());
  ASSERT_TRUE(Run(hub.url()).ok());
  EXPECT_EQ(hub.requests().size(), 1u);
}

}  // namespace
}  // namespace reprise::hub
