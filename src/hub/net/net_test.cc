// SPDX-License-Identifier: Apache-2.0
// Addresses, proxies and answers: what is understood, and what is refused.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "hub/net/proxy.h"
#include "hub/net/response_parser.h"
#include "hub/net/url.h"

namespace reprise::hub {
namespace {

TEST(Url, PartsAreTakenApart) {
  const auto url = Url::Parse("https://Hub.Example:8443/a/b?c=d#e");
  ASSERT_TRUE(url.ok());
  EXPECT_EQ(url->host, "hub.example");
  EXPECT_EQ(url->port, 8443);
  EXPECT_EQ(url->target, "/a/b?c=d");
  EXPECT_EQ(Url::Parse("http://[::1]")->authority(), "[::1]");
  EXPECT_EQ(Url::Parse("http://h")->target, "/");
}

TEST(Url, WhatCouldMeanSomethingElseIsRefused) {
  for (const char* text :
       {"ftp://h/", "https:/h", "https://", "https://a b/", "https://h:0/", "https://h:99999/",
        "https://h:80x/", "https://user@h/", "https://u:p@h/", "https://h/\r\nX: y", "h/path",
        "https://h\\x/", "https://[::1/", "https://[::1]x/", "file:///etc/passwd"}) {
    EXPECT_FALSE(Url::Parse(text).ok()) << text;
  }
}

TEST(Url, RedirectsAreResolvedAgainstTheAddressThatGaveThem) {
  const Url base = *Url::Parse("https://hub.example:444/a?b");
  EXPECT_EQ(base.Resolve("/x?y")->ToString(), "https://hub.example:444/x?y");
  EXPECT_EQ(base.Resolve("//cdn.example/x")->ToString(), "https://cdn.example/x");
  EXPECT_EQ(base.Resolve("http://h/x")->ToString(), "http://h/x");
  EXPECT_FALSE(base.Resolve("javascript:alert(1)").ok());
}

TEST(Url, AnOriginIsSchemeHostAndPort) {
  const Url url = *Url::Parse("https://h/a");
  EXPECT_TRUE(url.SameOrigin(*Url::Parse("https://h:443/b")));
  EXPECT_FALSE(url.SameOrigin(*Url::Parse("http://h/a")));
  EXPECT_FALSE(url.SameOrigin(*Url::Parse("https://h:444/a")));
  EXPECT_FALSE(url.SameOrigin(*Url::Parse("http://h:443/a")));
  EXPECT_FALSE(url.SameOrigin(*Url::Parse("https://h.evil/a")));
}

TEST(Url, PathsAreEncoded) { EXPECT_EQ(PercentEncode("a/b c%#.gguf"), "a/b%20c%25%23.gguf"); }

Environment Variables(std::map<std::string, std::string> values) {
  return [values](const char* name) {
    const auto it = values.find(name);
    return it == values.end() ? "" : it->second;
  };
}

TEST(Proxy, IsThatOfTheScheme) {
  const Environment all = Variables({{"HTTPS_PROXY", "http://p:3128"}, {"http_proxy", "q:80"}});
  EXPECT_EQ((*FindProxy(*Url::Parse("https://h/"), all))->host, "p");
  EXPECT_EQ((*FindProxy(*Url::Parse("http://h/"), all))->host, "q");
  EXPECT_FALSE((*FindProxy(*Url::Parse("https://h/"), Variables({}))).has_value());
}

TEST(Proxy, NoProxyNamesHostsAndDomains) {
  for (const auto& [list, direct] : std::map<std::string, bool>{{"h.example", true},
                                                                {"example", true},
                                                                {".example", true},
                                                                {"a, h.example:443", true},
                                                                {"*", true},
                                                                {"h.example:80", false},
                                                                {"xample", false},
                                                                {"other", false},
                                                                {"", false}}) {
    const Environment all = Variables({{"https_proxy", "http://p:3128"}, {"NO_PROXY", list}});
    EXPECT_EQ(!FindProxy(*Url::Parse("https://h.example/"), all)->has_value(), direct) << list;
  }
}

TEST(Proxy, CredentialsAreForTheProxyAndOtherKindsAreRefused) {
  const Environment named = Variables({{"https_proxy", "http://user:p%40ss@p:1/"}});
  const auto proxy = FindProxy(*Url::Parse("https://h/"), named);
  ASSERT_TRUE(proxy.ok());
  EXPECT_EQ((*proxy)->credentials, "dXNlcjpwQHNz");
  const Environment socks = Variables({{"all_proxy", "socks5://p:1"}});
  EXPECT_FALSE(FindProxy(*Url::Parse("https://h/"), socks).ok());
}

// The whole answer at once, and byte by byte: both must say the same.
struct Seen {
  ResponseParser::State state;
  std::string body;
};
Seen Parse(const std::string& text, bool has_body = true) {
  Seen seen[2];
  for (const size_t piece : {text.size(), size_t{1}}) {
    ResponseParser parser(has_body);
    Seen& one = seen[piece == 1];
    for (size_t at = 0; at < text.size(); at += piece) {
      parser.Feed(std::string_view(text).substr(at, piece), &one.body);
    }
    parser.End();
    one.state = parser.state();
  }
  EXPECT_EQ(seen[0].state, seen[1].state) << text;
  EXPECT_EQ(seen[0].body, seen[1].body) << text;
  return seen[0];
}

TEST(ResponseParser, ReadsTheThreeKindsOfBodies) {
  EXPECT_EQ(Parse("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcd").body, "abc");
  EXPECT_EQ(
      Parse("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;a\r\nab\r\n1\r\nc\r\n0\r\n"
            "T: x\r\n\r\n")
          .body,
      "abc");
  EXPECT_EQ(Parse("HTTP/1.0 200 OK\n\nabc").body, "abc");
}

TEST(ResponseParser, SkipsInformationalHeadsAndKnowsAnswersWithoutABody) {
  EXPECT_EQ(
      Parse("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na").body,
      "a");
  const Seen head = Parse("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", false);
  EXPECT_EQ(head.state, ResponseParser::State::kDone);
  EXPECT_EQ(Parse("HTTP/1.1 304 Not Modified\r\n\r\n").state, ResponseParser::State::kDone);
}

TEST(ResponseParser, WhatIsCutOrContradictsItselfFails) {
  for (const std::string text : {
           "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc",
           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n",
           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n0\r\n\r\n",
           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
           "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
           "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
           "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
           "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
           "HTTP/1.1 200 OK\r\nContent-Length: 1 1\r\n\r\n",
           "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
           "HTTP/1.1 200 OK\r\n",
           "HTTP/2 200\r\n\r\n",
           "HTTP/1.1 20 OK\r\n\r\n",
           "HTTP/1.1 101 Switching\r\n\r\n",
           "<html>hello</html>\r\n\r\n",
           "",
       }) {
    EXPECT_EQ(Parse(text).state, ResponseParser::State::kFailed) << text;
  }
}

TEST(ResponseParser, HeadsAndLinesHaveABound) {
  const std::string start = "HTTP/1.1 200 OK\r\n";
  EXPECT_EQ(Parse(start + "A: " + std::string(70'000, 'x') + "\r\n\r\n").state,
            ResponseParser::State::kFailed);
  std::string many = start;
  for (int i = 0; i < 129; ++i) many += "A: b\r\n";
  EXPECT_EQ(Parse(many + "\r\n").state, ResponseParser::State::kFailed);
  std::string informational;
  for (int i = 0; i < 9; ++i) informational += "HTTP/1.1 103 Early\r\n\r\n";
  EXPECT_EQ(Parse(informational + start + "\r\n").state, ResponseParser::State::kFailed);
  EXPECT_EQ(Parse(start + "Transfer-Encoding: chunked\r\n\r\n1;" + std::string(2000, 'x')).state,
            ResponseParser::State::kFailed);
}

}  // namespace
}  // namespace reprise::hub
