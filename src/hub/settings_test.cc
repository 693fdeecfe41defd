// SPDX-License-Identifier: Apache-2.0
// Which hub, cache and token the environment means.
#include "hub/settings.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

namespace reprise::hub {
namespace {

Result<Settings> Read(std::map<std::string, std::string> values) {
  return ReadSettings([values](const char* name) {
    const auto it = values.find(name);
    return it == values.end() ? std::string() : it->second;
  });
}

TEST(Settings, TheCacheIsThatOfTheHubsTools) {
  EXPECT_EQ(Read({{"HOME", "/h"}})->cache_path, "/h/.cache/huggingface/hub");
  EXPECT_EQ(Read({{"HOME", "/h"}, {"XDG_CACHE_HOME", "/x"}})->cache_path, "/x/huggingface/hub");
  EXPECT_EQ(Read({{"HOME", "/h"}, {"HF_HOME", "~/f"}})->cache_path, "/h/f/hub");
  EXPECT_EQ(Read({{"HF_HOME", "/f"}, {"HF_HUB_CACHE", "/c"}})->cache_path, "/c");
  EXPECT_FALSE(Read({}).ok());
}

TEST(Settings, AnEndpointMayHaveAPathAndMustBeAnAddress) {
  const auto settings = Read({{"HOME", "/h"}, {"HF_ENDPOINT", "http://mirror:8080/hub/"}});
  EXPECT_EQ(settings->At("/api/x").ToString(), "http://mirror:8080/hub/api/x");
  EXPECT_TRUE(Read({{"HOME", "/h"}})->endpoint.tls);
  EXPECT_FALSE(Read({{"HOME", "/h"}, {"HF_ENDPOINT", "mirror"}}).ok());
}

TEST(Settings, ATokenIsOneWord) {
  const char* base = std::getenv("TEST_TMPDIR");
  const std::string home =
      (base == nullptr ? std::filesystem::temp_directory_path().string() : base) + "/hub_home";
  std::filesystem::create_directories(home);
  std::ofstream(home + "/token") << " hf_file\n";
  EXPECT_EQ(Read({{"HF_HOME", home}})->token, "hf_file");
  EXPECT_EQ(Read({{"HF_HOME", home}, {"HF_TOKEN", "hf_env"}})->token, "hf_env");
  EXPECT_EQ(Read({{"HF_HOME", home}, {"HF_HUB_DISABLE_IMPLICIT_TOKEN", "1"}})->token, "");
  EXPECT_EQ(Read({{"HOME", "/nowhere"}})->token, "");
  // It becomes a header: two lines would be two.
  EXPECT_FALSE(Read({{"HOME", "/h"}, {"HF_TOKEN", "a\r\nX-Evil: b"}}).ok());
}

TEST(Settings, TimeoutsAndOffline) {
  EXPECT_TRUE(Read({{"HOME", "/h"}, {"HF_HUB_OFFLINE", "true"}})->offline);
  EXPECT_FALSE(Read({{"HOME", "/h"}, {"HF_HUB_OFFLINE", "0"}})->offline);
  EXPECT_EQ(Read({{"HOME", "/h"}, {"HF_HUB_DOWNLOAD_TIMEOUT", "3"}})->http.pause_limit,
            std::chrono::seconds(3));
}

}  // namespace
}  // namespace reprise::hub
